// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;

/// Threads that put, read, look up, remove, evict and unmount at once: what is read is always whole
/// and of its key, whether it is copied by the store or read in place under a lease.
class ConcurrentStoreTest {
    private static final int KEYS = 200;

    /// Keys from here on are removed by force.
    private static final int FORCED = KEYS / 2;

    private static final int ROUNDS = 3000;
    private static final int WORDS = 512;
    private static final long SIZE = WORDS * 8L;

    private final ConcurrentLinkedQueue<Throwable> failures = new ConcurrentLinkedQueue<>();
    private final AtomicLong read = new AtomicLong();
    private final AtomicLong readInPlace = new AtomicLong();

    @Test
    void nobodyReadsForeignOrTornBytes() throws InterruptedException {
        var config =
                StoreConfig.DEFAULT
                        .withEviction(0.5, 0.2, true)
                        .withLeases(Duration.ofMillis(20), true);
        try (var store = EmbeddedStore.open(config)) {
            store.mount("a", 64 * SIZE);
            store.mount("b", 64 * SIZE);
            var threads = new ArrayList<Thread>();
            for (int i = 0; i < 6; i++) {
                int number = i;
                threads.add(Thread.ofPlatform().start(() -> guarded(() -> work(store, number))));
            }
            threads.add(Thread.ofPlatform().start(() -> guarded(() -> remount(store))));
            for (var thread : threads) {
                thread.join(Duration.ofSeconds(100));
                assertThat(thread.isAlive()).isFalse();
            }
            assertThat(failures).isEmpty();
            assertThat(read.get()).isPositive();
            assertThat(readInPlace.get()).isPositive();
            store.client(StoreContract.ONE).removeAll(true);
            var usage = store.usage();
            assertThat(usage.objects()).isZero();
            assertThat(usage.used()).as("nothing leaked: %s", usage).isZero();
        }
    }

    /// Errors that cannot be logged either, as when there is no memory.
    @Test
    void errorsDoNotEndTheThreadOfTheStore() throws InterruptedException {
        var error =
                new OutOfMemoryError() {
                    @Override
                    public String getMessage() {
                        throw this;
                    }

                    @Override
                    public String toString() {
                        throw this;
                    }
                };
        var failing = new AtomicLong(3);
        var opened = new AtomicBoolean();
        var worked = new CountDownLatch(1);
        LongSupplier clock =
                () -> {
                    if (opened.get()) {
                        if (failing.getAndDecrement() > 0) {
                            throw error;
                        }
                        worked.countDown();
                    }
                    return 0;
                };
        var stepped = StoreConfig.DEFAULT.steppedBy(clock);
        var config =
                new StoreConfig(
                        stepped.leaseTime(),
                        stepped.renewLeases(),
                        stepped.putDiscard(),
                        stepped.putRelease(),
                        stepped.highWatermark(),
                        stepped.evictionRatio(),
                        stepped.evictSoftPinned(),
                        stepped.clientTime(),
                        stepped.checksums(),
                        stepped.heapBytes(),
                        stepped.clock(),
                        Duration.ofMillis(1));
        var store = EmbeddedStore.open(config);
        try {
            opened.set(true);
            assertThat(worked.await(60, TimeUnit.SECONDS)).isTrue();
        } finally {
            store.close();
        }
    }

    private void guarded(Runnable work) {
        try {
            work.run();
        } catch (Throwable e) {
            failures.add(e);
        }
    }

    private static void remount(EmbeddedStore store) {
        for (int i = 0; i < 60; i++) {
            store.unmount("b");
            store.mount("b", 64 * SIZE);
            store.tick();
            Thread.yield();
        }
    }

    private void work(EmbeddedStore store, int number) {
        var random = new SplittableRandom(number);
        var client = store.client(StoreContract.ONE);
        try (var arena = Arena.ofShared()) {
            var buffer = arena.allocate(8 * SIZE, 8);
            client.register(buffer);
            var batch = new StoreBatch();
            for (int round = 0; round < ROUNDS && failures.isEmpty(); round++) {
                batch.clear();
                int count = 1 + random.nextInt(8);
                var keys = new int[count];
                for (int i = 0; i < count; i++) {
                    keys[i] = random.nextInt(KEYS);
                    batch.add("k" + keys[i], keys[i] % 5 == 0 ? "g" + keys[i] / 20 : null)
                            .buffer(buffer, i * SIZE, SIZE / 4)
                            .buffer(buffer, i * SIZE + SIZE / 4, SIZE - SIZE / 4);
                }
                switch (random.nextInt(8)) {
                    case 0, 1, 2 -> put(client, batch, buffer, keys, random.nextLong());
                    case 3, 4, 5 -> get(client, batch, buffer, keys);
                    case 6 -> readInPlace(client, keys);
                    default -> client.remove("k" + keys[0], keys[0] >= FORCED);
                }
            }
        }
    }

    private static void put(
            EmbeddedClient client, StoreBatch batch, MemorySegment buffer, int[] keys, long salt) {
        for (int i = 0; i < keys.length; i++) {
            fill(buffer.asSlice(i * SIZE, SIZE), keys[i], salt + i);
        }
        var results = new int[keys.length];
        client.put(batch, PutOptions.DEFAULT, results);
        for (int result : results) {
            // OBJECT_NOT_FOUND: its segment was unmounted while it was written.
            assertThat(result).isIn(0, -200, -704);
        }
    }

    private void get(EmbeddedClient client, StoreBatch batch, MemorySegment buffer, int[] keys) {
        var results = new long[keys.length];
        client.get(batch, results);
        for (int i = 0; i < keys.length; i++) {
            assertThat(results[i]).isIn(SIZE, -703L, -704L);
            // The same key twice in one batch has the same buffer content in both places.
            if (results[i] == SIZE) {
                check(buffer.asSlice(i * SIZE, SIZE), keys[i]);
                read.incrementAndGet();
            }
        }
    }

    /// Reads where a descriptor points to, and counts it if the lease is not over by then.
    private void readInPlace(EmbeddedClient client, int[] keys) {
        var names = new ArrayList<String>();
        for (int key : keys) {
            names.add("k" + key);
        }
        long begin = System.nanoTime();
        var found = new @Nullable ReplicaDescriptor[keys.length];
        client.describe(List.copyOf(names), found, new int[keys.length]);
        for (int i = 0; i < keys.length; i++) {
            var replica = found[i];
            if (replica == null || keys[i] >= FORCED || !replica.segment().equals("a")) {
                continue; // force ends leases early, and the other segment is unmounted so
            }
            try (var arena = Arena.ofConfined()) {
                var copy = arena.allocate(SIZE, 8);
                copy.copyFrom(client.memory(replica));
                if (System.nanoTime() - begin < replica.leaseNanos()) {
                    check(copy, keys[i]);
                    readInPlace.incrementAndGet();
                }
            }
        }
    }

    private static void fill(MemorySegment memory, int key, long salt) {
        memory.setAtIndex(ValueLayout.JAVA_LONG, 0, key);
        for (int w = 1; w < WORDS; w++) {
            memory.setAtIndex(ValueLayout.JAVA_LONG, w, salt + w);
        }
    }

    private static void check(MemorySegment memory, int key) {
        assertThat(memory.getAtIndex(ValueLayout.JAVA_LONG, 0)).isEqualTo(key);
        long salt = memory.getAtIndex(ValueLayout.JAVA_LONG, 1) - 1;
        for (int w = 2; w < WORDS; w++) {
            if (memory.getAtIndex(ValueLayout.JAVA_LONG, w) != salt + w) {
                throw new AssertionError("torn at word " + w + " of key " + key);
            }
        }
    }
}
