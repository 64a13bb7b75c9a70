// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static io.kvferry.backend.disk.store.StoreDriver.block;
import static io.kvferry.backend.disk.store.StoreDriver.empty;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.space.KeyDigest;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;

class BlockStoreTest {
    @TempDir Path root;

    private BlockStore open(StoreConfig config) {
        return BlockStore.open(config, StoreListener.NONE);
    }

    @ParameterizedTest
    @CsvSource({
        "posix,AUTO,NONE",
        "posix,OFF,DATA",
        "posix,OFF,STRICT",
        "channel,AUTO,STRICT",
        "channel,OFF,NONE"
    })
    void returnsTheBytesThatWereSaved(String calls, DirectIo direct, Durability durability) {
        var config = StoreDriver.config(root).withMedium(durability, direct);
        FileCalls files = calls.equals("posix") ? FileCalls.ofPlatform() : FileCalls.ofChannels();
        try (var store = BlockStore.open(config, StoreListener.NONE, files)) {
            var driver = new StoreDriver(store);
            long[][] shapes = {
                {1}, {4096}, {4095, 1, 0, 70_000}, {262_144, 262_144}, new long[] {0}
            };
            for (int i = 0; i < shapes.length; i++) {
                BlockKey key = BlockKey.of("block " + i);
                List<MemorySegment> saved = block(i, shapes[i]);
                assertThat(driver.save(key, saved)).isEqualTo(BlockResult.Done.STORED);
                assertThat(driver.save(key, saved)).isEqualTo(BlockResult.Done.PRESENT);
                List<MemorySegment> loaded = empty(shapes[i]);
                assertThat(driver.load(key, loaded)).isEqualTo(BlockResult.Done.LOADED);
                assertThat(StoreDriver.same(saved, loaded)).isTrue();
            }
            assertThat(store.stats().saves()).isEqualTo(shapes.length);
            assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(config));
        }
        assertThat(StoreDriver.temps(config)).isEmpty();
    }

    @Test
    void missesWhatWasNeverSaved() {
        try (var store = open(StoreDriver.config(root))) {
            BlockResult result = new StoreDriver(store).load(BlockKey.of("nobody"), empty(10));
            assertThat(result.failedWith(ErrorCode.MISS)).isTrue();
            assertThat(store.stats().misses()).isEqualTo(1);
        }
    }

    @Test
    void refusesABlockOfOtherSizeAndKeepsIt() {
        try (var store = open(StoreDriver.config(root))) {
            var driver = new StoreDriver(store);
            BlockKey key = BlockKey.of("k");
            driver.save(key, block(1, 8192, 8192));
            for (long[] shape : new long[][] {{16_385}, {8192}, {8192, 8191}, {8192, 8192, 8192}}) {
                assertThat(driver.load(key, empty(shape)).failedWith(ErrorCode.INCOMPATIBLE))
                        .isTrue();
            }
            assertThat(driver.load(key, empty(8192, 8192))).isEqualTo(BlockResult.Done.LOADED);
        }
    }

    /// Up to version 2 names did not say the version.
    @Test
    void aFileOfTheVersionBeforeIsNotFoundAndCountsAgainstTheQuota() throws IOException {
        var config = StoreDriver.config(root);
        BlockKey key = BlockKey.of("k");
        Path file = StoreDriver.file(config, key);
        Path before = file.resolveSibling(key.digest() + StoreFolder.SUFFIX);
        Files.write(before, new byte[20_480]);
        Files.setLastModifiedTime(before, FileTime.from(Instant.now().minusSeconds(3600)));
        try (var store = open(config)) {
            var driver = new StoreDriver(store);
            assertThat(store.stats().usedBytes()).isEqualTo(20_480);
            assertThat(driver.locate(List.of(key))).isZero();
            assertThat(driver.load(key, empty(8192, 8192)).failedWith(ErrorCode.MISS)).isTrue();
            assertThat(driver.save(key, block(1, 8192, 8192))).isEqualTo(BlockResult.Done.STORED);
            assertThat(driver.load(key, empty(8192, 8192))).isEqualTo(BlockResult.Done.LOADED);
            assertThat(store.stats().usedBytes()).isEqualTo(2 * 20_480);
        }
        assertThat(before).exists().isNotEqualTo(file);
        try (var store = open(config.withQuota(2 * 20_480, 1, 1))) {
            var saved = new StoreDriver(store).save(BlockKey.of("l"), block(2, 8192, 8192));
            assertThat(saved).isEqualTo(BlockResult.Done.STORED);
        }
        assertThat(before).doesNotExist();
        assertThat(file).exists();
    }

    /// Such as a file that an older process wrote over the one that was open here.
    @Test
    void aFileOfTheVersionBeforeUnderANameOfThisOneIsDamage() throws IOException {
        try (var store = open(StoreDriver.config(root))) {
            var driver = new StoreDriver(store);
            BlockKey key = BlockKey.of("k");
            driver.save(key, block(1, 8192, 8192));
            Path file = StoreDriver.file(store.config(), key);
            byte[] bytes = Files.readAllBytes(file);
            bytes[7] = 'K'; // the magic of version 2
            Files.write(file, bytes);
            assertThat(driver.load(key, empty(8192, 8192)).failedWith(ErrorCode.CORRUPT)).isTrue();
            assertThat(file).doesNotExist();
        }
    }

    @Test
    void countsTheFrontThatIsThere() {
        var config = StoreDriver.lookingAfter(Duration.ofHours(1), StoreDriver.config(root));
        try (var store = open(config)) {
            var driver = new StoreDriver(store);
            var keys = new ArrayList<BlockKey>();
            for (int i = 0; i < 6; i++) {
                keys.add(BlockKey.of("k" + i));
                if (i != 4) {
                    driver.save(keys.get(i), block(i, 100));
                }
            }
            assertThat(driver.locate(keys)).isEqualTo(4);
            assertThat(store.known(new KeySearch(keys))).isEqualTo(4);
            assertThat(driver.locate(keys.subList(4, 6))).isZero();
        }
    }

    @Test
    void rebuildsItsIndexOldestFirst() throws Exception {
        var config = StoreDriver.config(root);
        try (var store = open(config)) {
            for (int i = 0; i < 5; i++) {
                new StoreDriver(store).save(BlockKey.of("k" + i), block(i, 5000));
            }
        }
        // k3 is the oldest by file time; a dead writer left an unfinished file just now.
        Files.setLastModifiedTime(
                StoreDriver.file(config, BlockKey.of("k3")), FileTime.from(Instant.EPOCH));
        Path temps = StoreFolder.open(config, FileCalls.ofPlatform()).temps(15);
        Files.writeString(temps.resolve("fresh"), "x");
        long file = 4096 + 8192;
        try (var store = open(config.withQuota(5 * file, 0.99, 1.0))) {
            assertThat(store.stats().blocks()).isEqualTo(5);
            assertThat(store.stats().usedBytes())
                    .isEqualTo(5 * file)
                    .isEqualTo(StoreDriver.diskBytes(config));
            assertThat(temps).isDirectoryContaining("glob:**fresh");
            var driver = new StoreDriver(store);
            assertThat(driver.save(BlockKey.of("new"), block(9, 5000)))
                    .isEqualTo(BlockResult.Done.STORED);
            assertThat(driver.load(BlockKey.of("k3"), empty(5000)).failedWith(ErrorCode.MISS))
                    .isTrue();
            assertThat(driver.load(BlockKey.of("k0"), empty(5000)))
                    .isEqualTo(BlockResult.Done.LOADED);
        }
    }

    @Test
    void staysWithinItsQuotaAndEvictsTheLeastRecentlyUsedBlock() {
        long file = 4096 + 4096;
        var config = StoreDriver.config(root).withQuota(10 * file, 0.8, 0.9);
        Set<KeyDigest> removed = ConcurrentHashMap.newKeySet();
        try (var store = BlockStore.open(config, removed::add)) {
            var driver = new StoreDriver(store);
            BlockKey used = BlockKey.of("used");
            driver.save(used, block(2, 4000));
            for (int i = 0; i < 100; i++) {
                assertThat(driver.save(BlockKey.of("filler " + i), block(i, 4000)))
                        .isEqualTo(BlockResult.Done.STORED);
                assertThat(store.stats().usedBytes()).isLessThanOrEqualTo(10 * file);
                if (i % 3 == 0) {
                    assertThat(driver.load(used, empty(4000))).isEqualTo(BlockResult.Done.LOADED);
                }
            }
            assertThat(store.stats().evicted()).isGreaterThanOrEqualTo(90);
            assertThat(removed).hasSizeGreaterThanOrEqualTo(90).doesNotContain(used.digest());
        }
        assertThat(StoreDriver.diskBytes(config)).isLessThanOrEqualTo(10 * file);
    }

    @Test
    void failsWithNoSpaceABlockThatNoEvictionMakesRoomFor() {
        long file = 8192;
        try (var store = open(StoreDriver.config(root).withQuota(2 * file, 1.0, 1.0))) {
            var driver = new StoreDriver(store);
            for (int i = 0; i < 2; i++) {
                driver.save(BlockKey.of("k" + i), block(i, 100));
            }
            assertThat(driver.save(BlockKey.of("more"), block(3, 100)))
                    .isEqualTo(BlockResult.Done.STORED);
            assertThat(
                            driver.save(BlockKey.of("giant"), block(3, 100_000))
                                    .failedWith(ErrorCode.NO_SPACE))
                    .isTrue();
        }
    }

    @Test
    void keepsRealSpaceFree() throws Exception {
        long usable = Files.getFileStore(root).getUsableSpace();
        try (var store = open(StoreDriver.config(root).withReserveBytes(usable + (1L << 40)))) {
            assertThat(
                            new StoreDriver(store)
                                    .save(BlockKey.of("k"), block(1, 100))
                                    .failedWith(ErrorCode.NO_SPACE))
                    .isTrue();
            assertThat(store.stats().usedBytes()).isZero();
        }
    }

    @Test
    void keepsNamespacesApart() {
        try (var one = open(StoreDriver.config(root));
                var other = open(StoreConfig.of(root, "another model").withReserveBytes(0))) {
            new StoreDriver(one).save(BlockKey.of("k"), block(1, 100));
            assertThat(
                            new StoreDriver(other)
                                    .load(BlockKey.of("k"), empty(100))
                                    .failedWith(ErrorCode.MISS))
                    .isTrue();
            assertThat(new StoreDriver(other).locate(List.of(BlockKey.of("k")))).isZero();
        }
    }

    @Test
    void findsBlocksOfAnotherStoreOnTheSameFolderAndMissesThoseItDeletes() {
        var config =
                StoreDriver.config(root)
                        .with(
                                new StoreConfig.Times(
                                        StoreDriver.PATIENCE,
                                        Duration.ZERO,
                                        Duration.ofMinutes(1),
                                        Duration.ofHours(1),
                                        Duration.ofMinutes(1)));
        BlockKey key = BlockKey.of("shared");
        try (var one = open(config);
                var other = open(config)) {
            new StoreDriver(one).save(key, block(1, 100));
            assertThat(new StoreDriver(other).locate(List.of(key))).isEqualTo(1);
            assertThat(other.stats().usedBytes()).isEqualTo(one.stats().usedBytes());
            assertThat(one.clear()).isEqualTo(1);
            assertThat(new StoreDriver(other).locate(List.of(key))).isZero();
            assertThat(other.stats().blocks()).isZero();
        }
    }

    @Test
    void noticesEverythingThatIsGoneBehindTheFirstGap() {
        var keys = List.of(BlockKey.of("a"), BlockKey.of("b"), BlockKey.of("c"), BlockKey.of("d"));
        try (var one = open(StoreDriver.config(root));
                var other = open(StoreDriver.config(root))) {
            keys.forEach(key -> new StoreDriver(one).save(key, block(1, 100)));
            assertThat(new StoreDriver(other).locate(keys)).isEqualTo(4);
            one.clear();
            new StoreDriver(one).save(keys.get(0), block(1, 100));
            new StoreDriver(one).save(keys.get(2), block(1, 100));
            other.missedElsewhere(keys.get(1), System.nanoTime()); // as after a load of it
            assertThat(new StoreDriver(other).locate(keys)).isEqualTo(1);
            assertThat(keys)
                    .filteredOn(other::mayContain)
                    .containsExactly(keys.get(0), keys.get(2));
        }
    }

    @Test
    void refusesMoreThanTheQueueHoldsAndAnswersTheRest() throws Exception {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        var gate = new java.util.concurrent.CountDownLatch(1);
        var results = new ConcurrentLinkedQueue<BlockResult>();
        try (var store =
                BlockStore.open(
                        StoreDriver.config(root).with(new StoreConfig.Pools(1, 1, 4)),
                        StoreListener.NONE,
                        calls)) {
            calls.hook =
                    (_, _) -> {
                        try {
                            gate.await();
                        } catch (InterruptedException e) {
                            throw new IllegalStateException(e);
                        }
                        return 0;
                    };
            int accepted = 0;
            for (int i = 0; i < 50; i++) {
                boolean taken =
                        store.save(
                                BlockKey.of("k" + i),
                                block(i, 10),
                                Deadline.in(StoreDriver.PATIENCE),
                                (_, result) -> results.add(result),
                                i);
                accepted += taken ? 1 : 0;
            }
            assertThat(accepted).isBetween(4, 5);
            assertThat(store.stats().refused()).isEqualTo(50 - accepted);
            gate.countDown();
            StoreDriver.shut(store);
            assertThat(results).hasSize(accepted).containsOnly(BlockResult.Done.STORED);
            assertThat(
                            store.save(
                                    BlockKey.of("late"),
                                    block(1, 1),
                                    Deadline.in(StoreDriver.PATIENCE),
                                    (_, _) -> {},
                                    0))
                    .isFalse();
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "a/b/../../../etc/passwd",
                "..",
                "/",
                "nul\0inside",
                "\n\u202e\ud83d\ude80",
                "long"
            })
    void keepsAnyKeyInsideItsFolder(String text) throws Exception {
        BlockKey key = BlockKey.of(text.equals("long") ? "k/".repeat(2500) : text);
        var config = StoreDriver.config(root.resolve("store"));
        try (var store = open(config)) {
            var driver = new StoreDriver(store);
            assertThat(driver.save(key, block(1, 5000))).isEqualTo(BlockResult.Done.STORED);
            assertThat(driver.load(key, empty(5000))).isEqualTo(BlockResult.Done.LOADED);
        }
        try (var files = Files.list(root)) {
            assertThat(files).containsExactly(root.resolve("store"));
        }
        assertThat(StoreDriver.file(config, key).toRealPath())
                .startsWith(root.toRealPath().resolve("store"));
    }

    @Test
    void refusesKeysThatAreEmptyOrTooLong() {
        assertThatThrownBy(() -> BlockKey.of("")).isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> BlockKey.of("x".repeat(BlockKey.MAX_BYTES + 1)))
                .isInstanceOf(IllegalArgumentException.class)
                .hasMessageContaining("hash the long part");
    }

    @Test
    void refusesAFolderThatBelongsToAnotherNamespace() throws Exception {
        open(StoreDriver.config(root)).close();
        Path text =
                StoreFolder.open(StoreDriver.config(root), FileCalls.ofPlatform())
                        .folder()
                        .resolve("namespace.txt");
        Files.writeString(text, "somebody else");
        assertThatThrownBy(() -> open(StoreDriver.config(root)))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INCOMPATIBLE));
    }

    /// What a power cut leaves between the file's rename and its bytes.
    @ParameterizedTest
    @ValueSource(ints = {0, 1, 65})
    void opensAFolderWhoseNamespaceFileLostItsBytes(int length) throws Exception {
        var config = StoreDriver.config(root);
        open(config).close();
        Path text =
                StoreFolder.open(config, FileCalls.ofPlatform()).folder().resolve("namespace.txt");
        byte[] written = Files.readAllBytes(text);
        assertThat(written).hasSize(65);
        Files.write(text, new byte[length]);
        open(config).close();
        assertThat(text).hasBinaryContent(written);
    }
}
