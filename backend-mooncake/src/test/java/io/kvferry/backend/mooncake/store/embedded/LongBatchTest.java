// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.management.ThreadMXBean;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreContract;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/// Batches that take longer than a lease, and what a batch costs in objects.
class LongBatchTest {
    private static final int KEYS = 64;
    private static final long SIZE = 4096;

    private final Arena arena = Arena.ofShared();
    private final MemorySegment memory = arena.allocate(KEYS * SIZE);
    private final StoreBatch batch = new StoreBatch();
    private final List<String> keys = new ArrayList<>();

    @AfterEach
    void close() {
        arena.close();
    }

    private void fillBatch() {
        keys.clear();
        batch.clear();
        for (int i = 0; i < KEYS; i++) {
            keys.add("k" + i);
            batch.add(keys.get(i)).buffer(memory, i * SIZE, SIZE);
        }
    }

    /// With a clock on which every look takes a second.
    private long[] readSlowly(boolean renew) {
        var clock = new AtomicLong();
        var config =
                StoreConfig.DEFAULT
                        .withLeases(StoreConfig.DEFAULT.leaseTime(), renew)
                        .steppedBy(() -> clock.addAndGet(TimeUnit.SECONDS.toNanos(1)));
        try (var store = EmbeddedStore.open(config)) {
            store.mount("a", 2 * KEYS * SIZE);
            var client = store.client(StoreContract.ONE);
            fillBatch();
            client.put(batch, PutOptions.DEFAULT, new int[KEYS]);
            var results = new long[KEYS];
            client.get(batch, results);
            return results;
        }
    }

    @Test
    void leasesAreRenewedWhileABatchIsRead() {
        assertThat(readSlowly(true)).containsOnly(SIZE);
    }

    @Test
    void withoutThatTheyExpire() {
        assertThat(readSlowly(false)).containsOnly(StoreCode.LEASE_EXPIRED.number());
    }

    @Test
    void readingMakesNoObjectsAndWritingOnePerKey() {
        var threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        try (var store = EmbeddedStore.open(StoreConfig.DEFAULT.withChecksums(true))) {
            store.mount("a", 4 * KEYS * SIZE);
            var client = store.client(StoreContract.ONE);
            client.register(memory);
            var results = new int[KEYS];
            var got = new long[KEYS];
            long puts = Long.MAX_VALUE;
            long reads = Long.MAX_VALUE;
            for (int round = 0; round < 300; round++) {
                fillBatch();
                client.removeAll(true);
                long before = threads.getCurrentThreadAllocatedBytes();
                client.put(batch, PutOptions.DEFAULT, results);
                long between = threads.getCurrentThreadAllocatedBytes();
                client.get(batch, got);
                client.exists(keys, true, results);
                long after = threads.getCurrentThreadAllocatedBytes();
                puts = Math.min(puts, between - before);
                reads = Math.min(reads, after - between);
                assertThat(Arrays.stream(got).allMatch(bytes -> bytes == SIZE)).isTrue();
            }
            assertThat(puts / KEYS).as("heap bytes per key put").isLessThanOrEqualTo(256);
            assertThat(reads / KEYS).as("heap bytes per key read").isLessThanOrEqualTo(8);
        }
    }
}
