// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.List;

class JvmFlagsTest {
    @Test
    void aChildStartsFromTheSameAotCache() {
        assertThat(JvmFlags.forChild(List.of("-Xmx1g", "-XX:AOTCache=engine.aot")))
                .contains("-XX:AOTCache=engine.aot")
                .doesNotContain("-Xmx1g");
    }

    @Test
    void onlyTheParentWritesAnAotCache() {
        assertThat(JvmFlags.forChild(List.of("-XX:AOTCacheOutput=engine.aot")))
                .noneMatch(option -> option.contains("AOT"));
    }
}
