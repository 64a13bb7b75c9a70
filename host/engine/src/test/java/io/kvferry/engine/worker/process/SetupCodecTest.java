// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import org.junit.jupiter.api.Test;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/// What a worker process is opened with.
class SetupCodecTest {
    @Test
    void carriesEveryJsonValueAlsoNull() {
        var child = new LinkedHashMap<String, Object>();
        child.put("kv_connector", "A");
        child.put("kv_port", null);
        var extra = new LinkedHashMap<String, Object>();
        extra.put("none", null);
        extra.put("list", Arrays.asList(1L, null, "x", true, 0.5));
        extra.put("connectors", List.of(child, Map.of()));
        var config = ConnectorConfig.of("MultiConnector", KvRole.BOTH, "e", extra);

        var out = new WireWriter();
        SetupCodec.write(out, config);
        assertThat(SetupCodec.config(new WireReader(out.toByteArray()))).isEqualTo(config);
    }
}
