// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

class JsonTest {
    @Test
    void wholeNumbersStayWhole() {
        var text = "{\"port\":8998,\"share\":0.5,\"list\":[1,\"a\",true],\"none\":null}";
        var map = Json.toMap(Json.parseObject(text.getBytes(StandardCharsets.UTF_8)));
        assertThat(map)
                .isEqualTo(Map.of("port", 8998L, "share", 0.5, "list", List.of(1L, "a", true)));
        assertThat(Json.text(Json.tree(map))).contains("\"port\":8998,");
    }
}
