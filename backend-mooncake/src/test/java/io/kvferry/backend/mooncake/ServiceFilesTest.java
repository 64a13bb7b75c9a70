// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Plugin;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.transfer.TransferBackendProvider;

import org.junit.jupiter.api.Test;

import java.util.ServiceLoader;

/// Hosts find the plugins of this module by their service files.
class ServiceFilesTest {
    @Test
    void everyProviderIsFound() {
        assertThat(ServiceLoader.load(KvConnectorProvider.class))
                .extracting(Plugin::name)
                .contains("MooncakeConnector", "MooncakeStoreConnector");
        assertThat(ServiceLoader.load(TransferBackendProvider.class))
                .extracting(Plugin::name)
                .contains("MOONCAKE");
    }
}
