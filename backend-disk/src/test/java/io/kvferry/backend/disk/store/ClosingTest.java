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
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.space.FolderUsers;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

/// Stores that are closed while a load reads, and opened while another folder hangs.
class ClosingTest {
    @TempDir Path root;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());
    private final CountDownLatch hung = new CountDownLatch(1);
    private final CountDownLatch hang = new CountDownLatch(1);

    /// A load whose read hangs.
    private CompletableFuture<BlockResult> hangingLoad(BlockStore store) throws Exception {
        BlockKey key = BlockKey.of("k");
        new StoreDriver(store).save(key, block(1, 5000));
        calls.hook =
                (call, _) -> {
                    if (call.equals("read")) {
                        hung.countDown();
                        await(hang);
                    }
                    return 0;
                };
        var done = new CompletableFuture<BlockResult>();
        store.load(
                key,
                empty(5000),
                Deadline.in(StoreDriver.PATIENCE),
                (_, result) -> done.complete(result),
                0);
        assertThat(hung.await(30, TimeUnit.SECONDS)).isTrue();
        return done;
    }

    /// Waits until the thread waits or has ended.
    private static void awaitPark(Thread thread) {
        while (thread.getState() == Thread.State.NEW
                || thread.getState() == Thread.State.RUNNABLE) {
            Thread.onSpinWait();
        }
    }

    /// The memory of the load may be freed after the close.
    @Test
    void waitsForALoadAlthoughItsThreadIsInterrupted() throws Exception {
        var store = BlockStore.open(StoreDriver.config(root), StoreListener.NONE, calls);
        var load = hangingLoad(store);
        var over = new AtomicBoolean();
        var interrupted = new AtomicBoolean();
        var closer =
                Thread.ofPlatform()
                        .start(() -> {
                            Thread.currentThread().interrupt();
                            store.close();
                            over.set(load.isDone());
                            interrupted.set(Thread.currentThread().isInterrupted());
                        });
        awaitPark(closer);
        hang.countDown();
        assertThat(closer.join(Duration.ofSeconds(60))).isTrue();
        assertThat(over).isTrue();
        assertThat(interrupted).isTrue();
        try (var users =
                new FolderUsers(FileCalls.ofPlatform(), store.core().folder().usersFile())) {
            assertThat(users.others()).as("the store still uses the folder").isFalse();
        }
        assertThat(store.core().janitorThread().isAlive()).isFalse();
    }

    @Test
    void aSecondCloseWaitsForTheFirst() throws Exception {
        var store = BlockStore.open(StoreDriver.config(root), StoreListener.NONE, calls);
        var load = hangingLoad(store);
        var first = Thread.ofPlatform().start(store::close);
        awaitPark(first);
        var over = new AtomicBoolean();
        var second =
                Thread.ofPlatform()
                        .start(() -> {
                            store.close();
                            over.set(load.isDone());
                        });
        awaitPark(second);
        hang.countDown();
        assertThat(first.join(Duration.ofSeconds(60))).isTrue();
        assertThat(second.join(Duration.ofSeconds(60))).isTrue();
        assertThat(over).isTrue();
    }

    @Test
    void aFolderThatHangsWhileItIsOpenedHoldsUpNoOther() throws Exception {
        var healthy =
                StoreCore.shared(
                        StoreDriver.config(root.resolve("healthy")), FileCalls.ofPlatform());
        calls.hook =
                (call, _) -> {
                    if (call.equals("openLockFile")) {
                        hung.countDown();
                        await(hang);
                    }
                    return 0;
                };
        var sick = new CompletableFuture<StoreCore>();
        Thread.ofPlatform()
                .daemon()
                .start(() ->
                        sick.complete(
                                StoreCore.shared(StoreDriver.config(root.resolve("sick")), calls)));
        assertThat(hung.await(30, TimeUnit.SECONDS)).isTrue();
        var others =
                Thread.ofPlatform()
                        .daemon()
                        .start(() -> {
                            StoreCore.shared(
                                            StoreDriver.config(root.resolve("third")),
                                            FileCalls.ofPlatform())
                                    .release();
                            healthy.release();
                        });
        try {
            assertThat(others.join(Duration.ofSeconds(30))).isTrue();
        } finally {
            hang.countDown();
        }
        sick.get(30, TimeUnit.SECONDS).release();
    }

    private static void await(CountDownLatch latch) {
        try {
            if (!latch.await(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the test forgot to open the latch");
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /// What it has deleted by then is not promised to the other stores of the folder, and what is
    /// left counts. The folders have not changed for a while, so that a scan would pass over them.
    @Test
    void aStoreThatIsBeingEmptiedStopsWhenItIsClosed() throws Exception {
        var config = StoreDriver.config(root);
        var keys = IntStream.range(0, 10).mapToObj(i -> BlockKey.of("k" + i)).toList();
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            keys.forEach(key -> new StoreDriver(store).save(key, block(1, 100)));
            var hourAgo = FileTime.from(Instant.now().minus(Duration.ofHours(1)));
            for (int i = 0; i < StoreFolder.FOLDERS; i++) {
                Files.setLastModifiedTime(store.core().folder().subfolder(i), hourAgo);
            }
            store.core().scan();
            var left = new AtomicInteger(4);
            assertThatThrownBy(() -> store.core().clear(() -> left.getAndDecrement() == 0))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.CLOSED));
            assertThat(keys)
                    .filteredOn(key -> Files.exists(StoreDriver.file(config, key)))
                    .hasSize(6);
            StoreDriver.assertKnowsItsBytes(store);
            assertThat(keys)
                    .filteredOn(key -> new StoreDriver(store).locate(List.of(key)) == 1)
                    .allSatisfy(key -> assertThat(StoreDriver.file(config, key)).exists())
                    .hasSize(6);
        }
    }
}
