// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.transfer.TransferBackendProvider;

import org.junit.jupiter.api.Test;

import java.util.ServiceLoader;

class ReferencePluginsTest {
    @Test
    void areFoundByTheirServicesFiles() {
        assertThat(ServiceLoader.load(TransferBackendProvider.class))
                .anySatisfy(
                        found -> assertThat(found.name()).isEqualTo(MemoryBackendProvider.NAME));
        assertThat(ServiceLoader.load(KvConnectorProvider.class))
                .anySatisfy(
                        found -> assertThat(found.name()).isEqualTo(MemoryConnectorProvider.NAME));
        assertThat(ServiceLoader.load(EcConnectorProvider.class))
                .anySatisfy(found -> assertThat(found.name()).isEqualTo(MemoryEcProvider.NAME));
    }
}
