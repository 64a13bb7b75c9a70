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
import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/// D5 and D8 of the disk specification: full, failing, slow and hanging media.
class FaultTest {
    @TempDir Path root;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());

    @ParameterizedTest
    @EnumSource(Durability.class)
    void survivesAFullDiskAtEveryCallOfASave(Durability durability) {
        var config = StoreDriver.config(root).withMedium(durability, DirectIo.OFF);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            BlockKey kept = BlockKey.of("kept");
            driver.save(kept, block(1, 5000));
            long usedBefore = store.stats().usedBytes();
            boolean reachedEnd = false;
            for (int step = 1; !reachedEnd; step++) {
                BlockKey key = BlockKey.of("k" + step);
                long failing = calls.count() + step;
                String[] failed = {""};
                boolean[] published = {false};
                calls.mostPerCall = 1500; // several writes per block
                calls.hook =
                        (call, number) -> {
                            if (number == failing
                                    && !call.matches("status|setModified|tryLock|unlock|read")) {
                                failed[0] = call;
                                return -Errno.ENOSPC;
                            }
                            published[0] |= call.equals("publish");
                            return 0;
                        };
                BlockResult result = driver.save(key, block(step, 5000));
                calls.hook = FaultInjectingCalls.PASS;
                reachedEnd = calls.count() < failing;
                if (!failed[0].isEmpty() && !failed[0].equals("unlink") && !published[0]) {
                    assertThat(result.failedWith(ErrorCode.NO_SPACE))
                            .as("full at %s", failed[0])
                            .isTrue();
                    assertThat(store.stats().usedBytes())
                            .as("full at %s", failed[0])
                            .isEqualTo(usedBefore);
                    assertThat(driver.locate(List.of(key))).isZero();
                } else {
                    if (published[0] && !failed[0].equals("syncFolder")) {
                        assertThat(result).isEqualTo(BlockResult.Done.STORED);
                    }
                    driver.locate(List.of(key));
                    usedBefore = store.stats().usedBytes();
                }
                assertThat(StoreDriver.temps(config)).as("temps after %s", failed[0]).isEmpty();
                assertThat(driver.load(kept, empty(5000))).isEqualTo(BlockResult.Done.LOADED);
            }
            assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(config));
        }
    }

    /// A strict store makes a block durable that it finds; another process evicts it meanwhile.
    @Test
    void savesABlockThatIsEvictedBetweenTwoLooks() {
        BlockKey key = BlockKey.of("k");
        var config = StoreDriver.config(root);
        try (var other =
                BlockStore.open(
                        config.withMedium(Durability.NONE, DirectIo.OFF), StoreListener.NONE)) {
            assertThat(new StoreDriver(other).save(key, block(1, 5000)))
                    .isEqualTo(BlockResult.Done.STORED);
        }
        var strict = config.withMedium(Durability.STRICT, DirectIo.OFF);
        try (var store = BlockStore.open(strict, StoreListener.NONE, calls)) {
            calls.hook =
                    (call, _) -> {
                        if (call.equals("openRead")) {
                            deleteBlocks();
                        }
                        return 0;
                    };
            var driver = new StoreDriver(store);
            assertThat(driver.save(key, block(1, 5000))).isEqualTo(BlockResult.Done.STORED);
            calls.hook = FaultInjectingCalls.PASS;
            var loaded = empty(5000);
            assertThat(driver.load(key, loaded)).isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(block(1, 5000), loaded)).isTrue();
        }
    }

    /// As of an inode that the medium cannot read, until the file is renamed.
    private void failLooks() {
        calls.hook =
                (call, _) -> {
                    if (call.equals("rename")) {
                        calls.hook = FaultInjectingCalls.PASS;
                    }
                    return call.equals("status") ? -Errno.EIO : 0;
                };
    }

    /// By somebody who wanted its room.
    @Test
    void setsAFileAsideAlthoughTheFolderForThatWasDeleted() throws Exception {
        var config = StoreDriver.looking(StoreDriver.config(root));
        BlockKey key = BlockKey.of("k");
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(key, block(1, 5000));
            Files.delete(store.core().folder().bad());
            failLooks();
            assertThat(driver.locate(List.of(key))).isZero();
            assertThat(StoreDriver.file(config, key)).doesNotExist();
            assertThat(store.core().folder().bad()).isNotEmptyDirectory();
            assertThat(driver.save(key, block(2, 5000))).isEqualTo(BlockResult.Done.STORED);
        }
    }

    /// It cannot be set aside, and must not be promised either.
    @Test
    void missesAFileThatCannotBeSetAside() throws Exception {
        var config = StoreDriver.looking(StoreDriver.config(root));
        BlockKey key = BlockKey.of("k");
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(key, block(1, 5000));
            Files.delete(store.core().folder().bad());
            calls.hook =
                    (call, _) ->
                            switch (call) {
                                case "read", "readCached" -> -Errno.EIO;
                                case "makeFolder" -> -Errno.ENOSPC;
                                default -> 0;
                            };
            assertThat(driver.load(key, empty(5000)).failedWith(ErrorCode.STORAGE_IO)).isTrue();
            assertThat(driver.locate(List.of(key))).isZero();
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(driver.save(key, block(2, 5000))).isEqualTo(BlockResult.Done.STORED);
            assertThat(driver.locate(List.of(key))).isEqualTo(1);
        }
    }

    @Test
    void setsAFileAsideThatALookupCannotLookAt() {
        var config = StoreDriver.looking(StoreDriver.config(root));
        BlockKey key = BlockKey.of("k");
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(key, block(1, 5000));
            failLooks();
            assertThat(driver.locate(List.of(key))).isZero();
            assertThat(StoreDriver.file(config, key)).doesNotExist();
            assertThat(store.core().folder().bad()).isNotEmptyDirectory();
            assertThat(store.stats().usedBytes()).isZero();
            assertThat(driver.save(key, block(2, 5000))).isEqualTo(BlockResult.Done.STORED);
            assertThat(driver.locate(List.of(key))).isEqualTo(1);
            store.clear();
            assertThat(store.core().folder().bad()).as("cleared, too").isEmptyDirectory();
        }
    }

    private static void saveOne(BlockStore store, BlockKey key) {
        assertThat(new StoreDriver(store).save(key, block(1, 5000)))
                .isEqualTo(BlockResult.Done.STORED);
    }

    /// Such as on a network file system while its server is away. Of a file that it does not know
    /// the store cannot tell whether it was ever there.
    @ParameterizedTest
    @ValueSource(ints = {Errno.EIO, Errno.EACCES})
    void findsABlockOfAnotherProcessOnceItCanBeLookedAt(int errno) {
        var config = StoreDriver.looking(StoreDriver.config(root));
        BlockKey key = BlockKey.of("k");
        try (var store = BlockStore.open(config, StoreListener.NONE, calls);
                var other = BlockStore.open(config, StoreListener.NONE)) {
            saveOne(other, key);
            var driver = new StoreDriver(store);
            calls.hook = (call, _) -> call.matches("status|rename") ? -errno : 0;
            assertThat(driver.locate(List.of(key))).isZero();
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(driver.locate(List.of(key))).isEqualTo(1);
        }
    }

    /// As of a device that drops out for a moment: the file can be neither looked at nor set aside,
    /// and is well.
    @ParameterizedTest
    @ValueSource(ints = {Errno.EIO, Errno.EACCES})
    void findsABlockThatItKnewOnceItCanBeLookedAtAgain(int errno) {
        var config = suppressing(Duration.ofMillis(20));
        BlockKey key = BlockKey.of("k");
        try (var store = BlockStore.open(config, StoreListener.NONE, calls);
                var other = BlockStore.open(config, StoreListener.NONE)) {
            saveOne(other, key);
            var driver = new StoreDriver(store);
            assertThat(driver.locate(List.of(key))).isEqualTo(1);
            calls.hook = (call, _) -> call.matches("status|rename") ? -errno : 0;
            assertThat(driver.locate(List.of(key))).isZero();
            calls.hook = FaultInjectingCalls.PASS;
            var limit = Deadline.in(StoreDriver.PATIENCE);
            int found = 0;
            while (found == 0 && !limit.passed()) { // the suppression lasts a while
                found = driver.locate(List.of(key));
            }
            assertThat(found).isEqualTo(1);
            assertThat(driver.load(key, empty(5000))).isEqualTo(BlockResult.Done.LOADED);
        }
    }

    /// Each lookup asks the file system, except while the block is suppressed.
    private StoreConfig suppressing(Duration suppression) {
        var config = StoreDriver.looking(StoreDriver.config(root));
        var times = config.times();
        return config.with(
                new StoreConfig.Times(
                        times.io(),
                        times.verifyAfter(),
                        times.tempMaxAge(),
                        times.scanInterval(),
                        times.recency(),
                        suppression));
    }

    /// A network file system says so of a file that another host has replaced meanwhile.
    @ParameterizedTest
    @ValueSource(strings = {"openRead", "read"})
    void missesABlockWhoseFileIsStaleAndFindsTheNewOne(String call) {
        var config =
                StoreDriver.looking(StoreDriver.config(root))
                        .withMedium(Durability.NONE, DirectIo.OFF);
        BlockKey key = BlockKey.of("k");
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(key, block(1, 5000));
            calls.hook = (each, _) -> each.equals(call) ? -Errno.ESTALE : 0;
            assertThat(driver.load(key, empty(5000)).failedWith(ErrorCode.MISS)).isTrue();
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(driver.locate(List.of(key))).isEqualTo(1);
            assertThat(driver.load(key, empty(5000))).isEqualTo(BlockResult.Done.LOADED);
        }
    }

    @Test
    void replacesAFileThatASaveCannotLookAt() {
        var config = StoreDriver.config(root);
        BlockKey key = BlockKey.of("k");
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(key, block(1, 5000));
            failLooks();
            assertThat(driver.save(key, block(2, 5000))).isEqualTo(BlockResult.Done.STORED);
            var loaded = empty(5000);
            assertThat(driver.load(key, loaded)).isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(block(2, 5000), loaded)).isTrue();
            assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(config));
        }
    }

    /// Not even renamed: the save says what the medium said.
    @Test
    void namesTheCauseWhenAFileCanBeNeitherLookedAtNorSetAside() {
        BlockKey key = BlockKey.of("k");
        try (var store = BlockStore.open(StoreDriver.config(root), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(key, block(1, 5000));
            calls.hook = (call, _) -> call.matches("status|rename|unlink") ? -Errno.EIO : 0;
            assertThat(driver.save(key, block(2, 5000)))
                    .isInstanceOfSatisfying(
                            BlockResult.Failed.class,
                            failed ->
                                    assertThat(failed.failure().message()).endsWith("failed: EIO"));
            calls.hook = FaultInjectingCalls.PASS;
        }
    }

    private void deleteBlocks() {
        try (var files = Files.walk(root)) {
            for (var file : files.filter(f -> f.toString().contains("/blocks/")).toList()) {
                if (Files.isRegularFile(file)) {
                    Files.delete(file);
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Test
    void goesOnAfterShortWritesShortReadsAndInterrupts() {
        var config = StoreDriver.config(root).withMedium(Durability.NONE, DirectIo.OFF);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            calls.mostPerCall = 777;
            calls.hook =
                    (call, number) ->
                            call.matches("read|write") && number % 3 == 0 ? -Errno.EINTR : 0;
            var driver = new StoreDriver(store);
            List<MemorySegment> saved = block(4, 9000, 3);
            List<MemorySegment> loaded = empty(9000, 3);
            assertThat(driver.save(BlockKey.of("k"), saved)).isEqualTo(BlockResult.Done.STORED);
            assertThat(driver.load(BlockKey.of("k"), loaded)).isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(saved, loaded)).isTrue();
        }
    }

    @ParameterizedTest
    @CsvSource({
        // ranges of one call, bytes of one call, bytes of each segment, segments
        "1024, 0, 40000, 3",
        "1024, 0, 262144, 1",
        "1024, 0, 300001, 5",
        "1024, 7777, 100001, 7",
        "3, 0, 5000, 9",
        "3, 777, 5000, 4",
        "1024, 0, 0, 2",
        "0, 0, 300001, 2"
    })
    void savesFromSegmentsOfAnyNumberAndSizeInCallsOfAnyLength(
            int rangesPerCall, long bytesPerCall, long segmentBytes, int segments) {
        var config = StoreDriver.config(root).withMedium(Durability.NONE, DirectIo.OFF);
        calls.gatherLimit = rangesPerCall;
        calls.mostPerCall = bytesPerCall == 0 ? Long.MAX_VALUE : bytesPerCall;
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            long[] sizes = new long[segments];
            Arrays.fill(sizes, segmentBytes);
            List<MemorySegment> saved = block(4, sizes);
            List<MemorySegment> loaded = empty(sizes);
            for (String key : List.of("first", "again")) {
                assertThat(driver.save(BlockKey.of(key), saved)).isEqualTo(BlockResult.Done.STORED);
                assertThat(driver.load(BlockKey.of(key), loaded))
                        .isEqualTo(BlockResult.Done.LOADED);
                assertThat(StoreDriver.same(saved, loaded)).isTrue();
            }
            assertThat(StoreDriver.temps(config)).isEmpty();
        }
    }

    @Test
    void refusesToSaveFromMemoryThatIsGone() {
        var config = StoreDriver.config(root).withMedium(Durability.NONE, DirectIo.OFF);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            MemorySegment gone;
            try (Arena arena = Arena.ofShared()) {
                gone = arena.allocate(1000);
            }
            assertThat(driver.save(BlockKey.of("k"), List.of(gone)))
                    .isInstanceOf(BlockResult.Failed.class);
            assertThat(driver.locate(List.of(BlockKey.of("k")))).isZero();
            assertThat(StoreDriver.temps(config)).isEmpty();
            assertThat(store.stats().usedBytes()).isZero();
        }
    }

    @Test
    void setsABlockAsideThatTheMediumCannotReadAndTakesItAnew() {
        try (var store = BlockStore.open(StoreDriver.config(root), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            BlockKey key = BlockKey.of("k");
            driver.save(key, block(1, 100));
            calls.hook = (call, _) -> call.equals("read") ? -Errno.EIO : 0;
            assertThat(driver.load(key, empty(100)).failedWith(ErrorCode.STORAGE_IO)).isTrue();
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(driver.locate(List.of(key))).as("not promised again").isZero();
            assertThat(store.stats().usedBytes()).isZero();
            assertThat(driver.save(key, block(1, 100))).isEqualTo(BlockResult.Done.STORED);
            assertThat(driver.load(key, empty(100))).isEqualTo(BlockResult.Done.LOADED);
        }
    }

    @Test
    void missesABlockForAWhileWhenItsReadFailsForLackOfResources() {
        try (var store = BlockStore.open(StoreDriver.config(root), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            BlockKey key = BlockKey.of("k");
            driver.save(key, block(1, 100));
            calls.hook = (call, _) -> call.equals("openRead") ? -Errno.ENOMEM : 0;
            long began = System.nanoTime();
            assertThat(driver.load(key, empty(100)).failedWith(ErrorCode.STORAGE_IO)).isTrue();
            calls.hook = FaultInjectingCalls.PASS;
            int found = driver.locate(List.of(key));
            if (System.nanoTime() - began
                    < StoreConfig.Times.DEFAULT_SUPPRESSION.toNanos()) { // else it is over
                assertThat(found).isZero();
            }
            assertThat(driver.load(key, empty(100))).isEqualTo(BlockResult.Done.LOADED);
            assertThat(driver.locate(List.of(key))).isEqualTo(1);
        }
    }

    @ParameterizedTest
    @CsvSource({"posix,fifo", "posix,link", "posix,folder", "channel,fifo", "channel,link"})
    void takesNothingButARegularFileForABlock(String kind, String obstacle) throws Exception {
        FileCalls files = kind.equals("posix") ? FileCalls.ofPlatform() : FileCalls.ofChannels();
        var config = StoreDriver.config(root);
        try (var store = BlockStore.open(config, StoreListener.NONE, files)) {
            var driver = new StoreDriver(store);
            BlockKey key = BlockKey.of("k");
            driver.save(key, block(1, 100));
            Path file = StoreDriver.file(config, key);
            Path elsewhere = Files.move(file, root.resolve("elsewhere"));
            switch (obstacle) {
                case "fifo" -> {
                    var mkfifo = new ProcessBuilder("mkfifo", file.toString()).start();
                    assertThat(mkfifo.waitFor()).isZero();
                }
                case "link" -> Files.createSymbolicLink(file, elsewhere);
                default -> Files.createDirectory(file);
            }
            // Nobody writes to the FIFO, so that an ordinary open of it would wait for ever.
            assertThat(driver.load(key, empty(100), Duration.ofSeconds(20)))
                    .isInstanceOfSatisfying(
                            BlockResult.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.CORRUPT));
            assertThat(driver.locate(List.of(key))).isZero();
            BlockResult again = driver.save(key, block(1, 100));
            if (obstacle.equals("folder")) {
                assertThat(again.failedWith(ErrorCode.STORAGE_IO)).as("%s", again).isTrue();
            } else {
                assertThat(again).isEqualTo(BlockResult.Done.STORED);
                assertThat(driver.load(key, empty(100))).isEqualTo(BlockResult.Done.LOADED);
            }
        }
    }

    @Test
    void keepsItsThreadsWhateverACallbackThrows() throws Exception {
        var config = StoreDriver.config(root).with(new StoreConfig.Pools(1, 1, 8));
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(BlockKey.of("k"), block(1, 100));
            for (int i = 0; i < 4; i++) {
                var called = new CountDownLatch(1);
                store.load(
                        BlockKey.of("k"),
                        empty(100),
                        Deadline.in(StoreDriver.PATIENCE),
                        (_, _) -> {
                            called.countDown();
                            throw new AssertionError("a defect of the caller");
                        },
                        0);
                assertThat(called.await(30, TimeUnit.SECONDS)).isTrue();
            }
            assertThat(driver.load(BlockKey.of("k"), empty(100)))
                    .isEqualTo(BlockResult.Done.LOADED);
        }
    }

    @Test
    void keepsItsStagingWhenALargerOneCannotBeHad() {
        try (var staging = new AlignedStaging(4096)) {
            assertThatThrownBy(() -> staging.ensure(1L << 46)).isInstanceOf(OutOfMemoryError.class);
            staging.ensure(4096);
            staging.memory().set(ValueLayout.JAVA_BYTE, 4095, (byte) 1);
            staging.ensure(8192);
            assertThat(staging.memory().byteSize()).isEqualTo(8192);
        }
    }

    @Test
    void opensAgainAfterErrorsAndLeavesNoThread() throws Exception {
        for (int i = 0; i < 3; i++) {
            var before = threads();
            try (var store = BlockStore.open(StoreDriver.config(root), StoreListener.NONE, calls)) {
                var driver = new StoreDriver(store);
                driver.save(BlockKey.of("k"), block(1, 5000));
                calls.hook =
                        (call, _) -> {
                            if (call.equals("read")) {
                                throw new LinkageError("scripted");
                            }
                            return 0;
                        };
                for (int load = 0; load < 8; load++) { // more than there are threads
                    assertThat(driver.load(BlockKey.of("k"), empty(5000)))
                            .isInstanceOf(BlockResult.Failed.class);
                }
                calls.hook = FaultInjectingCalls.PASS;
                var loaded = empty(5000);
                assertThat(driver.load(BlockKey.of("k"), loaded))
                        .isEqualTo(BlockResult.Done.LOADED);
                assertThat(StoreDriver.same(block(1, 5000), loaded)).isTrue();
            }
            assertThat(threads()).isSubsetOf(before);
        }
    }

    private static List<Thread> threads() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().startsWith("disk-"))
                .toList();
    }
}
