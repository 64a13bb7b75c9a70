// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static io.kvferry.backend.disk.store.StoreDriver.block;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.space.Recency;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;

/// Clocks that are set, by days.
class ClockTest {
    private static final long FILE = 8192;
    private static final int ROOM = 6;

    @TempDir Path root;

    private final AtomicLong days = new AtomicLong();
    private final InstantSource clock = () -> Instant.now().plus(Duration.ofDays(days.get()));

    private BlockStore open() {
        return BlockStore.open(
                StoreDriver.config(root).withQuota(ROOM * FILE, 1, 1),
                FileCalls.ofPlatform(),
                new Recency(60_000, clock, System::nanoTime));
    }

    private static List<BlockKey> keys(String name, int count) {
        return IntStream.range(0, count).mapToObj(i -> BlockKey.of(name + i, i)).toList();
    }

    private static void save(BlockStore store, List<BlockKey> keys) {
        for (var key : keys) {
            assertThat(new StoreDriver(store).save(key, block(1, 100)))
                    .isEqualTo(BlockResult.Done.STORED);
        }
    }

    /// Also where one process has not seen the file yet, and where its use is a load, which asks
    /// for no file time by itself.
    @ParameterizedTest
    @ValueSource(strings = {"lookup", "load"})
    void oneOfTheProcessesThatUseAFileInAnIntervalWritesItsTime(String use) {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        var config = StoreDriver.looking(StoreDriver.config(root));
        var key = BlockKey.of("k", 3);
        var start = Instant.now();
        InstantSource stopped = () -> start.plus(Duration.ofDays(days.get()));
        try (var saver = BlockStore.open(config, calls, new Recency(60_000, stopped, () -> 0));
                var knows = BlockStore.open(config, calls, new Recency(60_000, stopped, () -> 0));
                var knowsNot =
                        BlockStore.open(config, calls, new Recency(60_000, stopped, () -> 0))) {
            save(saver, List.of(key));
            knows.core().scan();
            for (int day = 0; day < 3; day++) {
                int before = timesSet(calls);
                for (var store : List.of(knows, saver, knowsNot, knows)) {
                    use(store, key, use);
                }
                assertThat(timesSet(calls) - before).as("day %d", day).isEqualTo(day == 0 ? 0 : 1);
                days.incrementAndGet();
            }
        }
    }

    private static void use(BlockStore store, BlockKey key, String use) {
        var driver = new StoreDriver(store);
        switch (use) {
            case "lookup" -> assertThat(driver.locate(List.of(key))).isEqualTo(1);
            default ->
                    assertThat(driver.load(key, StoreDriver.empty(100)))
                            .isEqualTo(BlockResult.Done.LOADED);
        }
    }

    private static int timesSet(FaultInjectingCalls calls) {
        return Collections.frequency(calls.log, "setModified");
    }

    private static void awaitNextMilli() {
        long now = System.nanoTime();
        while (System.nanoTime() - now < 2_000_000) {
            Thread.onSpinWait();
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {-30, -1, 0, 1, 30})
    void evictsWhatWasUsedBeforeTheClockWasSet(int step) {
        try (var store = open()) {
            save(store, keys("old", ROOM));
            awaitNextMilli(); // within one the place in the prompt decides
            days.addAndGet(step);
            save(store, keys("new", ROOM));
            assertThat(new StoreDriver(store).locate(keys("new", ROOM))).isEqualTo(ROOM);
            days.addAndGet(-step);
            awaitNextMilli();
            save(store, keys("last", ROOM / 2));
            assertThat(new StoreDriver(store).locate(keys("last", ROOM / 2))).isEqualTo(ROOM / 2);
            assertThat(new StoreDriver(store).locate(keys("new", ROOM)))
                    .as("the end of a prompt goes first")
                    .isEqualTo(ROOM / 2);
        }
    }

    /// What a process left whose clock was ahead is no newer than what is used now.
    @ParameterizedTest
    @ValueSource(ints = {-30, 30})
    void evictsWhatAnotherLifeUsedUnderAnotherClock(int step) {
        days.set(step);
        try (var store = open()) {
            save(store, keys("old", ROOM));
        }
        days.set(0);
        try (var store = open()) {
            save(store, keys("new", ROOM));
            assertThat(new StoreDriver(store).locate(keys("new", ROOM))).isEqualTo(ROOM);
        }
    }

    /// As a process does on a shared file system whose clock is ahead by more than the age of an
    /// unfinished file.
    @Test
    void savesAgainWhenItsUnfinishedFileIsDeleted() {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        var config = StoreDriver.config(root);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var deletions = new AtomicLong();
            calls.hook =
                    (call, _) -> {
                        if (call.equals("publish") && deletions.getAndIncrement() == 0) {
                            deleteTemps(config);
                        }
                        return 0;
                    };
            save(store, keys("k", 1));
            assertThat(deletions.get()).isGreaterThan(1);
            var target = StoreDriver.empty(100);
            assertThat(new StoreDriver(store).load(keys("k", 1).getFirst(), target))
                    .isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(block(1, 100), target)).isTrue();
            assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(config));
        }
    }

    private static void deleteTemps(StoreConfig config) {
        try {
            for (var file : StoreDriver.temps(config)) {
                Files.delete(file);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /// Its unfinished file carries a time that another process, or its own after its clock was set
    /// back, takes for that of a file left over long ago.
    @ParameterizedTest
    @ValueSource(ints = {-30, 30})
    void keepsUnfinishedFilesOfAProcessWithAnotherClock(int step) {
        days.set(step);
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        var config = StoreDriver.config(root).withQuota(FILE, 1, 1);
        try (var store = BlockStore.open(config, calls, new Recency(60_000, clock, () -> 0))) {
            var janitor = new FolderScan(store.core());
            calls.hook =
                    (call, _) -> {
                        if (call.equals("openOver") || call.equals("publish")) {
                            janitor.reapTemps();
                        }
                        return 0;
                    };
            calls.log.clear(); // what opening does
            save(store, keys("a new file ", 1));
            save(store, keys("over its victim ", 1));
            assertThat(calls.log).containsOnlyOnce("createNew", "openOver");
            assertThat(store.stats().reapedTemps()).isZero();
        }
    }

    @Test
    void deletesUnfinishedFilesThatNobodyChangedForLong() throws Exception {
        var config = StoreDriver.config(root);
        try (var store = BlockStore.open(config, StoreListener.NONE, FileCalls.ofPlatform())) {
            var temps = StoreFolder.open(config, FileCalls.ofPlatform()).temps(7);
            var scan = new FolderScan(store.core());
            long now = System.currentTimeMillis();
            long later = now + config.times().tempMaxAge().toMillis() + 60_000;
            for (int day : new int[] {-3, 0, 3}) {
                var left = Files.write(temps.resolve("left"), new byte[10]);
                Files.setLastModifiedTime(
                        left, FileTime.fromMillis(now + Duration.ofDays(day).toMillis()));
                scan.reapTemps(now);
                assertThat(left).as("changed now, of day %d", day).exists();
                scan.reapTemps(later);
                assertThat(left).as("changed long ago, of day %d", day).doesNotExist();
            }
            var left = Files.write(temps.resolve("left"), new byte[10]);
            scan.reapTemps(now - Duration.ofDays(3).toMillis());
            assertThat(left).as("the clock was set back").doesNotExist();
        }
    }
}
