// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.block.GatherWriter;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.DirectProbe;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.PathText;
import io.kvferry.toolkit.disk.RecordingCalls;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.Map;

/// Simulates a power failure after every single change that two processes make to one folder.
/// Unsynced changes are lost, or present without their bytes. Everything a strict store had
/// reported must be there, and a load must never return wrong bytes.
@SuppressWarnings("NullAway") // look-ups of what the test put there
class PowerCutTest {
    private static final long SMALL = 5000;
    private static final long SEVERAL_PIECES = GatherWriter.PIECE_BYTES * 3 / 2;
    private static final int LAST = 6;

    @TempDir Path disk;

    private final RecordingCalls calls = new RecordingCalls(FileCalls.ofPlatform());

    private long bytes = SMALL;
    private DirectIo direct = DirectIo.OFF;

    /// The number of changes made when a strict store reported the block.
    private final Map<Integer, Integer> promised = new LinkedHashMap<>();

    private BlockStore open(Durability durability) {
        var config =
                StoreDriver.config(disk.resolve("deep").resolve("root"))
                        .withMedium(durability, direct);
        return BlockStore.open(config, StoreListener.NONE, calls);
    }

    private void save(BlockStore store, int number, BlockResult expected) {
        var result =
                new StoreDriver(store)
                        .save(BlockKey.of("k" + number), StoreDriver.block(number, bytes));
        assertThat(result).isEqualTo(expected);
        if (store.config().durability() == Durability.STRICT) {
            promised.put(number, calls.count());
        }
    }

    @ParameterizedTest
    @EnumSource(RecordingCalls.Unsynced.class)
    void keepsWhatAStrictStoreReportedAndNeverShowsWrongBytes(RecordingCalls.Unsynced unsynced) {
        calls.gathers = unsynced != RecordingCalls.Unsynced.NAMES_KEPT; // each way of writing
        try (var careless = open(Durability.NONE);
                var strict = open(Durability.STRICT)) {
            save(careless, 0, BlockResult.Done.STORED);
            save(strict, 0, BlockResult.Done.PRESENT); // and durable from here on
            save(strict, 1, BlockResult.Done.STORED);
            save(strict, 1, BlockResult.Done.PRESENT);
            // Folders that the other process made and never brought to the medium.
            for (int i = 2; i < 4; i++) {
                save(careless, i, BlockResult.Done.STORED);
            }
            for (int i = 2; i < 6; i++) {
                save(strict, i, i < 4 ? BlockResult.Done.PRESENT : BlockResult.Done.STORED);
            }
            save(careless, LAST, BlockResult.Done.STORED);
        }
        for (int count = 0; count <= calls.count(); count++) {
            verify(count, unsynced);
        }
    }

    /// Their header is written twice, the first time with the first piece.
    @ParameterizedTest
    @EnumSource(RecordingCalls.Unsynced.class)
    void keepsBlocksThatAreWrittenInSeveralPieces(RecordingCalls.Unsynced unsynced) {
        calls.gathers = true;
        saveAndVerifySeveralPieces(unsynced);
    }

    /// Their files have their full length before their bytes.
    @ParameterizedTest
    @EnumSource(RecordingCalls.Unsynced.class)
    void keepsBlocksThatAreWrittenPastThePageCache(RecordingCalls.Unsynced unsynced) {
        try (Arena arena = Arena.ofConfined()) {
            var probe = PathText.of(arena, disk.resolve("probe"));
            Assumptions.assumeTrue(
                    DirectProbe.probe(FileCalls.ofPlatform(), probe) == 0,
                    "the folder of temporary files takes no O_DIRECT");
        }
        direct = DirectIo.ON;
        saveAndVerifySeveralPieces(unsynced);
    }

    private void saveAndVerifySeveralPieces(RecordingCalls.Unsynced unsynced) {
        bytes = SEVERAL_PIECES;
        try (var careless = open(Durability.NONE);
                var strict = open(Durability.STRICT)) {
            save(careless, 0, BlockResult.Done.STORED);
            save(strict, 0, BlockResult.Done.PRESENT);
            save(strict, 1, BlockResult.Done.STORED);
            save(careless, 2, BlockResult.Done.STORED);
        }
        for (int count = 0; count <= calls.count(); count++) {
            verify(count, unsynced);
        }
    }

    /// Each save writes over the file of the block that was saved first. What is promised is the
    /// block saved last, until the next save begins.
    @ParameterizedTest
    @EnumSource(RecordingCalls.Unsynced.class)
    void keepsTheLastBlockOfAFullStoreAndNeverShowsWrongBytes(RecordingCalls.Unsynced unsynced) {
        calls.gathers = unsynced != RecordingCalls.Unsynced.LOST;
        var config =
                StoreDriver.config(disk.resolve("deep").resolve("root"))
                        .withMedium(Durability.STRICT, DirectIo.OFF)
                        .withQuota(2 * (4096 + 8192), 1, 1);
        var begun = new ArrayList<Integer>();
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            for (int i = 0; i <= LAST; i++) {
                begun.add(calls.count());
                save(store, i, BlockResult.Done.STORED);
            }
            assertThat(store.stats().evicted()).isEqualTo(LAST - 1);
        }
        begun.add(calls.count());
        var until = Map.copyOf(promised);
        for (int count = 0; count <= calls.count(); count++) {
            promised.clear();
            for (int i = 0; i <= LAST; i++) {
                if (count >= until.get(i) && count <= begun.get(i + 1)) {
                    promised.put(i, until.get(i));
                }
            }
            verify(count, unsynced);
        }
    }

    /// Another process evicts what a strict store made durable, and saves it again without syncing
    /// it. When the strict store then finds the block, it is durable once more.
    @ParameterizedTest
    @EnumSource(RecordingCalls.Unsynced.class)
    void keepsABlockThatAnotherProcessEvictedAndSavedAgain(RecordingCalls.Unsynced unsynced) {
        int evictionBegins;
        try (var strict = open(Durability.STRICT)) {
            save(strict, 0, BlockResult.Done.STORED);
            save(strict, 0, BlockResult.Done.PRESENT);
            evictionBegins = calls.count();
            var small =
                    StoreDriver.config(disk.resolve("deep").resolve("root"))
                            .withMedium(Durability.NONE, DirectIo.OFF)
                            .withQuota(2 * (4096 + 8192), 1, 1);
            try (var careless = BlockStore.open(small, StoreListener.NONE, calls)) {
                // Of another size, so that nothing of the file is left.
                var other = StoreDriver.block(LAST + 1, 3 * SMALL);
                assertThat(new StoreDriver(careless).save(BlockKey.of("other"), other))
                        .isEqualTo(BlockResult.Done.STORED);
                save(careless, 0, BlockResult.Done.STORED);
            }
            save(strict, 0, BlockResult.Done.PRESENT);
        }
        int durableAgain = promised.get(0);
        for (int count = evictionBegins; count <= calls.count(); count++) {
            promised.put(0, count == evictionBegins ? evictionBegins : durableAgain);
            verify(count, unsynced);
        }
    }

    /// Somebody deletes folders whose names a strict store made durable, and a process that syncs
    /// nothing makes them again.
    @ParameterizedTest
    @ValueSource(strings = {"", "*", "*/blocks", "*/blocks/x"})
    void keepsBlocksInFoldersThatAnotherProcessMadeAgain(String part) throws Exception {
        Path root = disk.resolve("deep").resolve("root");
        int removed;
        try (var strict = open(Durability.STRICT)) {
            save(strict, 0, BlockResult.Done.STORED);
            Path file = strict.core().folder().file(BlockKey.of("k0").digest());
            removed = calls.count();
            calls.remove(
                    switch (part) {
                        case "" -> root;
                        case "*" -> strict.core().folder().folder();
                        case "*/blocks" -> strict.core().folder().blocks();
                        default -> file.getParent();
                    });
            try (var careless = open(Durability.NONE)) {
                assertThat(careless.stats().blocks()).isZero();
                save(strict, 0, BlockResult.Done.STORED);
            }
            save(strict, 1, BlockResult.Done.STORED);
        }
        for (int count = removed + 1; count <= calls.count(); count++) {
            verify(count, RecordingCalls.Unsynced.LOST);
        }
    }

    private void verify(int count, RecordingCalls.Unsynced unsynced) {
        Path left = memory().resolve(disk.getFileName() + "-" + unsynced + "-" + count);
        calls.survive(count, unsynced, disk, left);
        var config =
                StoreDriver.config(left.resolve("deep").resolve("root"))
                        .withCheckFolder(false); // modes are no part of the record
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            var driver = new StoreDriver(store);
            for (int i = 0; i <= LAST; i++) {
                var target = StoreDriver.empty(bytes);
                BlockResult result = driver.load(BlockKey.of("k" + i), target);
                if (result == BlockResult.Done.LOADED) {
                    assertThat(StoreDriver.same(StoreDriver.block(i, bytes), target)).isTrue();
                } else {
                    assertThat(promised.getOrDefault(i, Integer.MAX_VALUE))
                            .as("block %d after change %d: %s", i, count, result)
                            .isGreaterThan(count);
                    assertThat(
                                    result.failedWith(ErrorCode.MISS)
                                            || result.failedWith(ErrorCode.CORRUPT))
                            .isTrue();
                }
            }
        } finally {
            delete(left);
        }
    }

    /// What is left is looked at in memory where there is such a folder: a disk is much slower at
    /// making and deleting so many.
    private Path memory() {
        Path memory = Path.of("/dev/shm");
        return Files.isWritable(memory) ? memory : disk.getParent();
    }

    private static void delete(Path folder) {
        try (var all = Files.walk(folder)) {
            all.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
