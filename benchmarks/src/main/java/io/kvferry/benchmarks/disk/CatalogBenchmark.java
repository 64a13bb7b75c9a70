// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.backend.disk.store.StoreListener;
import io.kvferry.benchmarks.Allocation;
import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.Table;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.space.KeyDigest;

import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;

/// Cost of the store's catalog: memory and time compared with JDK collections, and scans of a
/// folder of known files.
@Command(
        name = "catalog",
        description =
                "The block store's catalog of files against a LinkedHashMap and a TreeMap; scans of known files.")
public final class CatalogBenchmark extends Benchmark {
    @Option(names = "--dir", description = "Where the store to scan makes its folder.")
    private Path dir = Path.of("target");

    @Option(names = "--part", split = ",", description = "Of order, scan.")
    private List<String> parts = List.of("order", "scan");

    /// Of the last two, one comes shortly before the arrays of the catalog grow, and one after.
    private static final int[] FILES = {10_000, 100_000, 1_000_000, 1_050_000};

    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private static final int ROUNDS = 5;

    @Override
    protected void run() throws Exception {
        refuseUnknown("--part", parts, List.of("order", "scan"));
        if (parts.contains("order")) {
            order();
        }
        if (parts.contains("scan")) {
            scan(quick ? 10_000 : 100_000);
        }
    }

    private void order() {
        var table =
                new Table(
                        "files",
                        "order",
                        "bytes/file",
                        "insert ns",
                        "use ns",
                        "B/use",
                        "evict and insert ns",
                        "B/evict and insert",
                        "insert as oldest us",
                        "insert in the middle us");
        for (FileOrder.Kind kind : FileOrder.Kind.values()) {
            measure(kind, 100_000); // for the compiler
        }
        for (int files : quick ? Arrays.copyOf(FILES, 2) : FILES) {
            for (FileOrder.Kind kind : FileOrder.Kind.values()) {
                Cost cost = measure(kind, files);
                table.rowNow(
                        files,
                        kind,
                        cost.memory / files,
                        cost.insert,
                        cost.use.nanos,
                        Math.round(cost.use.bytes),
                        cost.evict.nanos,
                        Math.round(cost.evict.bytes),
                        cost.oldest < 0 ? "-" : (Object) (cost.oldest / 1000),
                        cost.middle < 0 ? "-" : (Object) (cost.middle / 1000));
            }
        }
        table.print();
    }

    /// Per operation.
    private record Sample(double nanos, double cpuNanos, double bytes) {}

    private record Cost(
            long memory, double insert, Sample use, Sample evict, double oldest, double middle) {}

    private static KeyDigest digest(long i) {
        var random = new SplittableRandom(i);
        return new KeyDigest(
                random.nextLong(), random.nextLong(), random.nextLong(), random.nextLong());
    }

    private static Cost measure(FileOrder.Kind kind, int files) {
        long before = usedHeap();
        long begin = System.nanoTime();
        var order = kind.make();
        for (int i = 0; i < files; i++) {
            order.insert(digest(i), i + 1);
        }
        double insert = (double) (System.nanoTime() - begin) / files;
        long memory = usedHeap() - before;
        long[] added = {files};
        double oldest = kind.sorts() ? inserted(order, 0, 0, added) : -1;
        double middle = kind.sorts() ? inserted(order, files / 4, files - files / 4, added) : -1;
        var random = new SplittableRandom(7);
        var known = new KeyDigest[1 << 16];
        Arrays.setAll(known, i -> digest(random.nextInt(files)));
        var fresh = new KeyDigest[1 << 14];
        long[] now = {files + 1L};
        var use =
                median(
                        known.length,
                        () -> {
                            for (KeyDigest each : known) {
                                order.use(each, now[0]++);
                            }
                        });
        var evict =
                median(
                        fresh.length,
                        () -> Arrays.setAll(fresh, i -> digest(added[0]++)),
                        () -> {
                            for (KeyDigest each : fresh) {
                                order.evict();
                                order.insert(each, now[0]++);
                            }
                        });
        return new Cost(memory, insert, use, evict, oldest, middle);
    }

    /// Nanoseconds of one insertion at these times, in turns: the catalog finds a place beside the
    /// last one at once.
    private static double inserted(FileOrder order, long first, long second, long[] added) {
        int count = 32;
        var digests = new KeyDigest[count];
        return median(
                        count,
                        () -> Arrays.setAll(digests, i -> digest(added[0]++)),
                        () -> {
                            for (int i = 0; i < count; i += 2) {
                                order.insert(digests[i], first);
                                order.insert(digests[i + 1], second);
                            }
                        })
                .nanos;
    }

    private static Sample median(int operations, Runnable round) {
        return median(operations, () -> {}, round);
    }

    /// @param before each round, not measured
    private static Sample median(int operations, Runnable before, Runnable round) {
        var nanos = new double[ROUNDS];
        var cpu = new double[ROUNDS];
        var bytes = new double[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            before.run();
            long allocated = Allocation.ofThisThread();
            long begin = System.nanoTime();
            long beginCpu = THREADS.getCurrentThreadCpuTime();
            round.run();
            cpu[i] = (double) (THREADS.getCurrentThreadCpuTime() - beginCpu) / operations;
            nanos[i] = (double) (System.nanoTime() - begin) / operations;
            bytes[i] = (double) (Allocation.ofThisThread() - allocated) / operations;
        }
        Arrays.sort(nanos);
        Arrays.sort(cpu);
        Arrays.sort(bytes);
        return new Sample(nanos[ROUNDS / 2], cpu[ROUNDS / 2], bytes[ROUNDS / 2]);
    }

    private static long usedHeap() {
        for (int i = 0; i < 3; i++) {
            System.gc();
        }
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    /// Every round another process has changed something in each subfolder, so that all names are
    /// listed again.
    private void scan(int files) throws IOException {
        Path root = Files.createTempDirectory(Files.createDirectories(dir), "catalog");
        var config = StoreConfig.of(root, "catalog benchmark").withReserveBytes(0);
        try (var calls = BlockStore.open(config, StoreListener.NONE, FileCalls.ofPlatform());
                var objects = BlockStore.open(config, StoreListener.NONE, FileCalls.ofChannels())) {
            var subfolders = subfolders(root);
            var random = new SplittableRandom(1);
            for (int i = 0; i < files; i++) {
                String name =
                        new KeyDigest(
                                        random.nextLong(),
                                        random.nextLong(),
                                        random.nextLong(),
                                        random.nextLong())
                                .toString();
                Path folder = subfolders.get(Integer.parseInt(name.substring(0, 1), 16));
                try (var file =
                        new RandomAccessFile(folder.resolve(name + ".kvb").toFile(), "rw")) {
                    file.setLength(4096);
                }
            }
            var table =
                    new Table("known files", "names", "ms/scan", "CPU ms/scan", "KiB garbage/scan");
            scan(table, "getdents64", calls, files, subfolders);
            scan(table, "DirectoryStream", objects, files, subfolders);
            table.print();
        } finally {
            Folders.delete(root);
        }
    }

    private static List<Path> subfolders(Path root) throws IOException {
        try (var all = Files.walk(root, 3)) {
            return all.filter(each -> each.resolveSibling("").endsWith("blocks")).sorted().toList();
        }
    }

    private static void scan(
            Table table, String names, BlockStore store, int files, List<Path> subfolders) {
        store.scan();
        if (store.stats().blocks() != files) {
            throw new IllegalStateException(
                    "the store knows " + store.stats().blocks() + " files of " + files);
        }
        scans(store, subfolders); // for the compiler
        scans(store, subfolders);
        var cost = scans(store, subfolders);
        table.rowNow(files, names, cost.nanos / 1e6, cost.cpuNanos / 1e6, cost.bytes / 1024);
    }

    private static Sample scans(BlockStore store, List<Path> subfolders) {
        return median(
                1,
                () -> {
                    try {
                        for (Path each : subfolders) {
                            Files.setLastModifiedTime(each, FileTime.from(Instant.now()));
                        }
                    } catch (IOException e) {
                        throw new UncheckedIOException(e);
                    }
                },
                store::scan);
    }
}
