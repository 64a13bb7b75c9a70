// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.List;

class OwnerProcessTest {
    @Test
    void anOwnerHasTheOptionsOfItsParentButWritesNoAotCache() {
        assertThat(
                        OwnerProcess.inherited(
                                List.of(
                                        "-Xmx1g",
                                        "-XX:AOTCacheOutput=engine.aot",
                                        "-XX:AOTMode=record",
                                        "-XX:AOTConfiguration=engine.aotconf",
                                        "-XX:AOTCache=earlier.aot")))
                .containsExactly("-Xmx1g", "-XX:AOTCache=earlier.aot");
    }
}
