// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static io.kvferry.backend.disk.store.StoreDriver.block;
import static io.kvferry.backend.disk.store.StoreDriver.empty;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assumptions.assumeThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/// Devices that hang, deadlines that pass meanwhile, and the limit of requests in flight.
class HangTest {
    @TempDir Path root;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());

    @Test
    void dropsASaveWhoseMemoryChangedAfterItsDeadline() throws Exception {
        var hang = new CountDownLatch(1);
        var config = StoreDriver.config(root).withMedium(Durability.NONE, DirectIo.OFF);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            calls.hook =
                    (call, _) -> {
                        if (call.equals("write")) {
                            await(hang);
                        }
                        return 0;
                    };
            List<MemorySegment> memory = block(1, 2_600_000); // several pieces, hung in the first
            var done = new CompletableFuture<BlockResult>();
            store.save(
                    BlockKey.of("k"),
                    memory,
                    Deadline.in(Duration.ofMillis(80)),
                    (_, result) -> done.complete(result),
                    0);
            assertThat(done.get(40, TimeUnit.SECONDS).failedWith(ErrorCode.TIMEOUT)).isTrue();
            memory.getFirst().fill((byte) 0x55); // the caller uses its memory again
            hang.countDown();
            StoreDriver.shut(store);
            assertThat(store.stats().usedBytes()).isZero();
        }
        assertThat(StoreDriver.diskBytes(config)).isZero();
        assertThat(StoreDriver.temps(config)).isEmpty();
    }

    @Test
    void answersTimeoutWhileAReadHangsAndNeverTouchesTheTargetAfterwards() throws Exception {
        var hang = new CountDownLatch(1);
        var hung = new CountDownLatch(1);
        try (var store = BlockStore.open(StoreDriver.config(root), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            BlockKey slow = BlockKey.of("slow");
            BlockKey quick = BlockKey.of("quick");
            driver.save(slow, block(1, 5000));
            driver.save(quick, block(2, 5000));
            calls.hook =
                    (call, _) -> {
                        if (call.equals("read") && hung.getCount() > 0) {
                            hung.countDown();
                            await(hang);
                        }
                        return 0;
                    };
            List<MemorySegment> target = empty(5000);
            int attempts = 0;
            do { // on a busy machine the deadline may pass before a thread takes the request up
                attempts++;
                assertThat(
                                driver.load(slow, target, Duration.ofMillis(100))
                                        .failedWith(ErrorCode.TIMEOUT))
                        .isTrue();
            } while (store.stats().stalledNow() == 0);
            assertThat(hung.await(30, TimeUnit.SECONDS)).isTrue();
            assertThat(store.stats().stalledNow()).isEqualTo(1);
            assertThat(store.stats().timeouts()).isEqualTo(attempts);
            assertThat(driver.load(quick, empty(5000)))
                    .as("other threads go on")
                    .isEqualTo(BlockResult.Done.LOADED);
            target.getFirst().fill((byte) 0x55); // the caller uses its memory again
            hang.countDown();
            StoreDriver.shut(store);
            assertThat(target.getFirst().toArray(ValueLayout.JAVA_BYTE)).containsOnly(0x55);
            assertThat(store.stats().stalledNow()).isZero();
        }
    }

    /// The engine frees its memory after a close that returns.
    @Test
    void saysTimeoutWhenItIsClosedWhileTheSystemCopiesFromThePageCacheToTheTarget()
            throws Exception {
        var hang = new CountDownLatch(1);
        var hangRead = new CountDownLatch(1);
        var copies = new CountDownLatch(1);
        var config = StoreDriver.config(root).withMedium(Durability.NONE, DirectIo.OFF);
        var key = BlockKey.of("k");
        long bytes = 3_000_000;
        var done = new CompletableFuture<BlockResult>();
        try (var store =
                BlockStore.open(
                        config.with(impatient(config.times())), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(key, block(1, bytes));
            calls.log.clear();
            assertThat(driver.load(key, empty(bytes))).isEqualTo(BlockResult.Done.LOADED);
            assumeThat(calls.log)
                    .as("Linux 6.5 and a file system that can read what is cached alone")
                    .contains("readCached")
                    .doesNotContain("read");
            var pieces = new AtomicInteger();
            calls.hook =
                    (call, _) -> {
                        if (call.equals("readCached") && pieces.incrementAndGet() == 2) {
                            copies.countDown();
                            await(hang);
                        }
                        if (call.equals("read")) {
                            await(hangRead);
                        }
                        return 0;
                    };
            var target = empty(bytes);
            store.load(
                    key,
                    target,
                    Deadline.in(Duration.ofSeconds(30)),
                    (_, result) -> done.complete(result),
                    0);
            await(copies);
            assertThatThrownBy(store::close)
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT))
                    .hasMessageContaining("memory of the engine");
            assertThat(done).isNotDone();
            hang.countDown(); // its deadline has passed: the file is read in the other way, and
            // hangs
            assertThat(done.get(30, TimeUnit.SECONDS).failedWith(ErrorCode.TIMEOUT)).isTrue();
            target.getFirst().fill((byte) 0x55);
            hangRead.countDown();
            StoreDriver.shut(store);
            assertThat(target.getFirst().toArray(ValueLayout.JAVA_BYTE)).containsOnly(0x55);
        } finally {
            hang.countDown();
            hangRead.countDown();
        }
    }

    /// As most faults of a medium, which tries for long.
    @Test
    void setsABlockAsideWhoseReadFailsAfterItsDeadline() {
        var fail = new CountDownLatch(1);
        var config = StoreDriver.config(root);
        BlockKey key = BlockKey.of("k");
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(key, block(1, 5000));
            calls.hook =
                    (call, _) -> {
                        if (call.equals("read")) {
                            await(fail);
                            return -Errno.EIO;
                        }
                        return 0;
                    };
            do { // on a busy machine the deadline may pass before a thread takes the request up
                assertThat(
                                driver.load(key, empty(5000), Duration.ofMillis(100))
                                        .failedWith(ErrorCode.TIMEOUT))
                        .isTrue();
            } while (store.stats().stalledNow() == 0);
            fail.countDown();
            StoreDriver.shut(store);
            assertThat(StoreDriver.file(config, key)).doesNotExist();
            assertThat(store.stats().usedBytes()).isZero();
        } finally {
            fail.countDown();
        }
    }

    @Test
    void answersQueuedRequestsWhenEveryThreadHangs() throws Exception {
        var hang = new CountDownLatch(1);
        var config = StoreDriver.config(root).with(new StoreConfig.Pools(1, 1, 8));
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            calls.hook =
                    (_, _) -> {
                        await(hang);
                        return 0;
                    };
            var answers = new java.util.ArrayList<CompletableFuture<BlockResult>>();
            for (int i = 0; i < 5; i++) {
                var done = new CompletableFuture<BlockResult>();
                answers.add(done);
                assertThat(
                                store.load(
                                        BlockKey.of("k" + i),
                                        empty(10),
                                        Deadline.in(Duration.ofMillis(80)),
                                        (_, result) -> done.complete(result),
                                        i))
                        .isTrue();
            }
            for (var answer : answers) {
                assertThat(answer.get(40, TimeUnit.SECONDS).failedWith(ErrorCode.TIMEOUT)).isTrue();
            }
            calls.hook = FaultInjectingCalls.PASS;
            hang.countDown();
            assertThat(new StoreDriver(store).save(BlockKey.of("after"), block(1, 10)))
                    .isEqualTo(BlockResult.Done.STORED);
        }
    }

    /// None of them ends before all have begun.
    @Test
    void hasAsManyReadsInFlightAsItHasReaders() throws Exception {
        int readers = 16;
        var config = StoreDriver.config(root).with(new StoreConfig.Pools(readers, 1, 64));
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            for (int i = 0; i < readers; i++) {
                assertThat(driver.save(BlockKey.of("k" + i), block(i, 10)))
                        .isEqualTo(BlockResult.Done.STORED);
            }
            var begun = new CountDownLatch(readers);
            calls.hook =
                    (call, _) -> {
                        if (call.equals("read")) {
                            begun.countDown();
                            await(begun);
                        }
                        return 0;
                    };
            var answers = new java.util.ArrayList<CompletableFuture<BlockResult>>();
            for (int i = 0; i < readers; i++) {
                var done = new CompletableFuture<BlockResult>();
                answers.add(done);
                store.load(
                        BlockKey.of("k" + i),
                        empty(10),
                        Deadline.in(StoreDriver.PATIENCE),
                        (_, result) -> done.complete(result),
                        i);
            }
            for (var answer : answers) {
                assertThat(answer.get(40, TimeUnit.SECONDS)).isEqualTo(BlockResult.Done.LOADED);
            }
        }
    }

    @Test
    void dropsASaveThatWasGivenUpBeforeItWasPublished() throws Exception {
        var hang = new CountDownLatch(1);
        var config = StoreDriver.config(root);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            calls.hook =
                    (call, _) -> {
                        if (call.equals("write")) {
                            await(hang);
                        }
                        return 0;
                    };
            var done = new CompletableFuture<BlockResult>();
            store.save(
                    BlockKey.of("k"),
                    block(1, 10),
                    Deadline.in(Duration.ofMillis(80)),
                    (_, result) -> done.complete(result),
                    0);
            assertThat(done.get(40, TimeUnit.SECONDS).failedWith(ErrorCode.TIMEOUT)).isTrue();
            hang.countDown();
            StoreDriver.shut(store);
            assertThat(store.stats().usedBytes()).isZero();
        }
        assertThat(StoreDriver.diskBytes(config)).isZero();
        assertThat(StoreDriver.temps(config)).isEmpty();
    }

    /// Evictions stand still while a block whose check failed is read once more, and that read
    /// hangs.
    @Test
    void boundsTheWaitForAReadThatHangsWhileEvictionsStandStill() throws Exception {
        var hang = new CountDownLatch(1);
        var hung = new CountDownLatch(1);
        var config = fullWithThreeBlocks();
        var brief = config.with(impatient(config.times()));
        BlockKey damaged = BlockKey.of("0");
        BlockKey kept = BlockKey.of("2");
        try (var other = BlockStore.open(config, StoreListener.NONE, FileCalls.ofPlatform());
                var store = BlockStore.open(brief, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            var otherDriver = new StoreDriver(other);
            for (int i = 0; i < 3; i++) {
                otherDriver.save(BlockKey.of("" + i), block(i, 5000));
            }
            store.scan();
            flipAByte(StoreDriver.file(config, damaged));
            var nobody = Thread.currentThread();
            var reader = new AtomicReference<>(nobody);
            calls.hook =
                    (call, _) -> {
                        // The first read of a thread is that of the first attempt.
                        if (call.equals("read")
                                && isReader()
                                && !reader.compareAndSet(nobody, Thread.currentThread())
                                && reader.get() == Thread.currentThread()) {
                            hung.countDown();
                            await(hang);
                        }
                        return 0;
                    };
            BlockResult result = driver.load(damaged, empty(5000));
            while (hung.getCount() > 0) { // on a busy machine the deadline may pass before
                assertThat(result instanceof BlockResult.Failed).as("%s", result).isTrue();
                reader.set(nobody);
                if (otherDriver.save(damaged, block(0, 5000)) == BlockResult.Done.STORED) {
                    flipAByte(StoreDriver.file(config, damaged)); // the other reader discarded it
                }
                store.scan(); // else it has room for one more
                result = driver.load(damaged, empty(5000));
            }
            assertThat(result.failedWith(ErrorCode.TIMEOUT)).as("%s", result).isTrue();

            var saved = driver.save(BlockKey.of("new"), block(3, 5000));
            assertThat(saved.failedWith(ErrorCode.TIMEOUT)).as("%s", saved).isTrue();
            assertThat(
                            otherDriver
                                    .save(
                                            BlockKey.of("new"),
                                            block(3, 5000),
                                            Duration.ofMillis(300))
                                    .failedWith(ErrorCode.TIMEOUT))
                    .isTrue();
            assertThat(store.stats().noSpace() + other.stats().noSpace()).isZero();
            var loaded = empty(5000);
            do { // one reader is left
                result = driver.load(kept, loaded);
            } while (result.failedWith(ErrorCode.TIMEOUT));
            assertThat(result).isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(block(2, 5000), loaded)).isTrue();
            assertThat(otherDriver.load(kept, empty(5000))).isEqualTo(BlockResult.Done.LOADED);

            StoreDriver.shut(store); // while the read hangs
            assertThat(hang.getCount()).isEqualTo(1);
            assertThat(otherDriver.save(BlockKey.of("new"), block(3, 5000)))
                    .as("evictions go on")
                    .isEqualTo(BlockResult.Done.STORED);
            hang.countDown();
            assertThat(reader.get().join(StoreDriver.PATIENCE)).isTrue();
            assertThat(store.stats().corrupt()).isZero();
            assertThat(otherDriver.load(BlockKey.of("new"), loaded))
                    .isEqualTo(BlockResult.Done.LOADED);
            assertThat(StoreDriver.same(block(3, 5000), loaded)).isTrue();
        } finally {
            hang.countDown();
        }
    }

    /// Whoever is first to notice that the deadline has passed: the thread that notices deadlines
    /// or that of the save.
    @Test
    void aSaveThatHadNoTimeToEvictIsLateRatherThanOutOfSpace() {
        var config = fullWithThreeBlocks();
        try (var store = BlockStore.open(config, StoreListener.NONE, calls);
                var other = BlockStore.open(config, StoreListener.NONE, FileCalls.ofPlatform())) {
            var driver = new StoreDriver(store);
            for (int i = 0; i < 3; i++) {
                driver.save(BlockKey.of("" + i), block(i, 5000));
            }
            long limit = System.nanoTime() + StoreDriver.PATIENCE.toNanos();
            assertThat(other.core().evictor().pause(limit)).isTrue();
            for (int i = 0; i < 20; i++) {
                var result =
                        driver.save(BlockKey.of("new"), block(3, 5000), Duration.ofMillis(25 + i));
                assertThat(result.failedWith(ErrorCode.TIMEOUT)).as("%s", result).isTrue();
            }
            other.core().evictor().resume();
            assertThat(store.stats().noSpace()).isZero();
            assertThat(driver.save(BlockKey.of("new"), block(3, 5000)))
                    .isEqualTo(BlockResult.Done.STORED);
        }
    }

    private static boolean isReader() {
        return Thread.currentThread().getName().startsWith("disk-read");
    }

    private StoreConfig fullWithThreeBlocks() {
        return StoreDriver.config(root)
                .withMedium(Durability.NONE, DirectIo.OFF)
                .withQuota(3 * (4096 + 8192), 1, 1);
    }

    /// Closing a store takes as long as its longest request, and a little more.
    private static StoreConfig.Times impatient(StoreConfig.Times times) {
        return new StoreConfig.Times(
                Duration.ofMillis(500),
                times.verifyAfter(),
                times.tempMaxAge(),
                times.scanInterval(),
                times.recency());
    }

    private static void flipAByte(Path file) throws IOException {
        byte[] bytes = Files.readAllBytes(file);
        bytes[5000] ^= 1;
        Files.write(file, bytes);
    }

    private static void await(CountDownLatch latch) {
        try {
            if (!latch.await(30, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the test forgot to open the latch");
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
