// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Table;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;

/// Saves and loads of the block store, direct and buffered, in rounds that alternate with fio;
/// medians.
///
/// What both do is the same: every block becomes a file of its own, written once by one of 4
/// threads, not synced, and is read whole from the disk later. On top of it the store looks whether
/// the block is there, gives the file its name only when it is complete, and makes and checks a
/// checksum of every byte. Both start each round with clean, empty caches.
///
/// No file is deleted before the last round: ext4 looks through all inodes that were deleted within
/// the last minutes before it makes a file, which then costs more than writing it, for whoever
/// comes first after the deletion.
public final class DiskBenchmark implements Benchmark {
    private static final int THREADS = 4;

    /// One line of the table: the same work by both.
    private static final class Series {
        final List<Double> ours = new ArrayList<>();
        final List<Double> fio = new ArrayList<>();
        final List<Double> allocated = new ArrayList<>();
    }

    @Override
    public String name() {
        return "disk";
    }

    @Override
    public String description() {
        return "block store: save and load, 1 MiB and 256 KiB blocks of 32 layers, against fio with one file per block";
    }

    @Override
    public void run(List<String> args) throws Exception {
        boolean quick = args.contains("--quick");
        int at = args.indexOf("--dir");
        Path base = at >= 0 ? Path.of(args.get(at + 1)) : Path.of("target");
        Files.createDirectories(base);
        Path folder = Files.createTempDirectory(base, "disk-bench");
        Optional<Fio> fio = Fio.find();
        System.out.println(
                "# folder "
                        + folder.toAbsolutePath()
                        + " on "
                        + Files.getFileStore(folder).type()
                        + ", "
                        + THREADS
                        + " threads each, no fsync, page cache dropped: "
                        + dropCaches());
        try {
            warmUp(folder);
            var table =
                    new Table(
                            "block",
                            "I/O",
                            "work",
                            "kvferry GB/s",
                            "fio GB/s",
                            "ratio",
                            "B allocated/block");
            for (int block : new int[] {1 << 20, 256 << 10}) {
                int blocks = (quick ? 256 << 20 : 512 << 20) / block;
                for (boolean direct : new boolean[] {true, false}) {
                    measure(folder, fio, block, blocks, direct, quick ? 3 : 5, table);
                }
            }
            table.print();
        } finally {
            delete(folder);
        }
    }

    private static void measure(
            Path folder,
            Optional<Fio> fio,
            int block,
            int blocks,
            boolean direct,
            int rounds,
            Table table)
            throws Exception {
        var save = new Series();
        var load = new Series();
        try (var run = new StoreRun(folder.resolve("store"), block, blocks, THREADS, direct)) {
            for (int round = 0; round < rounds; round++) {
                String name = block + (direct ? "-direct-" : "-buffered-") + round;
                run.nameBlocks(name);
                sync();
                add(save, run.run(true));
                dropCaches();
                add(load, run.run(false));
                if (fio.isPresent()) {
                    Path files = folder.resolve("fio-" + name);
                    sync();
                    save.fio.add(fio.get().rate(files, true, block, blocks, THREADS, direct));
                    dropCaches();
                    load.fio.add(fio.get().rate(files, false, block, blocks, THREADS, direct));
                }
            }
        }
        row(table, block, direct, "save", save);
        row(table, block, direct, "load", load);
    }

    private static void add(Series series, StoreRun.Result result) {
        series.ours.add(result.rate());
        series.allocated.add(result.allocated());
    }

    private static void row(Table table, long block, boolean direct, String work, Series series) {
        boolean compared = !series.fio.isEmpty();
        table.row(
                (block >> 10) + " KiB",
                direct ? "direct" : "buffered",
                work,
                median(series.ours) / 1e9,
                compared ? median(series.fio) / 1e9 : "skipped",
                compared ? median(series.ours) / median(series.fio) : "skipped",
                Math.round(series.allocated.stream().min(Comparator.naturalOrder()).orElse(0.0)));
    }

    private static double median(List<Double> values) {
        var sorted = values.stream().sorted().toList();
        return sorted.get(sorted.size() / 2);
    }

    /// Enough small blocks for the compiler to finish with the hot methods, and for every folder of
    /// the store to be there, as in a store that has been used before.
    private static void warmUp(Path folder) {
        try (var run = new StoreRun(folder.resolve("store"), 4096, 4096, THREADS, false)) {
            for (int round = 0; round < 8; round++) {
                run.nameBlocks("warm-up-" + round);
                run.run(true);
                run.run(false);
            }
        }
    }

    /// Before a save: neither side pays for what the other left to be written. The cache stays, for
    /// a store in use has its directories there.
    private static void sync() throws IOException, InterruptedException {
        new ProcessBuilder("sync").start().waitFor();
    }

    /// Asks the kernel to forget clean pages, so that buffered reads come from the disk; whether it
    /// did.
    private static boolean dropCaches() throws IOException, InterruptedException {
        sync();
        Path knob = Path.of("/proc/sys/vm/drop_caches");
        if (!Files.isWritable(knob)) {
            return false; // buffered loads are then served from memory, for both sides
        }
        Files.writeString(knob, "1");
        return true;
    }

    private static void delete(Path folder) throws IOException {
        if (!Files.exists(folder)) {
            return;
        }
        try (var all = Files.walk(folder)) {
            for (Path path : all.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }
}
