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
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
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

    /// Puts objects with one call.
    ///
    /// @return how many found room
    private long put(RemoteStore store, int from, int to) {
        var batch = new StoreBatch();
        for (int i = from; i < to; i++) {
            MemorySegment piece = memory.asSlice((long) (i - from) * SIZE, SIZE);
            fill(piece, i);
            batch.add("k" + i).buffer(piece);
        }
        var results = new int[to - from];
        store.put(batch, PutOptions.DEFAULT, results);
        return Arrays.stream(results).filter(result -> result == 0).count();
    }

    private static void await(BooleanSupplier condition) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(100);
        while (!condition.getAsBoolean()) {
            assertThat(System.nanoTime() - end).isNegative();
            Thread.sleep(2);
        }
    }

    /// Numbers of the objects that are on disk.
    private static Set<Integer> onDisk(RemoteStore store) {
        return store.list("", "", MOST).stream()
                .filter(StoredKey::onDisk)
                .map(object -> Integer.valueOf(object.key().substring(1)))
                .collect(Collectors.toSet());
    }

    @Test
    @Timeout(300)
    void readsFromDiskWhatDoesNotFitIntoMemory() throws Exception {
        try (var owner = new OwnerChild(0, 1 << 20, folder.resolve("tier"));
                var store = user(owner)) {
            store.register(memory);
            for (int i = 0; i < 150; i += 10) { // 3 MB
                int from = i;
                await(() -> put(store, from, from + 10) == 10); // evictions make room
            }
            await(() -> onDisk(store).size() == 150);
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
    @Timeout(300)
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
                for (int from = 0; from < next; from += 10) {
                    check(store, from, Math.min(next, from + 10), certain);
                }
                int first = next;
                for (int left = 2 + random.nextInt(5); left > 0; left--) {
                    put(store, next, next + 10);
                    next += 10;
                }
                if (life == 0 || random.nextBoolean()) {
                    await(() -> onDisk(store).contains(first));
                }
                certain.addAll(onDisk(store));
                owner.kill();
            }
        }
        assertThat(certain).isNotEmpty();
    }

    private void check(RemoteStore store, int from, int to, Set<Integer> certain) {
        var batch = new StoreBatch();
        for (int i = from; i < to; i++) {
            batch.add("k" + i).buffer(memory, (long) (i - from) * SIZE, SIZE);
        }
        memory.fill((byte) 0);
        var results = new long[to - from];
        store.get(batch, results);
        for (int i = from; i < to; i++) {
            long result = results[i - from];
            if (result == SIZE) {
                assertThat(isThat(memory.asSlice((long) (i - from) * SIZE, SIZE), i))
                        .as("bytes of k%d", i)
                        .isTrue();
            } else {
                assertThat(result).as("k%d", i).isEqualTo(-704);
                assertThat(certain).doesNotContain(i);
            }
        }
    }
}
