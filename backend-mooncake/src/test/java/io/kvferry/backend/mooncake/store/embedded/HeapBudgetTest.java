// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.PutSessions.Started;
import io.kvferry.backend.mooncake.store.embedded.objects.SegmentTable;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.backend.mooncake.store.tier.BucketEviction;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.backend.mooncake.store.tier.TierConfig;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.FileCalls;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;

/// What objects cost on the heap is bounded, however small their values are.
class HeapBudgetTest {
    private static final StoreIdentity ONE = new StoreIdentity("", "model", "layout");
    private static final long BUDGET = 1 << 20;
    private static final int NO_ROOM = StoreCode.NO_AVAILABLE_HANDLE.number();

    @TempDir Path folder;

    private final Arena arena = Arena.ofShared();

    @AfterEach
    void close() {
        arena.close();
    }

    private static SteppedStore open(@Nullable DiskTier tier) {
        var made = new SteppedStore(from -> from.withHeap(BUDGET), new SegmentTable(), tier);
        made.store.mount("a", 1 << 20);
        return made;
    }

    private DiskTier tier(BucketEviction eviction) {
        var config =
                TierConfig.of(folder, 64 << 20)
                        .withBuckets(64 << 10, 5, eviction)
                        .withIo(
                                DirectIo.OFF,
                                Duration.ZERO,
                                Duration.ofSeconds(60),
                                Duration.ofSeconds(10));
        return DiskTier.open(config, SegmentMemory.PRIVATE, FileCalls.ofPlatform());
    }

    private int put(EmbeddedClient client, String key, @Nullable String group) {
        var batch = group == null ? new StoreBatch().add(key) : new StoreBatch().add(key, group);
        MemorySegment value = arena.allocate(1);
        var results = new int[1];
        client.put(batch.buffer(value), PutOptions.DEFAULT, results);
        return results[0];
    }

    private static String key(int i) {
        return i + "k".repeat(20_000);
    }

    private static long heap(EmbeddedStore store) {
        return store.gauges().getOrDefault("kvferry_object_heap_bytes", -1L);
    }

    private static void offload(EmbeddedStore store) {
        while (store.offloads.step(true)) {
            // the next bucket
        }
    }

    @Test
    void aPutBeyondItIsRefusedAndTheNextEvictionMakesRoom() {
        try (var made = open(null)) {
            var client = made.store.client(ONE);
            int refused = 0;
            for (int i = 0; i < 200; i++) { // 4 MB in keys, 200 bytes in values
                while (put(client, key(i), null) == NO_ROOM) {
                    refused++;
                    assertThat(client.noRoom()).contains("heap");
                    assertThat(made.store.tick()).isPositive();
                }
                assertThat(heap(made.store)).isBetween(1L, BUDGET);
                made.pass(Duration.ofMillis(1));
            }
            assertThat(refused).isPositive();
            assertThat(client.size(key(199))).isEqualTo(1);
            assertThat(made.store.usedBytes()).isLessThan(20_000);
            assertThat(made.store.counters().get("master_evicted_key_count")).isPositive();
        }
    }

    @Test
    void theStoreMakesRoomBeforeItIsUsedUp() {
        try (var made = open(null)) {
            var client = made.store.client(ONE);
            for (int i = 0; i < 200; i++) {
                assertThat(put(client, key(i), null)).isZero();
                made.store.tick();
                made.pass(Duration.ofMillis(1));
            }
            assertThat(heap(made.store)).isLessThan(BUDGET);
        }
    }

    @Test
    void whereNothingCanBeEvictedTheReasonNamesTheHeap() {
        try (var made = open(null)) {
            var client = made.store.client(ONE);
            int i = 0;
            while (put(client, key(i), null) == 0) {
                client.exists(List.of(key(i)), true, new int[1]);
                i++;
            }
            assertThat(made.store.tick()).isZero();
            assertThat(put(client, key(i), null)).isEqualTo(NO_ROOM);
            assertThat(client.noRoom()).contains("heap").contains("-Xmx");
            made.pass(Duration.ofSeconds(11));
            assertThat(made.store.tick()).isPositive();
            assertThat(put(client, key(i), null)).isZero();
        }
    }

    @Test
    void whatGoesCountsNoLonger() {
        try (var made = open(null)) {
            var client = made.store.client(ONE);
            assertThat(heap(made.store)).isZero();
            put(client, "a", null);
            long one = heap(made.store);
            put(client, "b", "group");
            put(client, "c", "group");
            assertThat(heap(made.store)).isGreaterThan(3 * one);
            assertThat(put(client, "c", "group")).isZero(); // it is there already
            assertThat(client.removeAll(true)).isEqualTo(3);
            assertThat(heap(made.store)).isZero();

            long left = start(client, "left");
            long revoked = start(client, "revoked");
            assertThat(client.putRevoke("revoked", revoked)).isZero();
            made.pass(Duration.ofSeconds(32));
            made.store.tick(); // nobody ended it: it is discarded, and kept for its writer
            assertThat(heap(made.store)).isEqualTo(one + 2 * "lef".length());
            assertThat(client.putRevoke("left", left)).isNegative();
            assertThat(heap(made.store)).isZero();

            start(client, "due");
            made.pass(Duration.ofSeconds(32));
            made.store.tick();
            made.pass(Duration.ofSeconds(600));
            made.store.tick();
            assertThat(heap(made.store)).isZero();

            put(client, "d", "another");
            start(client, "gone");
            made.store.unmount("a");
            assertThat(heap(made.store)).isZero();
        }
    }

    private static long start(EmbeddedClient client, String key) {
        var started = new Started[1];
        client.putStart(
                List.of(key), new long[] {1}, List.of(), PutOptions.DEFAULT, started, new int[1]);
        Started put = started[0];
        assertThat(put).isNotNull();
        return put == null ? 0 : put.number();
    }

    @Test
    void objectsThatAreOnDiskOnlyCountAndGoWithTheirBuckets() {
        try (var made = open(tier(BucketEviction.FIFO))) {
            var client = made.store.client(ONE);
            for (int i = 0; i < 200; i++) {
                assertThat(put(client, key(i), null)).isZero();
                offload(made.store);
                made.pass(Duration.ofMillis(1));
            }
            assertThat(heap(made.store)).isBetween(1L, BUDGET);
            assertThat(client.size(key(199))).isEqualTo(1);
            assertThat(client.size(key(0))).isEqualTo(StoreCode.OBJECT_NOT_FOUND.number());
            made.store.unmount("a");
            assertThat(heap(made.store)).isPositive(); // on disk
            assertThat(client.removeAll(true)).isPositive();
            assertThat(heap(made.store)).isZero();
        }
    }

    @Test
    void aTierThatDeletesNothingLetsNothingMoreIn() {
        try (var made = open(tier(BucketEviction.NONE))) {
            var client = made.store.client(ONE);
            int i = 0;
            while (put(client, key(i), null) == 0) {
                offload(made.store);
                made.pass(Duration.ofMillis(1));
                i++;
            }
            made.store.unmount("a");
            made.store.mount("a", 1 << 20);
            made.store.tick();
            assertThat(put(client, key(i), null)).isEqualTo(NO_ROOM);
            assertThat(client.noRoom()).contains("heap");
            assertThat(client.size(key(0))).isEqualTo(1);
        }
    }

    @Test
    void whatWasFoundOnDiskCounts() {
        try (var made = open(tier(BucketEviction.FIFO))) {
            put(made.store.client(ONE), key(0), "group");
            offload(made.store);
        }
        try (var made = open(tier(BucketEviction.FIFO))) {
            assertThat(heap(made.store)).isGreaterThan(20_000);
        }
    }

    @Test
    void theBudgetIsAPartOfTheLargestHeap() {
        assertThat(StoreConfig.DEFAULT.heapBytes()).isEqualTo(Runtime.getRuntime().maxMemory() / 4);
        assertThatThrownBy(() -> StoreConfig.DEFAULT.withHeap(0))
                .isInstanceOf(IllegalArgumentException.class);
    }
}
