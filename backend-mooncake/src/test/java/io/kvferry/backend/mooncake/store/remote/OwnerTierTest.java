// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreIdentity;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.SplittableRandom;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;

/// An owner over a disk tier, in a process of its own that is killed.
class OwnerTierTest {
    private static final StoreIdentity ONE = new StoreIdentity("", "model", "layout");
    private static final int SIZE = 20_000;
    private static final int MOST = 4000;

    @TempDir Path folder;

    private final Arena arena = Arena.ofShared();
    private final MemorySegment memory = arena.allocate(64L * SIZE, 4096);

    @AfterEach
    void close() {
        arena.close();
    }

    private static RemoteStore user(OwnerChild owner) {
        var config =
                new RemoteStoreConfig(
                        owner.address(),
                        Optional.empty(),
                        Optional.empty(),
                        false,
                        Duration.ofSeconds(60),
                        Duration.ofSeconds(120));
        return RemoteStore.open(config, ONE, false);
    }

    private static void fill(MemorySegment piece, int seed) {
        for (int i = 0; i < SIZE; i += 4) {
            piece.set(ValueLayout.JAVA_INT, i, seed * 1_000_003 + i);
        }
    }

    private static boolean isThat(MemorySegment piece, int seed) {
        for (int i = 0; i < SIZE; i += 4) {
            if (piece.get(ValueLayout.JAVA_INT, i) != seed * 1_000_003 + i) {
                return false;
            }
        }
        return true;
    }

    private int put(RemoteStore store, int seed) {
        MemorySegment piece = memory.asSlice(0, SIZE);
        fill(piece, seed);
        var results = new int[1];
        store.put(new StoreBatch().add("k" + seed).buffer(piece), PutOptions.DEFAULT, results);
        return results[0];
    }

    private static void await(BooleanSupplier condition) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(100);
        while (!condition.getAsBoolean()) {
            assertThat(System.nanoTime() - end).isNegative();
            Thread.sleep(2);
        }
    }

    private static boolean isOnDisk(RemoteStore store, String key) {
        return store.list("", key, 10_000).stream()
                .anyMatch(object -> object.key().equals(key) && object.onDisk());
    }

    @Test
    void readsFromDiskWhatDoesNotFitIntoMemory() throws Exception {
        try (var owner = new OwnerChild(0, 1 << 20, folder.resolve("tier"));
                var store = user(owner)) {
            store.register(memory);
            for (int i = 0; i < 150; i++) { // 3 MB
                int seed = i;
                await(() -> put(store, seed) == 0); // -200 while evictions make room
            }
            for (int i = 0; i < 150; i++) {
                String key = "k" + i;
                await(() -> isOnDisk(store, key));
            }
            var batch = new StoreBatch();
            for (int i = 0; i < 60; i++) { // more than the staging memory
                batch.add("k" + i).buffer(memory, (long) i * SIZE, SIZE);
            }
            memory.fill((byte) 0);
            var results = new long[60];
            store.get(batch, results);
            assertThat(results).containsOnly(SIZE);
            for (int i = 0; i < 60; i++) {
                assertThat(isThat(memory.asSlice((long) i * SIZE, SIZE), i)).isTrue();
            }
            var found = new @Nullable ReplicaDescriptor[150];
            List<String> keys = IntStream.range(0, 150).mapToObj(i -> "k" + i).toList();
            store.describe(keys, found, new int[150]);
            assertThat(found)
                    .anyMatch(one -> one != null && one.isLocalDiskReplica())
                    .noneMatch(one -> one == null);
        }
    }

    /// Killed at random moments while objects are written. What was on disk is found again, and
    /// nothing ever has other bytes.
    @Test
    void whatWasCompleteIsFoundAgainAfterAKill() throws Exception {
        long seed = System.nanoTime();
        var random = new SplittableRandom(seed);
        Path tier = folder.resolve("tier");
        int next = 0;
        var certain = new TreeSet<Integer>();
        for (int life = 0; life < 3; life++) {
            try (var owner = new OwnerChild(0, 8 << 20, tier);
                    var store = user(owner)) {
                store.register(memory);
                for (int known : certain) {
                    assertThat(get(store, known)).as("seed %d, k%d", seed, known).isEqualTo(SIZE);
                }
                for (int i = 0; i < next; i++) {
                    assertThat(get(store, i)).as("seed %d, k%d", seed, i).isIn((long) SIZE, -704L);
                }
                int count = 20 + random.nextInt(60);
                for (int i = 0; i < count; i++) {
                    put(store, next++);
                }
                if (random.nextBoolean()) {
                    int last = next - count;
                    await(() -> isOnDisk(store, "k" + last));
                }
                store.list("", "", MOST)
                        .forEach(object -> {
                            if (object.onDisk()) {
                                certain.add(Integer.parseInt(object.key().substring(1)));
                            }
                        });
                owner.kill();
            }
        }
        assertThat(certain).isNotEmpty();
    }

    private long get(RemoteStore store, int seed) {
        MemorySegment piece = memory.asSlice(0, SIZE);
        piece.fill((byte) 0);
        var results = new long[1];
        store.get(new StoreBatch().add("k" + seed).buffer(piece), results);
        if (results[0] > 0) {
            assertThat(isThat(piece, seed)).as("k%d", seed).isTrue();
        }
        return results[0];
    }
}
