// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.nccl.plane.HostPlane.Checksum;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.util.Map;

class P2pSettingsTest {
    private static Checksum checksum(Map<String, Object> options) {
        return P2pSettings.from(P2pSettings.SCHEMA.read("P2pNcclConnector", options)).checksum();
    }

    @Test
    void checksumIsAutoOrABooleanAsANameOrAsJson() {
        assertThat(checksum(Map.of())).isEqualTo(Checksum.AUTO);
        assertThat(checksum(Map.of("checksum", "auto"))).isEqualTo(Checksum.AUTO);
        assertThat(checksum(Map.of("checksum", true))).isEqualTo(Checksum.ALWAYS);
        assertThat(checksum(Map.of("checksum", "true"))).isEqualTo(Checksum.ALWAYS);
        assertThat(checksum(Map.of("checksum", false))).isEqualTo(Checksum.NEVER);
        assertThat(checksum(Map.of("checksum", "false"))).isEqualTo(Checksum.NEVER);
        assertThatThrownBy(() -> checksum(Map.of("checksum", "never")))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                .hasMessageContaining("checksum = 'never' is none of auto, true, false");
    }
}
