// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.common;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.EngineInfo;
import io.kvferry.tck.harness.HarnessShape;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.zeromq.ZMQ;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

class MooncakeSettingsTest {
    private static final EngineInfo SINGLE = HarnessShape.small().engine(1);
    private static final EngineInfo THIRD =
            new EngineInfo(SINGLE.modelName(), SINGLE.namespace(), SINGLE.cache(), 1, 2, 1);

    private static int rank(EngineInfo engine, Map<String, ?> options) {
        return MooncakeSettings.from(MooncakeSettings.SCHEMA.read("test", options))
                .dataParallelRank(engine, "engine");
    }

    @Test
    void aPrefillerRegistersUnderTheRankOfItsEngineUnlessToldOtherwise() {
        assertThat(rank(SINGLE, Map.of())).isZero();
        assertThat(rank(THIRD, Map.of())).isEqualTo(2);
        assertThat(rank(THIRD, Map.of("data_parallel_rank", 5))).isEqualTo(5);
        assertThat(rank(THIRD, Map.of("data_parallel_rank", -1))).isPositive().isGreaterThan(5);
    }

    private static boolean requiresCapability(Map<String, ?> options) {
        return MooncakeSettings.from(MooncakeSettings.SCHEMA.read("test", options))
                .requireCapability();
    }

    @Test
    void capabilitiesAreRequiredWherePeersMustProveWhoTheyAreUnlessToldOtherwise(
            @TempDir Path folder) throws IOException {
        var file = Files.writeString(folder.resolve("secret"), "0123456789abcdef").toString();
        var pair = ZMQ.Curve.generateKeyPair();
        var curve = Map.of("curve_public_key", pair.publicKey, "curve_secret_key", pair.secretKey);

        assertThat(requiresCapability(Map.of())).isFalse();
        assertThat(requiresCapability(Map.of("require_capability", true))).isTrue();
        assertThat(requiresCapability(curve)).isTrue();
        assertThat(requiresCapability(Map.of("secret_file", file))).isTrue();
        assertThat(requiresCapability(Map.of("secret_file", file, "require_capability", false)))
                .isFalse();
    }
}
