// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedClient;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.benchmarks.Table;
import io.kvferry.benchmarks.replay.Trace;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;

/// Replays a trace through the store, using the trace's timestamps as the clock. For each request,
/// the longest stored prefix counts as hit; then all its blocks are looked up, and put if missing.
/// Compared with an exact LRU of the same capacity. A store without a limit must have exactly the
/// hits of an unlimited cache.
final class StoreReplay {
    private static final Pattern TIME = Pattern.compile("\"timestamp\":\\s*([0-9]+)");
    private static final long MADE_PAUSE_MILLIS = 300;

    private StoreReplay() {}

    /// Milliseconds of the requests that [Trace#read] takes, in their order.
    static long[] timestamps(Path file) throws IOException {
        try (var lines = Files.lines(file)) {
            return lines.filter(line -> line.contains("\"hash_ids\": [") && !line.contains("[]"))
                    .map(TIME::matcher)
                    .filter(matcher -> matcher.find())
                    .mapToLong(matcher -> Long.parseLong(matcher.group(1)))
                    .toArray();
        }
    }

    /// @param times empty for a made trace
    static void run(Trace trace, long[] times) {
        if (times.length > 0 && times.length != trace.requests().size()) {
            throw new IllegalArgumentException(
                    times.length + " times for " + trace.requests().size() + " requests");
        }
        var table =
                new Table(
                        "capacity blocks",
                        "store hit rate",
                        "exact LRU",
                        "without lookup leases",
                        "puts without room",
                        "million blocks/s");
        int distinct = trace.distinct();
        int unlimited = (int) (distinct / 0.85);
        double references = trace.references();
        for (int capacity : capacities(distinct, unlimited)) {
            var leasing = new Run(capacity, true).replay(trace, times);
            var plain = new Run(capacity, false).replay(trace, times);
            long exact = trace.exactLru(capacity);
            if (capacity == unlimited && leasing.hits != exact) {
                throw new IllegalStateException(
                        "without a limit " + leasing.hits + " hits instead of " + exact);
            }
            table.row(
                    capacity == unlimited ? "unlimited" : capacity,
                    rate(leasing.hits / references),
                    rate(exact / references),
                    rate(plain.hits / references),
                    leasing.refused,
                    references * 1e3 / leasing.nanos);
        }
        table.print();
    }

    /// Blocks of a made trace that a store of that many blocks finds.
    static long hits(Trace trace, int capacity) {
        return new Run(capacity, true).replay(trace, new long[0]).hits;
    }

    private static String rate(double rate) {
        return String.format(Locale.ROOT, "%.4f", rate);
    }

    private static List<Integer> capacities(int distinct, int unlimited) {
        var capacities = new ArrayList<Integer>();
        for (int capacity :
                new int[] {1000, 5859, 10_000, 19_531, 30_000, 50_000, 97_656, 100_000}) {
            if (capacity < distinct) {
                capacities.add(capacity);
            }
        }
        capacities.add(unlimited);
        return capacities;
    }

    private static final class Run {
        private final int capacity;
        private final boolean leases;
        private final AtomicLong clock = new AtomicLong();
        private final StoreBatch batch = new StoreBatch();
        private final int[] result = new int[1];
        long hits;
        long refused;
        long nanos;

        Run(int capacity, boolean leases) {
            this.capacity = capacity;
            this.leases = leases;
        }

        Run replay(Trace trace, long[] times) {
            // Every look at the clock is a nanosecond, so that no two uses have the same age.
            var config = StoreConfig.DEFAULT.steppedBy(clock::incrementAndGet);
            try (var store = EmbeddedStore.open(config);
                    var arena = Arena.ofConfined()) {
                store.mount("a", capacity * KeyCosts.VALUE);
                var client = store.client(KeyCosts.IDENTITY);
                var value = arena.allocate(KeyCosts.VALUE);
                client.register(value);
                batch.clear().add("").buffer(value);
                long begin = System.nanoTime();
                for (int i = 0; i < trace.requests().size(); i++) {
                    long millis = times.length > 0 ? times[i] : i * MADE_PAUSE_MILLIS;
                    clock.accumulateAndGet(millis * 1_000_000, Math::max);
                    store.tick();
                    int[] ids = trace.requests().get(i);
                    var keys = new String[ids.length];
                    for (int k = 0; k < ids.length; k++) {
                        keys[k] = "block-" + ids[k];
                    }
                    hits += prefix(client, keys);
                    for (String key : keys) {
                        use(store, client, key, value);
                    }
                }
                nanos = System.nanoTime() - begin;
            }
            return this;
        }

        private int prefix(EmbeddedClient client, String[] keys) {
            int found = 0;
            while (found < keys.length && isThere(client, keys[found])) {
                found++;
            }
            return found;
        }

        private boolean isThere(EmbeddedClient client, String key) {
            client.exists(List.of(key), leases, result);
            return result[0] == 1;
        }

        private void use(
                EmbeddedStore store, EmbeddedClient client, String key, MemorySegment value) {
            if (isThere(client, key)) {
                return;
            }
            for (int attempt = 0; attempt < 2; attempt++) {
                client.put(batch.clear().add(key).buffer(value), PutOptions.DEFAULT, result);
                if (result[0] == 0) {
                    return;
                }
                store.tick(); // the store's thread would, within 10 ms
            }
            refused++;
        }
    }
}
