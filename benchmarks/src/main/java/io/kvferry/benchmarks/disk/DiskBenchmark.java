// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.Table;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;

/// Saves and loads of the block store, direct and buffered, in rounds that alternate with fio;
/// medians of five, and of the ratio of each round also the least and the greatest.
///
/// What both do is the same: every block, or every run of blocks, becomes a file of its own,
/// written once by one of 4 threads, not synced, and is read whole from the disk later. On top of
/// it the store looks whether the block is there, gives the file its name only when it is complete,
/// and makes and checks a checksum of every byte. Both start each round with clean, empty caches.
///
/// No file is deleted before the last round: ext4 looks through all inodes that were deleted within
/// the last minutes before it makes a file, which then costs more than writing it, for whoever
/// comes first after the deletion.
public final class DiskBenchmark implements Benchmark {
    private static final int THREADS = 4;
    private static final int ROUNDS = 5;

    /// Blocks of one size, in files of their own or several to a file.
    private record Shape(int block, int run) {}

    private static final List<Shape> SHAPES =
            List.of(
                    new Shape(1 << 20, 1),
                    new Shape(256 << 10, 1),
                    new Shape(32 << 10, 1),
                    new Shape(256 << 10, 16),
                    new Shape(32 << 10, 64));

    /// One line of the table: the same work by both, round by round.
    private static final class Series {
        final List<StoreRun.Result> ours = new ArrayList<>();
        final List<Fio.Result> fio = new ArrayList<>();
    }

    @Override
    public String name() {
        return "disk";
    }

    @Override
    public String description() {
        return "block store: save and load, blocks of 32 layers in files of their own and in runs, against fio with files of the same size";
    }

    @Override
    public void run(List<String> args) throws Exception {
        boolean quick = args.contains("--quick");
        Path base = Path.of(Benchmark.option(args, "--dir", "target"));
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
                            "blocks per file",
                            "I/O",
                            "work",
                            "kvferry GB/s",
                            "fio GB/s",
                            "ratio min",
                            "median",
                            "max",
                            "CPU us/block",
                            "fio CPU us/block",
                            "B allocated/block");
            for (var shape : SHAPES) {
                for (boolean direct : new boolean[] {true, false}) {
                    measure(folder, fio, shape, quick ? 128 << 20 : 512 << 20, direct, table);
                }
            }
            table.print();
        } finally {
            Folders.delete(folder);
        }
    }

    private static void measure(
            Path folder, Optional<Fio> fio, Shape shape, int bytes, boolean direct, Table table)
            throws Exception {
        int blocks = bytes / shape.block();
        int file = shape.block() * shape.run();
        var save = new Series();
        var load = new Series();
        try (var run =
                new StoreRun(
                        folder.resolve("store"),
                        shape.block(),
                        blocks,
                        shape.run(),
                        THREADS,
                        direct)) {
            for (int round = 0; round < ROUNDS; round++) {
                String name =
                        shape.block()
                                + "x"
                                + shape.run()
                                + (direct ? "-direct-" : "-buffered-")
                                + round;
                Path files = folder.resolve("fio-" + name);
                run.nameBlocks(name);
                sync();
                save.ours.add(run.run(true));
                sync();
                if (fio.isPresent()) {
                    save.fio.add(fio.get().run(files, true, file, bytes / file, THREADS, direct));
                }
                dropCaches();
                load.ours.add(run.run(false));
                dropCaches();
                if (fio.isPresent()) {
                    load.fio.add(fio.get().run(files, false, file, bytes / file, THREADS, direct));
                }
            }
        }
        row(table, shape, direct, "save", save);
        row(table, shape, direct, "load", load);
    }

    private static void row(Table table, Shape shape, boolean direct, String work, Series series) {
        boolean compared = !series.fio.isEmpty();
        var ratios = new ArrayList<Double>();
        for (int i = 0; i < series.fio.size(); i++) {
            ratios.add(series.ours.get(i).rate() / series.fio.get(i).rate());
        }
        ratios.sort(Comparator.naturalOrder());
        table.row(
                (shape.block() >> 10) + " KiB",
                shape.run(),
                direct ? "direct" : "buffered",
                work,
                median(series.ours.stream().map(StoreRun.Result::rate).toList()) / 1e9,
                compared
                        ? median(series.fio.stream().map(Fio.Result::rate).toList()) / 1e9
                        : "skipped",
                compared ? ratios.getFirst() : "skipped",
                compared ? median(ratios) : "skipped",
                compared ? ratios.getLast() : "skipped",
                median(series.ours.stream().map(StoreRun.Result::cpuMicros).toList()),
                compared
                        ? median(series.fio.stream().map(Fio.Result::cpuMicros).toList())
                                / shape.run()
                        : "skipped",
                Math.round(
                        series.ours.stream()
                                .mapToDouble(StoreRun.Result::allocated)
                                .min()
                                .orElse(0)));
    }

    private static double median(List<Double> values) {
        var sorted = values.stream().sorted().toList();
        return sorted.get(sorted.size() / 2);
    }

    /// Enough small blocks for the compiler to finish with the hot methods, and for every folder of
    /// the store to be there, as in a store that has been used before.
    private static void warmUp(Path folder) {
        try (var run = new StoreRun(folder.resolve("store"), 4096, 4096, 1, THREADS, false)) {
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
}
