// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static io.kvferry.backend.disk.store.StoreDriver.block;
import static io.kvferry.backend.disk.store.StoreDriver.empty;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.block.RecordFormat;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.space.KeyDigest;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// Errors out of calls and callbacks, and calls that hang after the bytes were moved.
class CallOutTest {
    @TempDir Path root;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());

    private StoreConfig buffered() {
        return StoreDriver.config(root).withMedium(Durability.NONE, DirectIo.OFF);
    }

    /// What follows a read of a whole block, of a damaged one, and of one that the medium refuses.
    @ParameterizedTest
    @ValueSource(strings = {"setModified", "unlink", "rename"})
    void aLoadEndsByItsDeadlineWhateverHangsAfterTheRead(String hanging) throws Exception {
        var hang = new CountDownLatch(1);
        BlockKey key = BlockKey.of("k");
        var times = buffered().times();
        var config =
                buffered()
                        .with(
                                new StoreConfig.Times(
                                        times.io(),
                                        times.verifyAfter(),
                                        times.tempMaxAge(),
                                        times.scanInterval(),
                                        Duration.ofMillis(1))); // each use sets the file's time
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            new StoreDriver(store).save(key, block(1, 5000));
            if (hanging.equals("unlink")) {
                Path file = StoreDriver.file(config, key);
                byte[] bytes = Files.readAllBytes(file);
                bytes[5000] ^= 1;
                Files.write(file, bytes);
            }
            calls.hook =
                    (call, _) -> {
                        if (call.equals(hanging)) {
                            await(hang);
                        }
                        return call.equals("read") && hanging.equals("rename") ? -Errno.EIO : 0;
                    };
            var done = new CompletableFuture<BlockResult>();
            Thread.sleep(5); // another interval
            store.load(
                    key,
                    empty(5000),
                    Deadline.in(Duration.ofMillis(200)),
                    (_, result) -> done.complete(result),
                    0);
            BlockResult result;
            try {
                result = done.get(20, TimeUnit.SECONDS);
            } finally {
                hang.countDown();
            }
            assertThat(result.failedWith(ErrorCode.TIMEOUT)).as("%s", result).isTrue();
        }
    }

    @ParameterizedTest
    @ValueSource(longs = {5000, 600_000})
    void closesTheFileOfALoadWhoseMemoryIsGone(long bytes) {
        BlockKey key = BlockKey.of("k");
        try (var store = BlockStore.open(buffered(), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(key, block(1, bytes));
            MemorySegment gone;
            try (Arena arena = Arena.ofShared()) {
                gone = arena.allocate(bytes);
            }
            calls.log.clear();
            assertThat(driver.load(key, List.of(gone)).failedWith(ErrorCode.INTERNAL)).isTrue();
            assertThat(Collections.frequency(calls.log, "openRead")).isEqualTo(1);
            assertThat(Collections.frequency(calls.log, "close")).isEqualTo(1);
            assertThat(driver.load(key, empty(bytes))).isEqualTo(BlockResult.Done.LOADED);
        }
    }

    /// Such as no memory to tell an engine of an eviction.
    @Test
    void givesRoomBackWhenAListenerThrows() {
        var config = buffered();
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            new StoreDriver(store).save(BlockKey.of("old"), block(1, 5000));
        }
        var listener =
                new StoreListener() {
                    @Override
                    public void removed(KeyDigest digest) {
                        throw new OutOfMemoryError("scripted");
                    }
                };
        var full = config.withReserveBytes(1L << 60); // never so much free
        try (var store = BlockStore.open(full, listener, calls)) {
            var result = new StoreDriver(store).save(BlockKey.of("new"), block(2, 5000));
            assertThat(result).isInstanceOf(BlockResult.Failed.class);
            StoreDriver.assertReservesNothing(store);
        }
    }

    /// The file that was to be written over is nobody's block any more.
    @Test
    void leavesNoFileOfAVictimBehindWhenAListenerThrows() {
        long file = RecordFormat.fileBytes(BlockKey.of("old"), 5000);
        var config = buffered().withQuota(file, 1, 1);
        var listener =
                new StoreListener() {
                    @Override
                    public void removed(KeyDigest digest) {
                        throw new OutOfMemoryError("scripted");
                    }
                };
        try (var store = BlockStore.open(config, listener, calls)) {
            var driver = new StoreDriver(store);
            driver.save(BlockKey.of("old"), block(1, 5000));
            assertThat(driver.save(BlockKey.of("new"), block(2, 5000)))
                    .isInstanceOf(BlockResult.Failed.class);
            assertThat(StoreDriver.temps(config)).isEmpty();
            StoreDriver.assertReservesNothing(store);
        }
    }

    /// Such as no memory for a larger header: each such save took a file handle for good.
    @ParameterizedTest
    @ValueSource(strings = {"write", "setModified", "syncData", "publish", "openOver"})
    void closesAndDeletesTheFileOfASaveThatMeetsAnError(String failing) {
        long file = RecordFormat.fileBytes(BlockKey.of("old"), 5000);
        var config = buffered().withMedium(Durability.STRICT, DirectIo.OFF).withQuota(file, 1, 1);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(BlockKey.of("old"), block(1, 5000)); // whose file is written over
            calls.log.clear();
            calls.hook =
                    (call, _) -> {
                        if (call.equals(failing) && calls.log.contains("openOver")) {
                            throw new OutOfMemoryError("scripted");
                        }
                        return 0;
                    };
            var result = driver.save(BlockKey.of("new"), block(2, 5000));
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(result).isInstanceOf(BlockResult.Failed.class);
            assertThat(calls.log).contains("openOver");
            assertThat(Collections.frequency(calls.log, "close"))
                    .isEqualTo(failing.equals("openOver") ? 0 : 1);
            assertThat(StoreDriver.temps(config)).isEmpty();
            StoreDriver.assertReservesNothing(store);
            assertThat(driver.save(BlockKey.of("new"), block(2, 5000)))
                    .isEqualTo(BlockResult.Done.STORED);
        }
    }

    /// Otherwise that thread never sleeps again.
    @Test
    void aCallbackThatInterruptsTheDeadlineThreadLeavesItNotInterrupted() throws Exception {
        var hang = new CountDownLatch(1);
        try (var store = BlockStore.open(buffered(), StoreListener.NONE, calls)) {
            calls.hook =
                    (call, _) -> {
                        if (call.equals("openRead")) {
                            await(hang);
                        }
                        return 0;
                    };
            var told = new CompletableFuture<Thread>();
            store.load(
                    BlockKey.of("k"),
                    empty(10),
                    Deadline.in(Duration.ofMillis(50)),
                    (_, _) -> {
                        Thread.currentThread().interrupt();
                        told.complete(Thread.currentThread());
                    },
                    0);
            Thread watch = told.get(30, TimeUnit.SECONDS);
            long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
            while (watch.isInterrupted() && limit - System.nanoTime() > 0) {
                Thread.sleep(5);
            }
            assertThat(watch.getName()).isEqualTo("disk-deadlines");
            boolean interrupted = watch.isInterrupted();
            hang.countDown();
            assertThat(interrupted).isFalse();
        } finally {
            hang.countDown();
        }
    }

    /// What was looked at before it was there is not gone.
    @Test
    void aLookThatASaveOvertakesForgetsNothing() {
        BlockKey key = BlockKey.of("k");
        var real = FileCalls.ofPlatform();
        Runnable[] between = {() -> {}};
        var racing =
                (FileCalls)
                        Proxy.newProxyInstance(
                                FileCalls.class.getClassLoader(),
                                new Class<?>[] {FileCalls.class},
                                (_, method, arguments) -> {
                                    Object answer = method.invoke(real, arguments);
                                    if (method.getName().matches("status|openRead")
                                            && answer.equals(-Errno.ENOENT)) {
                                        Runnable now = between[0];
                                        between[0] = () -> {};
                                        now.run();
                                    }
                                    return answer;
                                });
        var config = StoreDriver.looking(buffered());
        try (var store = BlockStore.open(config, StoreListener.NONE, racing)) {
            var driver = new StoreDriver(store);
            between[0] = () -> driver.save(key, block(1, 5000));
            assertThat(driver.load(key, empty(5000)).failedWith(ErrorCode.MISS)).isTrue();
            assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(config));
            BlockKey other = BlockKey.of("other");
            between[0] = () -> driver.save(other, block(2, 5000));
            driver.locate(List.of(other));
            assertThat(store.stats().usedBytes()).isEqualTo(StoreDriver.diskBytes(config));
        }
    }

    @Test
    void theJanitorGoesOnWhenAskingForOthersThrows() throws Exception {
        var asked = new AtomicInteger();
        try (var store = BlockStore.open(buffered(), StoreListener.NONE, calls)) {
            calls.hook =
                    (call, _) -> {
                        if (call.equals("tryLock")) {
                            asked.incrementAndGet();
                            throw new LinkageError("scripted");
                        }
                        return 0;
                    };
            long limit = System.nanoTime() + StoreDriver.PATIENCE.toNanos();
            while (asked.get() < 2
                    && store.core().janitorThread().isAlive()
                    && limit - System.nanoTime() > 0) {
                store.core().wrote(store.config().space().quotaBytes());
                Thread.sleep(20);
            }
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(store.core().janitorThread().isAlive()).isTrue();
            assertThat(asked).hasValueGreaterThan(1);
        }
    }

    /// Otherwise what is wanted at once comes with the next scan by the clock only, an hour later
    /// here.
    @Test
    void aScanThatThrewIsTriedAgain() throws Exception {
        try (var store = BlockStore.open(buffered(), StoreListener.NONE, calls)) {
            var failures = new AtomicInteger(2);
            calls.hook =
                    (call, _) -> {
                        if (call.equals("openFolder") && failures.getAndDecrement() > 0) {
                            throw new LinkageError("scripted");
                        }
                        return 0;
                    };
            int scans = store.core().scans();
            store.core().noteOthers(true);
            long limit = System.nanoTime() + StoreDriver.PATIENCE.toNanos();
            while (store.core().scans() < scans + 3 && limit - System.nanoTime() > 0) {
                Thread.sleep(20);
            }
            assertThat(store.core().scans()).isGreaterThanOrEqualTo(scans + 3);
        }
    }

    /// Such as in a folder whose blocks on the medium cannot be read.
    @Test
    void countsAVictimThatCanNeitherBeLookedAtNorDeleted() {
        long file = RecordFormat.fileBytes(BlockKey.of("a"), 5000);
        var config = buffered().withQuota(2 * file, 1, 1);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(BlockKey.of("a"), block(1, 5000));
            driver.save(BlockKey.of("b"), block(2, 5000));
            calls.hook = (call, _) -> call.matches("status|unlink|rename") ? -Errno.EIO : 0;
            driver.save(BlockKey.of("c"), block(3, 5000));
            calls.hook = FaultInjectingCalls.PASS;
            assertThat(StoreDriver.diskBytes(config)).isLessThanOrEqualTo(2 * file);
            StoreDriver.assertKnowsItsBytes(store);
        }
    }

    /// Channels fail whatever an interrupted thread does.
    @Test
    void aCallbackThatInterruptsItsThreadFailsNoLaterRequest() throws Exception {
        var config = buffered().with(new StoreConfig.Pools(1, 1, 8));
        try (var store = BlockStore.open(config, StoreListener.NONE, FileCalls.ofChannels())) {
            var driver = new StoreDriver(store);
            var told = new CompletableFuture<BlockResult>();
            store.save(
                    BlockKey.of("a"),
                    block(1, 5000),
                    Deadline.in(StoreDriver.PATIENCE),
                    (_, result) -> {
                        told.complete(result);
                        Thread.currentThread().interrupt();
                    },
                    0);
            assertThat(told.get(30, TimeUnit.SECONDS)).isEqualTo(BlockResult.Done.STORED);
            assertThat(driver.save(BlockKey.of("b"), block(2, 5000)))
                    .isEqualTo(BlockResult.Done.STORED);
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            if (!latch.await(40, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the test forgot to open the latch");
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
