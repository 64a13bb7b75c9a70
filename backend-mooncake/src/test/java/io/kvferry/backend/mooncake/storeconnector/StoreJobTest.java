// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

/// How transfers end, and which blocks a failed one names.
class StoreJobTest {
    private static final int BLOCKS = 100;

    private final Arena arena = Arena.ofShared();
    private final AtomicInteger ends = new AtomicInteger();
    private final ThreadLocal<StoreBatch> batches = ThreadLocal.withInitial(StoreBatch::new);

    @AfterEach
    void close() {
        arena.close();
    }

    private StoreJob job(StoreJob.Mover mover, Duration limit) {
        var region =
                new KvRegion(
                        "layer",
                        0,
                        0,
                        new MemoryRange.Host(arena.allocate(BLOCKS * 64L, 64)),
                        BLOCKS,
                        64,
                        64);
        var hashes = new ArrayList<BlockHash>();
        var ids = new int[1][BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            hashes.add(new BlockHash(i, 0, 0, 0));
            ids[0][i] = i == 3 ? BlockTable.NO_BLOCK : i;
        }
        return new StoreJob(
                new StorePlan.Move(TransferId.load("r", 0), 1000, hashes, ids),
                RegionBlocks.of(List.of(region), 1),
                mover,
                batches,
                Deadline.in(limit),
                ends::incrementAndGet);
    }

    private static int[] failed(StoreJob job, ErrorCode code) {
        assertThat(job.hasEnded()).isTrue();
        var result = (Completion.Failed) job.result();
        assertThat(result.failure().code()).isEqualTo(code);
        assertThat(result.blocks()).hasSize(1);
        return result.blocks().getFirst().positions();
    }

    @Test
    void namesWhatFailedAndWhatWasNotTried() {
        var job =
                job(
                        (moved, from, to, _) -> {
                            for (int part = from; part < to; part++) {
                                if (from == 0 || part % 2 == 0) {
                                    moved.done(part, 64);
                                } else {
                                    moved.fail(new Failure(ErrorCode.MISS, "gone"));
                                }
                            }
                        },
                        Duration.ofMinutes(1));
        job.run();
        // Parts leave out block 3, so part p is block p + 1 from there on.
        int[] expected =
                IntStream.range(32, BLOCKS - 1)
                        .filter(part -> part >= 64 || part % 2 == 1)
                        .map(part -> 1000 + part + 1)
                        .toArray();
        assertThat(failed(job, ErrorCode.MISS)).isEqualTo(expected);
        assertThat(ends.get()).isEqualTo(1);
    }

    @Test
    void anErrorOfTheStoreFailsTheRest() {
        var job =
                job(
                        (_, _, _, _) -> {
                            throw new IllegalStateException("broken");
                        },
                        Duration.ofMinutes(1));
        job.run();
        assertThat(failed(job, ErrorCode.INTERNAL)).hasSize(BLOCKS - 1).doesNotContain(1003);
    }

    /// A store that waits for an owner which says nothing.
    @Test
    void whoRevokesOneDoesNotWaitForWhatTheStoreWaitsFor() throws Exception {
        var waits = new CountDownLatch(1);
        var never = new CountDownLatch(1);
        var job =
                job(
                        (moved, _, _, _) -> {
                            waits.countDown();
                            try {
                                never.await();
                            } catch (InterruptedException _) {
                                Thread.currentThread().interrupt();
                                moved.fail(new Failure(ErrorCode.TIMEOUT, "no answer"));
                            }
                        },
                        Duration.ofMinutes(10));
        var threads = Executors.newSingleThreadExecutor(Thread.ofPlatform().daemon().factory());
        try {
            var end = threads.submit(job);
            assertThat(waits.await(30, TimeUnit.SECONDS)).isTrue();
            job.revoke();
            end.get(60, TimeUnit.SECONDS);
            assertThat(job.hasEnded()).isTrue();
            assertThat(job.result()).isInstanceOf(Completion.Revoked.class);
            assertThat(threads.submit(Thread::interrupted).get(30, TimeUnit.SECONDS))
                    .as("whether the next job of this thread is stopped")
                    .isFalse();
        } finally {
            never.countDown();
            threads.shutdown();
        }
    }

    /// As when there is no memory left for the text of the failure.
    @Test
    void anErrorThatCannotBeNotedIsNoSuccess() {
        var error =
                new OutOfMemoryError() {
                    @Override
                    public String toString() {
                        throw this;
                    }
                };
        var job =
                job(
                        (moved, from, to, _) -> {
                            if (from > 0) {
                                throw error;
                            }
                            for (int part = from; part < to; part++) {
                                moved.done(part, 64);
                            }
                        },
                        Duration.ofMinutes(1));
        Throwable thrown = null;
        try {
            job.run();
        } catch (OutOfMemoryError e) {
            thrown = e;
        }
        assertThat(thrown).isNotNull();
        assertThat(failed(job, ErrorCode.INTERNAL))
                .hasSize(BLOCKS - 1 - StoreJob.BATCH)
                .doesNotContain(1000, 1032)
                .contains(1033, 1000 + BLOCKS - 1);
        assertThat(job.result()).isInstanceOf(Completion.Failed.class);
        assertThat(ends.get()).isEqualTo(1);
    }

    @Test
    void aDeadlineFailsTheRest() {
        var job = job((moved, from, _, _) -> moved.done(from, 64), Duration.ZERO);
        job.run();
        assertThat(failed(job, ErrorCode.TIMEOUT)).hasSize(BLOCKS - 1);
    }

    @Test
    void whatHasNotBegunEndsAtOnceWhenRevoked() {
        var job = job((_, _, _, _) -> {}, Duration.ofMinutes(1));
        job.revoke();
        assertThat(job.hasEnded()).isTrue();
        job.run();
        assertThat(job.result()).isInstanceOf(Completion.Revoked.class);
        assertThat(ends.get()).isEqualTo(1);
    }

    @Test
    void whatRunsEndsAfterItsBatch() {
        var job =
                job(
                        (moved, from, to, _) -> {
                            moved.revoke();
                            assertThat(moved.hasEnded()).isFalse();
                            assertThat(from).as("no further batch").isZero();
                        },
                        Duration.ofMinutes(1));
        job.run();
        assertThat(job.hasEnded()).isTrue();
        assertThat(job.result()).isInstanceOf(Completion.Revoked.class);
    }

    @Test
    void aStoreThatForgetsIsNoticedAtTheStart() {
        try (var store = EmbeddedStore.open(StoreConfig.DEFAULT)) {
            var client = store.client(new StoreIdentity("", "m", "l"));
            assertThat(SelfTest.run(client, 0)).as("no room is no defect").isEmpty();
            store.mount("a", 1 << 20);
            assertThat(SelfTest.run(client, 0)).isEmpty();
            assertThat(store.keyCount()).isZero();
            var forgetful =
                    (Store)
                            Proxy.newProxyInstance(
                                    Store.class.getClassLoader(),
                                    new Class<?>[] {Store.class},
                                    (_, method, arguments) -> {
                                        var result = method.invoke(client, arguments);
                                        if (method.getName().equals("put")) {
                                            client.removeAll(true);
                                        }
                                        return result;
                                    });
            assertThat(SelfTest.run(forgetful, 0).orElseThrow()).contains("is not there");
            client.put(
                    new StoreBatch().add("k").buffer(arena.allocate(8)),
                    PutOptions.DEFAULT,
                    new int[1]);
            client.close();
            assertThat(SelfTest.run(client, 0).orElseThrow()).contains("put answered");
        }
    }
}
