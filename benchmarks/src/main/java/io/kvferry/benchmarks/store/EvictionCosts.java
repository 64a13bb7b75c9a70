// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.benchmarks.Allocation;
import io.kvferry.benchmarks.Table;

import java.lang.foreign.Arena;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.List;

/// CPU cost per object of putting and of evicting in full stores of different size, with continuous
/// puts.
final class EvictionCosts {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private EvictionCosts() {}

    static void run(int[] sizes) {
        var table =
                new Table(
                        "objects",
                        "evictions",
                        "evicted per eviction",
                        "CPU us per eviction",
                        "CPU ns per evicted object",
                        "CPU ns per put",
                        "heap B per put");
        for (int size : sizes) {
            measure(table, size);
        }
        table.print();
    }

    private static void measure(Table table, int size) {
        List<String> keys = KeyCosts.keys(2 * size);
        try (var store = EmbeddedStore.open(StoreConfig.DEFAULT.steppedBy(System::nanoTime));
                var arena = Arena.ofConfined()) {
            store.mount("a", Math.max(1024, size * KeyCosts.VALUE));
            var client = store.client(KeyCosts.IDENTITY);
            var value = arena.allocate(KeyCosts.VALUE);
            client.register(value);
            var batch = new StoreBatch();
            var results = new int[1];
            long evictNanos = 0;
            long evictions = 0;
            long evicted = 0;
            long putNanos = 0;
            long puts = 0;
            long heap = 0;
            int mark = (int) (0.9 * size);
            for (int i = 0; i < keys.size(); i++) {
                long before = THREADS.getCurrentThreadCpuTime();
                long allocated = Allocation.ofThisThread();
                client.put(
                        batch.clear().add(keys.get(i)).buffer(value), PutOptions.DEFAULT, results);
                heap += Allocation.ofThisThread() - allocated;
                putNanos += THREADS.getCurrentThreadCpuTime() - before;
                puts++;
                if (i > mark && i % Math.max(1, size / 100) == 0) {
                    long begin = THREADS.getCurrentThreadCpuTime();
                    long gone = store.tick();
                    if (gone > 0) {
                        evictNanos += THREADS.getCurrentThreadCpuTime() - begin;
                        evictions++;
                        evicted += gone;
                    }
                }
                if (results[0] != 0) {
                    throw new IllegalStateException("put: " + client.noRoom());
                }
            }
            table.row(
                    size,
                    evictions,
                    evicted / Math.max(1, evictions),
                    evictNanos / 1e3 / Math.max(1, evictions),
                    (double) evictNanos / Math.max(1, evicted),
                    (double) putNanos / puts,
                    (double) heap / puts);
        }
    }
}
