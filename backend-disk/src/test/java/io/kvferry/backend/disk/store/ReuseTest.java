// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static io.kvferry.backend.disk.store.StoreDriver.block;
import static io.kvferry.backend.disk.store.StoreDriver.empty;

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
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/// A save at the quota writes over the file of the block that it evicts.
class ReuseTest {
    private static final long BYTES = 2_600_000; // several pieces
    private static final long FILE = 4096 + 2_600_960;
    private static final BlockKey OLD = BlockKey.of("old");
    private static final BlockKey NEW = BlockKey.of("new");

    @TempDir Path root;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());

    private StoreConfig config(DirectIo direct) {
        return StoreDriver.config(root).withMedium(Durability.DATA, direct).withQuota(FILE, 1, 1);
    }

    private static void assertLoads(BlockStore store, BlockKey key, List<MemorySegment> expected) {
        var target = empty(expected.getFirst().byteSize());
        assertThat(new StoreDriver(store).load(key, target)).isEqualTo(BlockResult.Done.LOADED);
        assertThat(StoreDriver.same(expected, target)).isTrue();
    }

    @ParameterizedTest
    @EnumSource(DirectIo.class)
    void makesAndDeletesNoFile(DirectIo direct) {
        try (var store = BlockStore.open(config(direct), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            assertThat(driver.save(OLD, block(1, BYTES))).isEqualTo(BlockResult.Done.STORED);
            calls.log.clear();
            assertThat(driver.save(NEW, block(2, BYTES))).isEqualTo(BlockResult.Done.STORED);
            assertThat(calls.log).contains("openOver").doesNotContain("createNew", "unlink");
            assertLoads(store, NEW, block(2, BYTES));
            assertThat(driver.load(OLD, empty(BYTES)).failedWith(ErrorCode.MISS)).isTrue();
            assertThat(store.stats().evicted()).isEqualTo(1);
            assertThat(store.stats().usedBytes()).isEqualTo(FILE);
            assertThat(StoreDriver.diskBytes(store.config())).isEqualTo(FILE);
            assertThat(StoreDriver.temps(store.config())).isEmpty();
        }
    }

    /// Otherwise another save takes the room, and this one deletes a second file to make room
    /// again.
    @Test
    void leavesTheRoomOfItsVictimToNobodyElse() {
        try (var store = BlockStore.open(config(DirectIo.OFF), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            assertThat(driver.save(OLD, block(1, BYTES))).isEqualTo(BlockResult.Done.STORED);
            var asked = new AtomicInteger();
            var free = new AtomicInteger();
            calls.hook =
                    (call, _) -> {
                        if (call.equals("rename")) { // the victim is no longer in the catalog
                            asked.incrementAndGet();
                            if (store.core().catalog().reserve(FILE)) {
                                free.incrementAndGet();
                                store.core().catalog().release(FILE);
                            }
                        }
                        return 0;
                    };
            assertThat(driver.save(NEW, block(2, BYTES))).isEqualTo(BlockResult.Done.STORED);
            assertThat(asked).hasPositiveValue();
            assertThat(free).hasValue(0);
            assertThat(store.stats().evicted()).isEqualTo(1);
        }
    }

    @Test
    void deletesAVictimOfAnotherSize() {
        try (var store = BlockStore.open(config(DirectIo.OFF), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            assertThat(driver.save(OLD, block(1, BYTES))).isEqualTo(BlockResult.Done.STORED);
            calls.log.clear();
            assertThat(driver.save(NEW, block(2, 100))).isEqualTo(BlockResult.Done.STORED);
            assertThat(calls.log).contains("unlink", "createNew").doesNotContain("openOver");
            assertLoads(store, NEW, block(2, 100));
        }
    }

    /// Such as the file of another user.
    @Test
    void makesANewFileWhereTheOldOneCannotBeOpened() {
        try (var store = BlockStore.open(config(DirectIo.OFF), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            assertThat(driver.save(OLD, block(1, BYTES))).isEqualTo(BlockResult.Done.STORED);
            calls.hook = (call, _) -> call.equals("openOver") ? -Errno.EACCES : 0;
            assertThat(driver.save(NEW, block(2, BYTES))).isEqualTo(BlockResult.Done.STORED);
            assertLoads(store, NEW, block(2, BYTES));
            assertThat(StoreDriver.temps(store.config())).isEmpty();
        }
    }

    @Test
    void leavesNothingBehindWhenWritingOverAFileFails() {
        try (var store = BlockStore.open(config(DirectIo.OFF), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            for (String failing : List.of("write", "syncData", "close", "publish")) {
                calls.hook = FaultInjectingCalls.PASS;
                assertThat(driver.save(OLD, block(1, BYTES)))
                        .as(failing)
                        .isEqualTo(BlockResult.Done.STORED);
                calls.hook = (call, _) -> call.equals(failing) ? -Errno.EIO : 0;
                assertThat(driver.save(NEW, block(2, BYTES)))
                        .as(failing)
                        .isInstanceOf(BlockResult.Failed.class);
                assertThat(StoreDriver.temps(store.config())).as(failing).isEmpty();
                assertThat(store.stats().usedBytes()).as(failing).isZero();
                assertThat(StoreDriver.diskBytes(store.config())).as(failing).isZero();
            }
        }
    }

    /// The reader has the file open, and some of its bytes, when another block is written over it.
    @ParameterizedTest
    @EnumSource(DirectIo.class)
    void missesABlockThatIsWrittenOverWhileItIsRead(DirectIo direct) {
        for (int reads = 1; reads <= 3; reads++) {
            int before = reads;
            try (var store =
                    BlockStore.open(
                            config(direct).withQuota(before * 10 + FILE, 1, 1),
                            StoreListener.NONE,
                            calls)) {
                var driver = new StoreDriver(store);
                driver.save(OLD, block(1, BYTES));
                var over = new AtomicBoolean();
                var seen = new int[1];
                calls.hook =
                        (call, _) -> {
                            if (reads(call) && ++seen[0] == before && !over.getAndSet(true)) {
                                driver.save(NEW, block(2, BYTES));
                            }
                            return 0;
                        };
                BlockResult result = driver.load(OLD, empty(BYTES));
                calls.hook = FaultInjectingCalls.PASS;
                if (over.get()) {
                    assertThat(result.failedWith(ErrorCode.MISS)).as("%s", result).isTrue();
                    assertLoads(store, NEW, block(2, BYTES));
                } else {
                    assertThat(result).isEqualTo(BlockResult.Done.LOADED); // fewer reads
                }
                store.clear();
            }
        }
    }

    /// Each time the reader has the file open another process writes another block over it, if it
    /// can, and before the reader opens it again the block is back.
    @ParameterizedTest
    @EnumSource(DirectIo.class)
    void loadsABlockThatIsWrittenOverInEachReadOfItIfThatIsPossible(DirectIo direct) {
        var otherCalls = new FaultInjectingCalls(FileCalls.ofPlatform());
        try (var store = BlockStore.open(config(direct), StoreListener.NONE, calls);
                var other = BlockStore.open(config(direct), StoreListener.NONE, otherCalls);
                var thread = Executors.newSingleThreadExecutor()) {
            var driver = new StoreDriver(store);
            var otherDriver = new StoreDriver(other);
            driver.save(OLD, block(1, BYTES));
            other.core().scan();
            var locks = new AtomicInteger();
            otherCalls.hook =
                    (call, _) -> {
                        // Its janitor asks so whether others use the folder.
                        if (call.equals("tryLock")
                                && !Thread.currentThread().getName().equals("disk-janitor")) {
                            locks.incrementAndGet();
                        }
                        return 0;
                    };
            var saves = new ArrayList<Future<BlockResult>>();
            var opened = new AtomicBoolean();
            calls.hook =
                    (call, _) -> {
                        if (!Thread.currentThread().getName().startsWith("disk-read")) {
                            return 0;
                        }
                        if (call.equals("openRead")) {
                            opened.set(true);
                        } else if (reads(call) && opened.getAndSet(false)) {
                            var save = thread.submit(() -> otherDriver.save(NEW, block(2, BYTES)));
                            saves.add(save);
                            awaitEndOrLock(save, locks);
                        } else if (call.equals("close") && saves.getLast().isDone()) {
                            otherDriver.save(OLD, block(1, BYTES));
                        }
                        return 0;
                    };
            var loaded = empty(BYTES);
            BlockResult result = driver.load(OLD, loaded);
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(result).isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(block(1, BYTES), loaded)).isTrue();
            assertThat(store.stats().corrupt()).isZero();
            assertThat(saves).hasSize(2);
            for (var save : saves) {
                assertThat(save)
                        .succeedsWithin(StoreDriver.PATIENCE)
                        .isEqualTo(BlockResult.Done.STORED);
            }
        }
    }

    private static boolean reads(String call) {
        return call.equals("read") || call.equals("readCached");
    }

    /// Until the save has ended or was refused the lock of evictions, which it then asks for again.
    private static void awaitEndOrLock(Future<BlockResult> save, AtomicInteger locks) {
        long limit = System.nanoTime() + StoreDriver.PATIENCE.toNanos();
        int before = locks.get();
        while (!save.isDone() && locks.get() < before + 3 && limit - System.nanoTime() > 0) {
            Thread.onSpinWait();
        }
    }

    /// Another process that evicts beyond the deadline of a load may be overwriting the file.
    @Test
    void discardsNothingWhileOthersEvict() throws Exception {
        try (var store = BlockStore.open(config(DirectIo.OFF), StoreListener.NONE, calls);
                var other = BlockStore.open(config(DirectIo.OFF), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(OLD, block(1, BYTES));
            Path file = StoreDriver.file(store.config(), OLD);
            byte[] bytes = Files.readAllBytes(file);
            bytes[5000] ^= 1;
            Files.write(file, bytes);
            long limit = System.nanoTime() + StoreDriver.PATIENCE.toNanos();
            assertThat(other.core().evictor().pause(limit)).isTrue();
            BlockResult early = driver.load(OLD, empty(BYTES), Duration.ofMillis(300));
            other.core().evictor().resume();
            assertThat(early.failedWith(ErrorCode.MISS) || early.failedWith(ErrorCode.TIMEOUT))
                    .as("%s", early)
                    .isTrue();
            assertThat(file).exists();
            assertThat(store.stats().corrupt()).isZero();
            assertThat(driver.load(OLD, empty(BYTES)).failedWith(ErrorCode.CORRUPT)).isTrue();
            assertThat(file).doesNotExist();
        }
    }
}
