// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.toolkit.disk.DirectIo;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

class DiskOptionsTest {
    private static final CacheNamespace NAMESPACE =
            new CacheNamespace("m", "test", DType.FLOAT32, KvLayout.LBNHC, 1, 4, 1, 1, "");

    @TempDir Path folder;

    @Test
    void evictionStopsWhereItStartsUnlessToldOtherwise() {
        assertThat(space(Map.of("high_watermark", 0.9)))
                .returns(0.9, space -> space.lowWatermark())
                .returns(0.9, space -> space.highWatermark());
        assertThat(space(Map.of("high_watermark", 0.9, "low_watermark", 0.5)))
                .returns(0.5, space -> space.lowWatermark());
        assertThat(space(Map.of())).returns(1.0, space -> space.lowWatermark());
    }

    /// Of every number with a unit: the smallest that the schema takes, and the largest.
    @ParameterizedTest
    @CsvSource({"BYTES", "DURATION"})
    void aStoreTakesEveryValueThatTheSchemaTakes(Option.Type type) {
        var options =
                DiskOptions.SCHEMA.options().stream().filter(each -> each.type() == type).toList();
        assertThat(options).isNotEmpty();
        for (var option : options) {
            for (double value : new double[] {0, option.minimum(), option.maximum()}) {
                var given = Map.<String, Object>of("path", folder.toString(), option.name(), value);
                try {
                    var read = DiskOptions.SCHEMA.read("test", given);
                    DiskOptions.workerStore(read, NAMESPACE, KvRole.BOTH);
                } catch (KvFerryException e) {
                    assertThat(e.code()).as("%s", option).isEqualTo(ErrorCode.BAD_CONFIG);
                }
            }
        }
    }

    /// Sums with it would overflow.
    @Test
    void refusesAReserveThatNoDiskHas() {
        for (double reserve : new double[] {-1, 9e18}) {
            assertThatThrownBy(() -> DiskOptions.SCHEMA.read("test", Map.of("reserve", reserve)))
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining("reserve");
        }
    }

    @Test
    void refusesAnIntervalOfNoTime() {
        for (var name : List.of("recency", "scan_interval", "io_timeout", "lease")) {
            assertThatThrownBy(() -> DiskOptions.SCHEMA.read("test", Map.of(name, "0s")))
                    .as(name)
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining(name);
        }
    }

    @Test
    void readsSixteenBlocksAtATimeUnlessToldOtherwise() {
        var silent = DiskOptions.SCHEMA.read("test", Map.of("path", folder.toString()));
        assertThat(DiskOptions.workerStore(silent, NAMESPACE, KvRole.BOTH).pools().readThreads())
                .isEqualTo(16);
    }

    @Test
    void onlyAPrefillEngineWaitsForItsSavesUnlessToldOtherwise() {
        var silent = DiskOptions.SCHEMA.read("test", Map.of());
        assertThat(DiskOptions.saveWait(silent, KvRole.PRODUCER)).isEqualTo(Duration.ofSeconds(1));
        assertThat(DiskOptions.saveWait(silent, KvRole.BOTH)).isZero();
        var told = DiskOptions.SCHEMA.read("test", Map.of("save_wait", "3s"));
        assertThat(DiskOptions.saveWait(told, KvRole.BOTH)).isEqualTo(Duration.ofSeconds(3));
    }

    @Test
    void blocksLieInTheUsersOwnCacheFolderUnlessToldOtherwise() {
        assertThat(DiskOptions.SCHEMA.read("test", Map.of()).path(DiskOptions.PATH))
                .isEqualTo(
                        DiskOptions.defaultFolder(
                                Optional.ofNullable(System.getenv("XDG_CACHE_HOME")),
                                System.getProperty("user.home")));
        var ofHome = Path.of("/home/u/.cache/kvferry/kv");
        assertThat(DiskOptions.defaultFolder(Optional.empty(), "/home/u")).isEqualTo(ofHome);
        assertThat(DiskOptions.defaultFolder(Optional.of(""), "/home/u")).isEqualTo(ofHome);
        assertThat(DiskOptions.defaultFolder(Optional.of("relative"), "/home/u")).isEqualTo(ofHome);
        assertThat(DiskOptions.defaultFolder(Optional.of("/caches/u"), "/home/u"))
                .isEqualTo(Path.of("/caches/u/kvferry/kv"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"1777", "0777"})
    void refusesADefaultBelowAFolderThatEverybodyMayWriteTo(String mode) throws Exception {
        DiskOptions.requirePrivate(Path.of("/absent/kvferry/kv"));
        var cache = Files.createDirectory(folder.resolve("cache"));
        assertThat(new ProcessBuilder("chmod", mode, cache.toString()).start().waitFor()).isZero();
        for (var below : List.of("kvferry/kv", "deeper/kvferry/kv")) {
            assertThatThrownBy(() -> DiskOptions.requirePrivate(cache.resolve(below)))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG))
                    .hasMessageContaining("XDG_CACHE_HOME");
        }
    }

    /// In a process of its own, whose environment makes that its default.
    @Test
    void noStoreIsMadeInADefaultFolderThatEverybodyMayWriteTo() throws Exception {
        var cache = Files.createDirectory(folder.resolve("cache"));
        assertThat(new ProcessBuilder("chmod", "1777", cache.toString()).start().waitFor())
                .isZero();
        var command =
                new ProcessBuilder(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-cp",
                        System.getProperty("java.class.path"),
                        DefaultFolder.class.getName());
        command.environment().put("XDG_CACHE_HOME", cache.toString());
        var process = command.redirectError(ProcessBuilder.Redirect.DISCARD).start();
        try (var said = process.inputReader()) {
            assertThat(said.readLine()).isEqualTo(ErrorCode.BAD_CONFIG.name());
        } finally {
            process.destroyForcibly();
        }
    }

    /// Both stores of a process are one, with one scan, where only their threads differ.
    @Test
    void theTwoHalvesOfAConnectorDifferInTheirThreadsAlone() {
        var options = DiskOptions.SCHEMA.read("test", Map.of("path", folder.toString()));
        var worker = DiskOptions.workerStore(options, NAMESPACE, KvRole.BOTH);
        var scheduler = DiskOptions.schedulerStore(options, NAMESPACE, KvRole.BOTH);
        assertThat(scheduler).isNotEqualTo(worker).isEqualTo(worker.with(scheduler.pools()));
    }

    @ParameterizedTest
    @CsvSource({
        "BOTH, 51, AUTO, direct where the file system takes it and while no other process, more than half",
        "BOTH, 50, OFF, buffered, no more than half",
        "PRODUCER, 51, OFF, buffered, one process writes what another reads",
        "CONSUMER, 51, OFF, buffered, one process writes what another reads"
    })
    void autoGoesDirectForLargeStoresOfOneEngineAndSaysWhy(
            KvRole role, long capacity, DirectIo expected, String what, String why) {
        assertThat(DiskOptions.AutoDirect.of(role, capacity, 100))
                .returns(expected, DiskOptions.AutoDirect::io)
                .satisfies(chosen -> assertThat(chosen.text()).startsWith(what).contains(why));
    }

    @ParameterizedTest
    @EnumSource(DirectIo.class)
    void directIsWhatItIsSetTo(DirectIo set) {
        var given =
                Map.<String, Object>of(
                        "path",
                        folder.toString(),
                        "capacity",
                        1,
                        "direct",
                        set.name().toLowerCase(Locale.ROOT));
        var options = DiskOptions.SCHEMA.read("test", given);
        assertThat(DiskOptions.workerStore(options, NAMESPACE, KvRole.BOTH).directIo())
                .isEqualTo(set == DirectIo.AUTO ? DirectIo.OFF : set);
    }

    private StoreConfig.Space space(Map<String, Object> watermarks) {
        var given = new HashMap<>(watermarks);
        given.put("path", folder.toString());
        var options = DiskOptions.SCHEMA.read("test", given);
        return DiskOptions.schedulerStore(options, NAMESPACE, KvRole.BOTH).space();
    }

    /// Prints why there is no store in the default folder.
    static final class DefaultFolder {
        public static void main(String[] arguments) {
            try {
                var silent = DiskOptions.SCHEMA.read("test", Map.of());
                DiskOptions.workerStore(silent, NAMESPACE, KvRole.BOTH);
                System.out.println("a store");
            } catch (KvFerryException e) {
                System.out.println(e.code());
            }
        }
    }
}
