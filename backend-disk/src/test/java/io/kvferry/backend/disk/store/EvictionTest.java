// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;

/// Which blocks go when room is needed, and how many.
class EvictionTest {
    private static final long FILE = 8192; // header and payload of a small block
    private static final int LENGTH = 8;

    @TempDir Path root;

    private StoreConfig config(int files, double low, double high) {
        return StoreDriver.config(root).withQuota(files * FILE, low, high);
    }

    /// A store that shares nothing with the other ones of this process.
    private static BlockStore open(StoreConfig config) {
        return BlockStore.open(config, StoreListener.NONE, FileCalls.ofPlatform());
    }

    private static List<BlockKey> prompt(String name) {
        return IntStream.range(0, LENGTH).mapToObj(i -> BlockKey.of(name + i, i)).toList();
    }

    private static void save(BlockStore store, List<BlockKey> keys) {
        for (int i = 0; i < keys.size(); i++) {
            assertThat(new StoreDriver(store).save(keys.get(i), StoreDriver.block(i, 100)))
                    .isEqualTo(BlockResult.Done.STORED);
        }
    }

    private static void use(BlockStore store, List<BlockKey> keys) {
        assertThat(new StoreDriver(store).locate(keys)).isEqualTo(keys.size());
    }

    /// Blocks of the prompt that are on disk, and how many of them a lookup can use.
    private static void assertUsable(BlockStore store, List<BlockKey> keys, int blocks) {
        var left = keys.stream().filter(key -> there(store, key)).toList();
        assertThat(left).hasSize(blocks);
        assertThat(new StoreDriver(store).locate(keys)).isEqualTo(blocks);
    }

    private static boolean there(BlockStore store, BlockKey key) {
        return Files.exists(StoreDriver.file(store.config(), key));
    }

    @Test
    void evictsTheEndOfAPromptFirst() {
        try (var store = open(config(LENGTH, 1, 1))) {
            var prompt = prompt("p");
            save(store, prompt);
            use(store, prompt);
            save(store, prompt("q").subList(0, 3));
            assertUsable(store, prompt, LENGTH - 3);
        }
    }

    @Test
    void evictsTheEndOfAPromptFirstAfterARestart() {
        var prompt = prompt("p");
        try (var store = open(config(LENGTH, 1, 1))) {
            save(store, prompt);
            use(store, prompt);
        }
        try (var store = open(config(LENGTH, 1, 1))) {
            save(store, prompt("q").subList(0, 3));
            assertUsable(store, prompt, LENGTH - 3);
        }
    }

    @Test
    void goesByWhatAnotherProcessUsed() {
        var times =
                new StoreConfig.Times(
                        StoreDriver.PATIENCE,
                        Duration.ZERO,
                        Duration.ofMinutes(1),
                        Duration.ofHours(1),
                        Duration.ofMillis(1));
        var config = config(2 * LENGTH, 1, 1).with(times);
        var old = prompt("old");
        var young = prompt("young");
        try (var one = open(config)) {
            save(one, old);
            save(one, young);
            use(one, young);
            try (var other = open(config)) {
                use(other, old); // the first process does not hear of this
            }
            save(one, prompt("new").subList(0, 4));
            assertUsable(one, old, LENGTH);
            assertUsable(one, young, LENGTH - 4);
        }
    }

    @Test
    void writesTheFileTimeOnceAnInterval() throws Exception {
        try (var store = open(config(LENGTH, 1, 1))) {
            var prompt = prompt("p");
            save(store, prompt);
            var file = StoreDriver.file(store.config(), prompt.getFirst());
            var before = Files.getLastModifiedTime(file);
            var now = Instant.now();
            assertThat(before.toInstant()).isBetween(now.minusSeconds(60), now.plusSeconds(61));
            use(store, prompt);
            use(store, prompt);
            var after = Files.getLastModifiedTime(file);
            // Another minute may have begun; in the same one nothing is written.
            assertThat(after.toMillis() - before.toMillis()).isIn(0L, 60_000L);
        }
    }

    /// Also where the time of an open file cannot be set.
    @ParameterizedTest
    @ValueSource(strings = {"posix", "channel"})
    void filesCarryTheTimeOfUseAndThePlaceInThePrompt(String kind) throws Exception {
        FileCalls calls = kind.equals("posix") ? FileCalls.ofPlatform() : FileCalls.ofChannels();
        long begun = System.currentTimeMillis();
        try (var store = BlockStore.open(config(1, 1, 1), StoreListener.NONE, calls)) {
            for (int depth : new int[] {5, 700}) { // the second is written over the first
                var key = BlockKey.of("k" + depth, depth);
                save(store, List.of(key));
                long time =
                        Files.getLastModifiedTime(StoreDriver.file(store.config(), key))
                                .to(TimeUnit.NANOSECONDS);
                assertThat(time / 1_000_000 % 60_000).as("the end of a minute").isZero();
                assertThat(time / 1_000_000).isGreaterThan(begun);
                assertThat(time % 1_000_000).isEqualTo(999_999 - depth);
            }
        }
    }

    @Test
    void savesAnEvictedBlockAgainAtOnce() {
        try (var store = open(config(LENGTH, 1, 1))) {
            var prompt = prompt("p");
            save(store, prompt);
            use(store, prompt);
            save(store, prompt("q").subList(0, 1));
            var gone = prompt.getLast();
            assertThat(store.mayContain(gone)).isFalse();
            save(store, List.of(gone));
            assertThat(there(store, gone)).isTrue();
        }
    }

    /// Its file is still there when the lookup comes, and gone when the block would be loaded.
    @Test
    void promisesNoBlockWhoseEvictionIsUnderWay() throws Exception {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        var config = config(2, 1, 1);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var oldest = BlockKey.of("oldest");
            save(store, List.of(oldest));
            save(store, List.of(BlockKey.of("newer")));
            var found = new CompletableFuture<Integer>();
            calls.hook =
                    (call, _) -> {
                        if (call.matches("unlink|rename") && !found.isDone()) {
                            found.complete(new StoreDriver(store).locate(List.of(oldest)));
                        }
                        return 0;
                    };
            save(store, List.of(BlockKey.of("newest")));
            assertThat(found.get(40, TimeUnit.SECONDS)).isZero();
        }
    }

    /// A lookup finds its blocks one by one, and then notes that they are in use.
    @Test
    void promisesNoBlockThatIsEvictedBeforeTheLookupIsOver() {
        var keys = prompt("p");
        for (int gone = 0; gone < keys.size(); gone++) {
            var evicted = keys.get(gone);
            var search = new KeySearch(keys);
            assertThat(
                            search.search(
                                    new BlockSearch.Finder() {
                                        @Override
                                        public boolean isThere(BlockKey key) {
                                            return true;
                                        }

                                        @Override
                                        public boolean isStillThere(BlockKey key) {
                                            return true;
                                        }

                                        @Override
                                        public boolean use(BlockKey key) {
                                            return !key.equals(evicted);
                                        }
                                    }))
                    .isEqualTo(gone);
        }
    }

    @Test
    void severalProcessesNeverEvictMoreThanOneWould() throws Exception {
        int files = 400;
        var config = config(files, 0.5, 0.9);
        var stores = new ArrayList<BlockStore>();
        try {
            // Filled to the top by a process that never evicts.
            try (var writer = open(config(files, 1, 1))) {
                for (int i = 0; i < files; i++) {
                    save(writer, List.of(BlockKey.of("k" + i)));
                }
            }
            // Each finds the store above the high watermark and begins to evict by itself.
            for (int i = 0; i < 4; i++) {
                stores.add(open(config));
            }
            await(() -> blocks(config) <= files / 2);
            for (var store :
                    stores) { // who has deleted a file counts it before the next one's turn
                assertThat(store.core().evictor().pause(deadline())).isTrue();
                store.core().evictor().resume();
            }
            for (var store : stores) {
                store.core().evictor().evictToLowWatermark();
                store.core().scan();
            }
            assertThat(blocks(config)).isEqualTo(files / 2);
            for (var store : stores) {
                assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(config));
            }
            long evicted = stores.stream().mapToLong(store -> store.stats().evicted()).sum();
            assertThat(evicted).isEqualTo(files / 2);
        } finally {
            stores.forEach(BlockStore::close);
        }
    }

    /// A save that evicts learns that another process has evicted too, but scans later. A
    /// background eviction in between must not rely on the outdated catalog.
    @Test
    void evictsNoMoreThanIsLeftToEvictAfterAnotherProcessDid() {
        int files = 10;
        var config = config(files, 0.5, 1);
        var old = IntStream.range(0, 3).mapToObj(i -> BlockKey.of("old" + i)).toList();
        try (var one = open(config)) {
            save(one, old);
            for (int i = old.size(); i < files; i++) {
                save(one, List.of(BlockKey.of("k" + i)));
            }
            try (var other = open(config)) {
                use(one, old); // which the other process does not hear of within the minute
                assertThat(other.core().evictor().free(old.size() * FILE, deadline())).isTrue();
            }
            save(one, List.of(BlockKey.of("new")));
            one.core().evictor().evictToLowWatermark();
            assertThat(blocks(config)).isEqualTo(files / 2);
        }
    }

    private static long deadline() {
        return System.nanoTime() + StoreDriver.PATIENCE.toNanos();
    }

    /// Each replaces what it saves, or deletes down to the low watermark.
    @ParameterizedTest
    @EnumSource(
            value = Durability.class,
            names = {"NONE", "DATA"})
    @Timeout(900)
    void childProcessesNeverEvictMoreThanOneWould(Durability durability) throws Exception {
        int saves = 60;
        var children = new ArrayList<Process>();
        try {
            for (int i = 0; i < 3; i++) {
                children.add(
                        StoreChild.start(
                                root, durability, DirectIo.OFF, "fill", 1000L * i + saves));
            }
            long stored = 0;
            long evicted = 0;
            for (var child : children) {
                var words = child.inputReader(StandardCharsets.UTF_8).readLine().split(" ");
                stored += Long.parseLong(words[0]);
                evicted += Long.parseLong(words[1]);
                assertThat(child.waitFor(60, TimeUnit.SECONDS)).isTrue();
            }
            var config = StoreChild.config(root, durability, DirectIo.OFF);
            var space = config.space();
            long left = StoreDriver.diskBytes(config) / StoreChild.FILE_BYTES;
            assertThat(stored).isEqualTo(3L * saves);
            assertThat(evicted).isEqualTo(stored - left);
            assertThat(left)
                    .as("files left")
                    .isGreaterThanOrEqualTo(
                            (long) (space.quotaBytes() * space.lowWatermark())
                                    / StoreChild.FILE_BYTES);
        } finally {
            children.forEach(Process::destroyForcibly);
        }
    }

    private static long blocks(StoreConfig config) {
        return StoreDriver.diskBytes(config) / FILE;
    }

    private static void await(java.util.function.BooleanSupplier condition) throws Exception {
        long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        while (!condition.getAsBoolean()) {
            assertThat(System.nanoTime()).as("deadline").isLessThan(end);
            LockSupport.parkNanos(5_000_000);
        }
    }

    @Test
    void replacesNoMoreThanASaveNeedsWhenAnotherProgramFillsTheDisk() throws Exception {
        var prompt = prompt("p");
        try (var store = open(config(100, 1, 1))) {
            save(store, prompt);
        }
        long usable = Files.getFileStore(root).getUsableSpace();
        // As if another program had taken all but less than the reserve.
        try (var store = open(config(100, 1, 1).withReserveBytes(usable + (1L << 40)))) {
            for (int i = 0; i < 3; i++) {
                save(store, List.of(BlockKey.of("new" + i)));
                assertThat(store.stats().blocks()).as("as many as before").isEqualTo(LENGTH);
            }
            assertThat(store.stats().evicted()).isEqualTo(3);
            store.clear();
            var result =
                    new StoreDriver(store).save(BlockKey.of("last"), StoreDriver.block(1, 100));
            assertThat(result.failedWith(ErrorCode.NO_SPACE)).as("%s", result).isTrue();
        }
    }

    /// A file that another process deleted made no room when this process noticed it.
    @Test
    void countsNoFileThatAnotherProcessDeletedForFreedSpace() throws Exception {
        var prompt = prompt("p");
        var config = config(100, 1, 1);
        long usable = Files.getFileStore(root).getUsableSpace();
        try (var other = open(config)) {
            save(other, prompt);
            try (var store = open(config.withReserveBytes(usable + (1L << 40)))) {
                assertThat(store.stats().blocks()).isEqualTo(LENGTH);
                assertThat(other.core().evictor().free(LENGTH * FILE, deadline())).isTrue();
                assertThat(blocks(config)).isZero();
                var result =
                        new StoreDriver(store).save(BlockKey.of("new"), StoreDriver.block(1, 100));
                assertThat(result.failedWith(ErrorCode.NO_SPACE)).as("%s", result).isTrue();
                assertThat(blocks(config)).isZero();
                assertThat(store.stats().evicted()).isZero();
            }
        }
    }

    @Test
    void storesOfOneProcessKnowWhatTheOthersSavedWithoutALook() {
        var config = StoreDriver.config(root);
        try (var one = BlockStore.open(config, StoreListener.NONE);
                var other =
                        BlockStore.open(
                                config.with(new StoreConfig.Pools(1, 1, 8)), StoreListener.NONE)) {
            save(one, prompt("p"));
            assertThat(prompt("p")).allMatch(other::mayContain);
            assertThat(one.stats().usedBytes()).isEqualTo(other.stats().usedBytes());
        }
    }

    /// It may be gone by the time that this one looks whether others have the folder open.
    @Test
    void knowsItsBytesAfterAnotherProcessHasEvictedAndLeft() throws Exception {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        var config = config(2 * LENGTH, 1, 1);
        try (var one = BlockStore.open(config, StoreListener.NONE, calls)) {
            save(one, prompt("a"));
            save(one, prompt("b"));
            awaitQuiet(calls);
            try (var other = open(config)) {
                save(other, prompt("c"));
            }
            save(one, prompt("d")); // evicts files that are gone, too
            StoreDriver.assertKnowsItsBytes(one);
        }
    }

    /// Until there were no calls for a second: the look that its own writes ask for is over.
    private static void awaitQuiet(FaultInjectingCalls calls) throws InterruptedException {
        long before;
        do {
            before = calls.count();
            Thread.sleep(1_000);
        } while (calls.count() != before);
    }

    /// Such as for lack of memory, in the middle of a deletion.
    @Test
    void seesTheFileOfAnotherProcessThatItEvictedItselfAfterADeletionThatThrew() {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        var config = config(LENGTH, 1, 1);
        try (var one = BlockStore.open(config, StoreListener.NONE, calls)) {
            save(one, prompt("first"));
            calls.hook =
                    (call, _) -> {
                        if (call.equals("unlink")) {
                            throw new OutOfMemoryError("of a test");
                        }
                        return 0;
                    };
            new StoreDriver(one).save(BlockKey.of("large"), StoreDriver.block(1, 5000));
            calls.hook = FaultInjectingCalls.PASS;
            one.core().scan();
            var prompt = prompt("second");
            save(one, prompt);
            save(one, List.of(BlockKey.of("one more")));
            var evicted = prompt.stream().filter(key -> !there(one, key)).toList();
            assertThat(evicted).as("the last eviction").hasSize(1);
            try (var other = open(config)) {
                save(other, evicted);
            }
            assertThat(new StoreDriver(one).locate(evicted)).isEqualTo(1);
        }
    }

    /// As with a quota of the user, or without inodes.
    @Test
    void replacesABlockWhereTheFileSystemIsFullThoughItHasRoom() {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        var config = config(4 * LENGTH, 1, 1).withReserveBytes(1);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var prompt = prompt("p");
            save(store, prompt);
            use(store, prompt);
            calls.log.clear();
            calls.hook =
                    (call, _) ->
                            call.equals("createNew") && !calls.log.contains("unlink")
                                    ? -Errno.EDQUOT
                                    : 0;
            save(store, prompt("q").subList(0, 1));
            assertThat(store.stats().evicted()).isEqualTo(1);
            assertUsable(store, prompt, LENGTH - 1);
        }
    }

    @Test
    void keepsItsBlocksWhereDeletingThemMakesNoRoom() {
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        var config = config(4 * LENGTH, 1, 1).withReserveBytes(1);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            var prompt = prompt("p");
            save(store, prompt);
            for (int outage = 1; outage <= 2; outage++) {
                calls.hook = (call, _) -> call.equals("createNew") ? -Errno.ENOSPC : 0;
                for (var key : prompt("q")) {
                    assertThat(driver.save(key, StoreDriver.block(1, 100)))
                            .matches(result -> result.failedWith(ErrorCode.NO_SPACE));
                }
                assertThat(store.stats().evicted()).isEqualTo(2 * outage);
                calls.hook = FaultInjectingCalls.PASS;
                save(store, prompt("r" + outage).subList(0, 1));
            }
            assertThat(store.stats().blocks()).isEqualTo(LENGTH - 2);
        }
    }

    /// Another process has used all of them since this one looked.
    @Test
    void looksAtFewFilesBeforeOthersMayTakeTheLock() throws Exception {
        int files = 300;
        var calls = new FaultInjectingCalls(FileCalls.ofPlatform());
        try (var store = BlockStore.open(config(files, 1, 1), StoreListener.NONE, calls)) {
            var keys = IntStream.range(0, files).mapToObj(i -> BlockKey.of("k" + i)).toList();
            save(store, keys);
            var used = FileTime.from(Instant.now().plusSeconds(120));
            for (var key : keys) {
                Files.setLastModifiedTime(StoreDriver.file(store.config(), key), used);
            }
            calls.log.clear();
            save(store, prompt("new").subList(0, 1));
            assertThat(store.stats().evicted()).isEqualTo(1);
            int most = 0;
            int looks = 0;
            for (var call : calls.log) {
                looks = call.equals("status") ? looks + 1 : call.equals("tryLock") ? 0 : looks;
                most = Math.max(most, looks);
            }
            assertThat(calls.log.stream().filter("status"::equals).count()).isGreaterThan(files);
            assertThat(most).isBetween(1, 80);
        }
    }
}
