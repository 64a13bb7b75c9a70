// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

class EngineConfigTest {
    @Test
    void hasDefaults() {
        assertThat(EngineConfig.defaults())
                .isEqualTo(
                        new EngineConfig(
                                "127.0.0.1",
                                "127.0.0.1",
                                0,
                                0,
                                "P2PHANDSHAKE",
                                "",
                                "",
                                4,
                                0,
                                0,
                                100,
                                1024,
                                1024,
                                Duration.ofSeconds(5),
                                Duration.ofSeconds(10),
                                Duration.ofSeconds(30),
                                Duration.ofSeconds(2),
                                1 << 20,
                                65_536,
                                16 << 20,
                                EngineConfig.Checksum.AUTO,
                                true,
                                2,
                                true,
                                Path.of("/dev/shm"),
                                true,
                                false,
                                Optional.empty()));
    }

    @Test
    void aTransferTakesNoMoreLanesThanAreFreeUnlessTheirNumberIsConfigured() {
        int processors = Runtime.getRuntime().availableProcessors();
        var auto = EngineConfig.from(Map.of("lanes-per-peer", "64"));
        assertThat(auto.mostLanes(1)).isEqualTo(1);
        assertThat(auto.mostLanes(1000)).isEqualTo(Math.min(64, processors));
        var configured =
                EngineConfig.from(Map.of("lanes-per-peer", "3", "lanes-per-transfer", "2"));
        assertThat(configured.mostLanes(1)).isEqualTo(2);
        assertThat(configured.mostLanes(1000)).isEqualTo(2);
        var few = EngineConfig.from(Map.of("lanes-per-peer", "1", "lanes-per-transfer", "2"));
        assertThat(few.mostLanes(1000)).as("of one peer").isEqualTo(1);
    }

    @Test
    void readsEveryKey() {
        assertThat(
                        EngineConfig.from(
                                Map.ofEntries(
                                        Map.entry("host", "h"),
                                        Map.entry("bind-host", "b"),
                                        Map.entry("min-port", "1"),
                                        Map.entry("max-port", "2"),
                                        Map.entry("metadata", "http://x/metadata"),
                                        Map.entry("name", "n"),
                                        Map.entry("cluster-id", "c"),
                                        Map.entry("lanes-per-peer", "3"),
                                        Map.entry("lanes-per-transfer", "2"),
                                        Map.entry("socket-buffer-bytes", "65536"),
                                        Map.entry("spin-us", "12"),
                                        Map.entry("max-connections", "4"),
                                        Map.entry("queue-per-peer", "5"),
                                        Map.entry("connect-timeout-ms", "6"),
                                        Map.entry("handshake-timeout-ms", "7"),
                                        Map.entry("stall-timeout-ms", "8"),
                                        Map.entry("drain-timeout-ms", "9"),
                                        Map.entry("handshake-max-bytes", "2048"),
                                        Map.entry("max-notifications", "11"),
                                        Map.entry("max-notification-bytes", "4096"),
                                        Map.entry("checksum", "false"),
                                        Map.entry("extension", "false"),
                                        Map.entry("protocol-version", "1"),
                                        Map.entry("shared-memory", "false"),
                                        Map.entry("shared-memory-dir", "d"),
                                        Map.entry("cross-memory", "false"),
                                        Map.entry("cross-memory-ptracer", "true"))))
                .isEqualTo(
                        new EngineConfig(
                                "h",
                                "b",
                                1,
                                2,
                                "http://x/metadata",
                                "n",
                                "c",
                                3,
                                2,
                                65_536,
                                12,
                                4,
                                5,
                                Duration.ofMillis(6),
                                Duration.ofMillis(7),
                                Duration.ofMillis(8),
                                Duration.ofMillis(9),
                                2048,
                                11,
                                4096,
                                EngineConfig.Checksum.NEVER,
                                false,
                                1,
                                false,
                                Path.of("d"),
                                false,
                                true,
                                Optional.empty()));
    }

    @Test
    void bytesAreSummedBetweenHostsAndWithinOneWhereThatIsAskedFor() {
        assertThat(EngineConfig.defaults().checksum().covers(true)).isFalse();
        assertThat(EngineConfig.defaults().checksum().covers(false)).isTrue();
        var always = EngineConfig.from(Map.of("checksum", "true")).checksum();
        assertThat(always.covers(true)).isTrue();
        var never = EngineConfig.from(Map.of("checksum", "false")).checksum();
        assertThat(never.covers(false)).isFalse();
    }

    @Test
    void refusesWhatItDoesNotUnderstand() {
        for (Map<String, String> settings :
                java.util.List.of(
                        Map.of("hots", "h"),
                        Map.of("lanes-per-peer", "0"),
                        Map.of("lanes-per-peer", "many"),
                        Map.of("checksum", "yes"),
                        Map.of("min-port", "5", "max-port", "4"),
                        Map.of("protocol-version", "3"))) {
            assertThatThrownBy(() -> EngineConfig.from(settings))
                    .as(settings.toString())
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG));
        }
    }

    @Test
    void readsHostsAndPortsAsMooncakeDoes() {
        assertThat(HostPort.parse("h:1")).isEqualTo(new HostPort("h", 1));
        assertThat(HostPort.parse("h")).isEqualTo(new HostPort("h", 12_001));
        assertThat(HostPort.parse("[::1]:7"))
                .isEqualTo(new HostPort("::1", 7))
                .hasToString("[::1]:7");
        assertThat(HostPort.parse("[::1]")).isEqualTo(new HostPort("::1", 12_001));
        for (String bad : java.util.List.of("", ":1", "h:0", "h:70000", "h:x", "[::1]x")) {
            assertThatThrownBy(() -> HostPort.parse(bad))
                    .as(bad)
                    .isInstanceOf(KvFerryException.class);
        }
    }
}
