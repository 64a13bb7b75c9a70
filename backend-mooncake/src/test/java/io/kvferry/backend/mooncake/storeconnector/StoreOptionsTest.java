// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.OptionValues;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

import java.util.List;
import java.util.Map;

class StoreOptionsTest {
    private static OptionValues read(Map<String, Object> raw) {
        return StoreOptions.SCHEMA.read("test", raw);
    }

    private static List<String> preferred(Map<String, Object> raw, @Nullable String environment) {
        return StoreOptions.preferredSegment(read(raw), environment).preferredSegments();
    }

    @Test
    void theOptionComesBeforeTheEnvironment() {
        var option = Map.<String, Object>of("preferred_segment", " host:1 ");
        assertThat(preferred(option, null)).containsExactly("host:1");
        assertThat(preferred(option, "host:2")).containsExactly("host:1");
        assertThat(preferred(Map.of(), " host:2 ")).containsExactly("host:2");
        assertThat(preferred(Map.of(), "  ")).isEmpty();
        assertThat(preferred(Map.of(), null)).isEmpty();
    }

    @Test
    void aBlankOptionDoesNotFallBack() {
        assertThatThrownBy(() -> preferred(Map.of("preferred_segment", "  "), "host:2"))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("must be a non-empty string");
    }

    @Test
    void synchronousLoadsAreRefused() {
        var config =
                ConnectorConfig.of(
                        MooncakeStoreConnectorProvider.NAME,
                        KvRole.BOTH,
                        "e",
                        Map.of("load_async", false));
        assertThatThrownBy(() ->
                        new MooncakeStoreConnectorProvider()
                                .capabilities(config, HostServices.NONE))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("load_async");
    }

    @Test
    void takesTheOptionsOfTheOwnerScriptsDefault() {
        var options = read(Map.of("load_async", true, "enable_cross_layers_blocks", true));
        StoreOptions.check(options);
        assertThat(StoreOptions.store(options).highWatermark()).isEqualTo(0.9);
    }
}
