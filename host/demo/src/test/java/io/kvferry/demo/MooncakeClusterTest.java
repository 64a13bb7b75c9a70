// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

class MooncakeClusterTest {
    @Test
    void saysHowToGetMooncakeWhereThereIsNone() {
        assumeTrue(System.getenv("KVFERRY_MOONCAKE_STORE_LIB") == null, "Mooncake is named here");
        assertThatThrownBy(MooncakeCluster::programs)
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("interop/install-peers store")
                .hasMessageContaining("KVFERRY_MOONCAKE_STORE_LIB");
    }
}
