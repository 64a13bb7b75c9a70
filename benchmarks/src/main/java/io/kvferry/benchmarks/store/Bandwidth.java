// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedClient;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.benchmarks.Table;
import io.kvferry.toolkit.memory.HostPages;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/// Puts and gets of batches of 32 objects, alternating with a memory copy of as many bytes in
/// pieces of the object size. Each object is gathered from 8 buffers. Rates are per CPU time of the
/// single thread, so that other load on the machine matters less.
final class Bandwidth {
    private static final int BATCH = 32;
    private static final int PIECES = 8;
    private static final long WARM_UP_NANOS = TimeUnit.SECONDS.toNanos(2);
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private Bandwidth() {}

    static void run(int rounds) {
        var table =
                new Table(
                        "object",
                        "checksum",
                        "copy GB/s",
                        "put GB/s",
                        "get GB/s",
                        "put ratio min",
                        "median",
                        "max",
                        "get ratio min",
                        "median",
                        "max");
        for (long size : new long[] {256 << 10, 4 << 20}) {
            for (boolean checksum : new boolean[] {false, true}) {
                measure(table, size, checksum, rounds);
            }
        }
        table.print();
    }

    private static void measure(Table table, long size, boolean checksum, int rounds) {
        var config =
                StoreConfig.DEFAULT.withChecksums(checksum).withLeases(Duration.ofMillis(1), true);
        try (var arena = Arena.ofShared();
                var store = EmbeddedStore.open(config)) {
            store.mount("a", 2 * BATCH * size);
            var client = store.client(new StoreIdentity("", "bench", "bytes"));
            MemorySegment source = HostPages.allocate(BATCH * size, arena);
            MemorySegment target = HostPages.allocate(BATCH * size, arena);
            source.fill((byte) 3);
            client.register(source);
            client.register(target);
            var copies = new double[rounds];
            var puts = new double[rounds];
            var gets = new double[rounds];
            long warm = System.nanoTime() + WARM_UP_NANOS;
            for (int round = -1; round < rounds; round += System.nanoTime() < warm ? 0 : 1) {
                double copy = time(size, () -> copy(source, target, size));
                double put = time(size, () -> put(client, source, size));
                double get = time(size, () -> get(client, target, size));
                client.removeAll(true);
                if (round >= 0) {
                    copies[round] = copy;
                    puts[round] = put;
                    gets[round] = get;
                }
            }
            if (source.mismatch(target) >= 0) {
                throw new IllegalStateException("wrong bytes came back");
            }
            var putRatio = ratios(puts, copies);
            var getRatio = ratios(gets, copies);
            table.row(
                    (size >> 10) + " KiB",
                    checksum,
                    median(copies),
                    median(puts),
                    median(gets),
                    putRatio[0],
                    median(putRatio),
                    putRatio[rounds - 1],
                    getRatio[0],
                    median(getRatio),
                    getRatio[rounds - 1]);
        }
    }

    /// GB per second of processor time, of moving a batch.
    private static double time(long size, LongSupplier work) {
        long begin = THREADS.getCurrentThreadCpuTime();
        long moved = work.getAsLong();
        long nanos = Math.max(1, THREADS.getCurrentThreadCpuTime() - begin);
        if (moved != BATCH * size) {
            throw new IllegalStateException("moved " + moved + " bytes of " + BATCH * size);
        }
        return (double) moved / nanos;
    }

    private static long copy(MemorySegment source, MemorySegment target, long size) {
        for (int i = 0; i < BATCH; i++) {
            MemorySegment.copy(source, i * size, target, i * size, size);
        }
        return BATCH * size;
    }

    private static StoreBatch batch(MemorySegment memory, long size) {
        var batch = new StoreBatch();
        long piece = size / PIECES;
        for (int i = 0; i < BATCH; i++) {
            batch.add("key-" + i);
            for (int p = 0; p < PIECES; p++) {
                batch.buffer(memory, i * size + p * piece, piece);
            }
        }
        return batch;
    }

    private static long put(EmbeddedClient client, MemorySegment source, long size) {
        var results = new int[BATCH];
        client.put(batch(source, size), PutOptions.DEFAULT, results);
        return Arrays.stream(results).filter(result -> result == 0).count() * size;
    }

    private static long get(EmbeddedClient client, MemorySegment target, long size) {
        var results = new long[BATCH];
        client.get(batch(target, size), results);
        return Arrays.stream(results).sum();
    }

    private static double[] ratios(double[] of, double[] to) {
        var ratios = new double[of.length];
        for (int i = 0; i < of.length; i++) {
            ratios[i] = of[i] / to[i];
        }
        Arrays.sort(ratios);
        return ratios;
    }

    private static double median(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }
}
