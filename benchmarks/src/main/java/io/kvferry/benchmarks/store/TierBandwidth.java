// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedClient;
import io.kvferry.backend.mooncake.store.embedded.EmbeddedStore;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.backend.mooncake.store.tier.BucketEviction;
import io.kvferry.backend.mooncake.store.tier.BucketSource;
import io.kvferry.backend.mooncake.store.tier.DiskObject;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.backend.mooncake.store.tier.TierConfig;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.Table;
import io.kvferry.benchmarks.Tool;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.memory.HostPages;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Pattern;

/// The disk tier in turns with fio on the same folder: buckets written and brought to the medium
/// beside files of the same size that fio writes in pieces of 8 MiB and syncs; batches of 32
/// objects read into the caller's memory, checked, beside as many reads of the same size by 8
/// threads of fio. Direct I/O on both sides. Rates are bytes by the clock.
final class TierBandwidth {
    private static final int BATCH = 32;
    private static final int READERS = 8;
    private static final long PIECE = 8L << 20;
    private static final StoreIdentity IDENTITY = new StoreIdentity("", "bench", "bytes");

    private TierBandwidth() {}

    static void run(Path base, boolean quick) throws IOException, InterruptedException {
        var fio = Tool.find("fio", "apt-get install fio, to see the ratio");
        if (fio.isEmpty()) {
            return;
        }
        int rounds = 5;
        long bucket = quick ? 64L << 20 : 256L << 20;
        int buckets = quick ? 2 : 4;
        var table =
                new Table("object", "work", "fio GB/s", "tier GB/s", "ratio min", "median", "max");
        for (long size : new long[] {256 << 10, 4 << 20}) {
            Path folder = Files.createTempDirectory(base, "kvferry-tier");
            try {
                measure(table, fio.get(), folder, size, bucket, buckets, rounds);
            } finally {
                Folders.delete(folder);
            }
        }
        table.print();
    }

    private static void measure(
            Table table, Path fio, Path folder, long size, long bucket, int buckets, int rounds)
            throws IOException, InterruptedException {
        int perBucket = (int) (bucket / size);
        var writes = new double[2][rounds];
        var reads = new double[2][rounds];
        var config =
                TierConfig.of(folder.resolve("tier"), 100L * bucket * buckets)
                        .withBuckets(2 * bucket, perBucket, BucketEviction.FIFO);
        for (int round = 0; round < rounds; round++) {
            String other = "--directory=" + Files.createDirectories(folder.resolve("fio"));
            Tool.sync();
            writes[0][round] =
                    fio(
                            fio,
                            "write",
                            other,
                            "--bs=" + PIECE,
                            "--filesize=" + bucket,
                            "--nrfiles=" + buckets,
                            "--openfiles=1",
                            "--file_service_type=sequential",
                            "--fsync_on_close=1",
                            "--create_on_open=1",
                            "--fallocate=none");
            Tool.sync();
            writes[1][round] = write(config, size, perBucket, buckets);
            Tool.sync();
            reads[0][round] =
                    fio(
                            fio,
                            "randread",
                            other,
                            "--bs=" + size,
                            "--filesize=" + bucket,
                            "--nrfiles=" + buckets,
                            "--size=" + bucket * buckets,
                            "--numjobs=" + READERS,
                            "--io_size=" + bucket * buckets / READERS);
            reads[1][round] = read(config, size, perBucket * buckets);
            Folders.delete(folder.resolve("tier"));
            Folders.delete(folder.resolve("fio"));
        }
        row(table, size, "bucket writes", writes);
        row(table, size, "staged reads", reads);
    }

    private static double fio(Path program, String work, String... options)
            throws IOException, InterruptedException {
        var command =
                new ArrayList<>(
                        List.of(
                                program.toString(),
                                "--name=tier",
                                "--rw=" + work,
                                "--ioengine=psync",
                                "--filename_format=data.$filenum",
                                "--thread",
                                "--direct=1",
                                "--group_reporting",
                                "--output-format=json"));
        command.addAll(List.of(options));
        String json = Tool.run(Duration.ofMinutes(5), command);
        var rate =
                Pattern.compile(
                                "\""
                                        + (work.equals("write") ? "write" : "read")
                                        + "\"\\s*:\\s*\\{.*?\"bw_bytes\"\\s*:\\s*(\\d+)",
                                Pattern.DOTALL)
                        .matcher(json);
        if (!rate.find()) {
            throw new IOException("fio printed no bandwidth: " + json);
        }
        return Double.parseDouble(rate.group(1)) / 1e9;
    }

    private static double write(TierConfig config, long size, int perBucket, int buckets) {
        try (var arena = Arena.ofShared();
                var tier = DiskTier.open(config, SegmentMemory.PRIVATE, FileCalls.ofPlatform())) {
            MemorySegment value = HostPages.allocate(size * perBucket, arena);
            value.fill((byte) 5);
            tier.recover(identity -> identity);
            long nanos = 0;
            for (int b = 0; b < buckets; b++) {
                var sources = new ArrayList<BucketSource>(perBucket);
                for (int i = 0; i < perBucket; i++) {
                    sources.add(
                            new BucketSource(
                                    IDENTITY,
                                    "key-" + (b * perBucket + i),
                                    null,
                                    false,
                                    value.asSlice(i * size, size),
                                    false,
                                    0));
                }
                long begin = System.nanoTime();
                int rc = tier.write(sources, _ -> true, new ArrayList<@Nullable DiskObject>());
                nanos += System.nanoTime() - begin;
                if (rc != 0) {
                    throw new IllegalStateException("a bucket was not written: " + rc);
                }
            }
            return (double) size * perBucket * buckets / nanos;
        }
    }

    private static double read(TierConfig config, long size, int count) {
        var tier = DiskTier.open(config, SegmentMemory.PRIVATE, FileCalls.ofPlatform());
        try (var arena = Arena.ofShared();
                var store = EmbeddedStore.open(StoreConfig.DEFAULT, tier)) {
            EmbeddedClient client = store.client(IDENTITY);
            MemorySegment into = HostPages.allocate(BATCH * size, arena);
            client.register(into);
            var results = new long[BATCH];
            var batch = new StoreBatch();
            long nanos = 0;
            long moved = 0;
            for (int from = 0; from + BATCH <= count; from += BATCH) {
                batch.clear();
                for (int i = 0; i < BATCH; i++) {
                    int key = (int) ((from + i) * 7919L % count);
                    batch.add("key-" + key).buffer(into, i * size, size);
                }
                long begin = System.nanoTime();
                client.get(batch, results);
                nanos += System.nanoTime() - begin;
                moved += Arrays.stream(results).sum();
            }
            if (moved != (long) count / BATCH * BATCH * size) {
                throw new IllegalStateException("read " + moved + " bytes");
            }
            return (double) moved / nanos;
        }
    }

    private static void row(Table table, long size, String work, double[][] rates) {
        var ratios = new double[rates[0].length];
        for (int i = 0; i < ratios.length; i++) {
            ratios[i] = rates[1][i] / rates[0][i];
        }
        Arrays.sort(ratios);
        table.row(
                (size >> 10) + " KiB",
                work,
                median(rates[0]),
                median(rates[1]),
                ratios[0],
                median(ratios),
                ratios[ratios.length - 1]);
    }

    private static double median(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }
}
