// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedClient;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.PutSessions;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.benchmarks.Table;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/// Keys per second of lookups, descriptors and put starts with their ends, one by one and in
/// batches of 128, over stores of different size.
final class KeyCosts {
    static final long VALUE = 64;
    static final StoreIdentity IDENTITY = new StoreIdentity("", "bench", "bytes");
    private static final int BATCH = 128;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private KeyCosts() {}

    static void run(int[] sizes, boolean quick) {
        var table =
                new Table(
                        "keys", "clients", "call", "keys per call", "million keys/s", "CPU ns/key");
        long nanos = TimeUnit.MILLISECONDS.toNanos(quick ? 200 : 2000);
        for (int size : sizes) {
            List<String> keys = keys(size);
            try (var store = filled(keys)) {
                for (int clients : quick ? new int[] {1, 2} : new int[] {1, 2, 4}) {
                    for (int batch : new int[] {1, BATCH}) {
                        for (var call : Call.values()) {
                            measure(store, keys, clients, batch, call, nanos / 4); // warm
                            var cost = measure(store, keys, clients, batch, call, nanos);
                            table.row(
                                    size,
                                    clients,
                                    call,
                                    batch,
                                    cost.keys * 1e3 / nanos,
                                    (double) cost.cpuNanos / cost.keys);
                        }
                    }
                }
            }
        }
        table.print();
    }

    private enum Call {
        EXISTS,
        DESCRIBE,
        PUT_START_AND_END
    }

    static List<String> keys(int count) {
        var keys = new ArrayList<String>(count);
        var random = new SplittableRandom(count);
        for (int i = 0; i < count; i++) {
            keys.add(
                    "model@kvferry:0123456789abcdef@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@"
                            + Long.toHexString(random.nextLong())
                            + Long.toHexString(random.nextLong())
                            + i);
        }
        return keys;
    }

    /// A store with these keys, that evicts nothing by itself.
    static EmbeddedStore filled(List<String> keys) {
        var store = EmbeddedStore.open(StoreConfig.DEFAULT.steppedBy(System::nanoTime));
        store.mount("a", Math.max(1 << 20, keys.size() * VALUE * 2));
        try (var arena = Arena.ofConfined()) {
            var client = store.client(IDENTITY);
            var value = arena.allocate(VALUE);
            client.register(value);
            var batch = new StoreBatch();
            for (String key : keys) {
                var results = new int[1];
                client.put(batch.clear().add(key).buffer(value), PutOptions.DEFAULT, results);
                if (results[0] != 0) {
                    throw new IllegalStateException("put: " + results[0]);
                }
            }
        }
        return store;
    }

    /// Of all clients together.
    private record Cost(long keys, long cpuNanos) {}

    private static Cost measure(
            EmbeddedStore store, List<String> keys, int clients, int batch, Call call, long nanos) {
        var costs = new Cost[clients];
        var start = new CountDownLatch(1);
        var threads = new ArrayList<Thread>();
        for (int i = 0; i < clients; i++) {
            int number = i;
            threads.add(
                    Thread.ofPlatform()
                            .start(() -> {
                                try {
                                    start.await();
                                    costs[number] = work(store, keys, number, batch, call, nanos);
                                } catch (InterruptedException _) {
                                    Thread.currentThread().interrupt();
                                }
                            }));
        }
        start.countDown();
        try {
            for (Thread thread : threads) {
                thread.join();
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
        return Arrays.stream(costs)
                .reduce(
                        new Cost(0, 0),
                        (a, b) -> new Cost(a.keys + b.keys, a.cpuNanos + b.cpuNanos));
    }

    private static Cost work(
            EmbeddedStore store, List<String> keys, int number, int batch, Call call, long nanos) {
        var client = store.client(IDENTITY);
        var random = new SplittableRandom(number);
        var chosen = new ArrayList<String>(batch);
        var results = new int[batch];
        var found = new @Nullable ReplicaDescriptor[batch];
        var puts = new Puts(client, number, batch);
        long done = 0;
        long begin = System.nanoTime();
        long cpu = THREADS.getCurrentThreadCpuTime();
        long lost = 0; // taken by what is not measured
        long lostCpu = 0;
        while (System.nanoTime() - begin - lost < nanos) {
            switch (call) {
                case EXISTS -> {
                    choose(keys, random, chosen, batch);
                    client.exists(chosen, true, results);
                }
                case DESCRIBE -> {
                    choose(keys, random, chosen, batch);
                    client.describe(chosen, found, results);
                }
                case PUT_START_AND_END -> {
                    long before = System.nanoTime();
                    long cpuBefore = THREADS.getCurrentThreadCpuTime();
                    puts.prepare();
                    lostCpu += THREADS.getCurrentThreadCpuTime() - cpuBefore;
                    lost += System.nanoTime() - before;
                    puts.run();
                }
            }
            done += call == Call.PUT_START_AND_END ? BATCH : batch;
        }
        long used = THREADS.getCurrentThreadCpuTime() - cpu - lostCpu;
        puts.prepare(); // leaves nothing behind
        return new Cost(done, used);
    }

    private static void choose(
            List<String> keys, SplittableRandom random, List<String> chosen, int batch) {
        chosen.clear();
        int start = random.nextInt(keys.size() - batch + 1);
        for (int i = 0; i < batch; i++) {
            chosen.add(keys.get(start + i));
        }
    }

    /// Puts of [#BATCH] keys of its own, in calls of `batch`; they are removed again, off the
    /// clock.
    private static final class Puts {
        private final EmbeddedClient client;
        private final List<List<String>> calls = new ArrayList<>();
        private final long[] sizes;
        private final PutSessions.@Nullable Started[] started;
        private final int[] results;

        Puts(EmbeddedClient client, int number, int batch) {
            this.client = client;
            for (int i = 0; i < BATCH; i += batch) {
                var keys = new ArrayList<String>();
                for (int k = 0; k < batch; k++) {
                    keys.add("put-" + number + "-" + i + "-" + k);
                }
                calls.add(List.copyOf(keys));
            }
            sizes = new long[batch];
            Arrays.fill(sizes, VALUE);
            started = new PutSessions.@Nullable Started[batch];
            results = new int[batch];
        }

        void prepare() {
            calls.forEach(keys -> keys.forEach(key -> client.remove(key, true)));
        }

        void run() {
            for (var keys : calls) {
                client.putStart(keys, sizes, List.of(), PutOptions.DEFAULT, started, results);
                for (var put : started) {
                    if (put == null || client.putEnd(put.key(), put.number(), 0) != 0) {
                        throw new IllegalStateException("put: " + Arrays.toString(results));
                    }
                }
            }
        }
    }
}
