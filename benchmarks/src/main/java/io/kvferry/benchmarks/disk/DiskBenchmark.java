// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.Table;
import io.kvferry.benchmarks.Tool;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

/// Saves and loads of the block store, direct and buffered, in rounds that alternate with fio;
/// medians of five, and of the ratio of each round also the least and the greatest.
///
/// What both do is the same: every block, or every run of blocks, becomes a file of its own,
/// written once by one of 4 threads, not synced, and is read whole from the disk later. On top of
/// it the store looks whether the block is there, gives the file its name only when it is complete,
/// and makes and checks a checksum of every byte. The rows of lookups, which fio has none of, show
/// what a block of a prompt costs to find. Both start each round with clean, empty caches, and who
/// goes first changes from round to round.
///
/// fio makes its files in the folder in which the store makes its own: file systems such as ext4
/// choose where a new file's inode and bytes go by its folder, and without a journal ext4 looks
/// past all inodes of that place that were deleted within the last minutes, which takes hundreds of
/// microseconds after a few thousand deletions. fio writes from and reads into one buffer per
/// thread, which stays in the processor's caches; the store gathers from and scatters to 32 blocks
/// in as many regions as a model has layers.
///
/// States of the file system: `empty`, in which no file is deleted before the last round; `full`,
/// in which each save deletes a block, and fio's time includes the deletion of as many files by 4
/// threads; and `deleted`, in which many files were deleted from that folder just before.
public final class DiskBenchmark implements Benchmark {
    private static final int THREADS = 4;
    private static final int ROUNDS = 5;
    private static final long WARM_UP_NANOS = 5_000_000_000L;
    private static final int LEAST_WARM_UPS = 40;
    private static final String BLOCKS = "1024,256,32,256x16,32x64";
    private static final String QUICK_BLOCKS = "256,32,32x64";

    /// Blocks of one size, in files of their own or several to a file.
    private record Shape(int block, int run) {
        static Shape of(String text) {
            var words = text.split("x");
            return new Shape(
                    Integer.parseInt(words[0]) << 10,
                    words.length == 1 ? 1 : Integer.parseInt(words[1]));
        }
    }

    enum State {
        EMPTY,
        FULL,
        DELETED
    }

    /// What is asked for on the command line.
    private record Wanted(
            List<Shape> shapes, Set<State> states, Set<String> io, int bytes, int deletions) {
        static Wanted of(List<String> args) {
            boolean quick = args.contains("--quick");
            return new Wanted(
                    Arrays.stream(
                                    Benchmark.option(args, "--blocks", "1024,256,32,256x16,32x64")
                                            .split(","))
                            .map(Shape::of)
                            .toList(),
                    Arrays.stream(
                                    Benchmark.option(
                                                    args,
                                                    "--states",
                                                    quick ? "empty" : "empty,full,deleted")
                                            .split(","))
                            .map(state -> State.valueOf(state.toUpperCase(java.util.Locale.ROOT)))
                            .collect(Collectors.toSet()),
                    Set.of(Benchmark.option(args, "--io", "direct,buffered").split(",")),
                    quick ? 32 << 20 : 256 << 20,
                    quick ? 10_000 : 100_000);
        }
    }

    @Override
    public String name() {
        return "disk";
    }

    @Override
    public String description() {
        return "block store against fio with files of the same size; --dir DIR, --fs here,loop,"
                + " --states empty,full,deleted, --io direct,buffered, --blocks 1024,256,32,256x16,32x64 (KiB x"
                + " blocks per file); rows are printed as they come, and all of them at the end";
    }

    @Override
    public void run(List<String> args) throws Exception {
        var wanted = Wanted.of(args);
        var base = Path.of(Benchmark.option(args, "--dir", "target"));
        Files.createDirectories(base);
        var systems = List.of(Benchmark.option(args, "--fs", "here,loop").split(","));
        Optional<Fio> fio = Fio.find();
        var table =
                new Table(
                        "file system",
                        "state",
                        "block",
                        "per file",
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
        if (systems.contains("here")) {
            var folder = Files.createTempDirectory(base, "disk-bench");
            try {
                all("here", folder, fio, wanted, table);
            } finally {
                Folders.delete(folder);
            }
        }
        if (systems.contains("loop")) {
            try (var loop = LoopFileSystem.mount(base, 12L * wanted.bytes())) {
                if (loop.folder().isPresent()) {
                    all("loop", loop.folder().get(), fio, wanted, table);
                }
            }
        }
        table.print();
    }

    private static void all(
            String system, Path folder, Optional<Fio> fio, Wanted wanted, Table table)
            throws Exception {
        System.out.println(
                "# "
                        + system
                        + ": "
                        + Files.getFileStore(folder).type()
                        + ", "
                        + THREADS
                        + " threads each, no fsync, page cache dropped: "
                        + dropCaches());
        warmUp(folder.resolve("warm-up"));
        for (var state : State.values()) {
            for (var shape : wanted.shapes()) {
                for (boolean direct : new boolean[] {true, false}) {
                    if (wanted.states().contains(state)
                            && wanted.io().contains(direct ? "direct" : "buffered")) {
                        var at = folder.resolve("measured");
                        var rounds = new Rounds(at, fio, shape.block(), shape.run(), state, direct);
                        rounds.run(wanted.bytes(), wanted.deletions());
                        rounds.print(system, table);
                        Folders.delete(at);
                    }
                }
            }
        }
    }

    /// One pair of lines of the table: the same work by both, round by round.
    private static final class Rounds {
        private final Path folder;
        private final Optional<Fio> fio;
        private final int block;
        private final int run;
        private final State state;
        private final boolean direct;
        private final Series save = new Series();
        private final Series load = new Series();
        private final Series lookup = new Series();

        Rounds(Path folder, Optional<Fio> fio, int block, int run, State state, boolean direct) {
            this.folder = folder;
            this.fio = fio;
            this.block = block;
            this.run = run;
            this.state = state;
            this.direct = direct;
        }

        void run(int bytes, int deletions) throws Exception {
            warmUp();
            boolean full = state == State.FULL;
            int file = block * run;
            try (var store =
                    new StoreRun(
                            folder.resolve("store"),
                            block,
                            bytes / block,
                            run,
                            THREADS,
                            direct,
                            full)) {
                var files = store.temporaries();
                if (state == State.DELETED) {
                    Deletions.make(files, deletions, THREADS);
                }
                if (full) {
                    store.nameBlocks("first");
                    store.run(true);
                }
                for (int round = 0; round < ROUNDS; round++) {
                    var name = "fio-" + round;
                    store.nameBlocks("round-" + round);
                    for (int turn = 0; turn < 2; turn++) {
                        Tool.sync();
                        if (turn == round % 2) {
                            save.ours.add(store.run(true));
                        } else if (fio.isPresent()) {
                            var written =
                                    fio.get()
                                            .run(
                                                    files,
                                                    name,
                                                    true,
                                                    file,
                                                    bytes / file,
                                                    THREADS,
                                                    direct);
                            save.fio.add(
                                    full
                                            ? written.and(Deletions.delete(files, name, THREADS))
                                            : written);
                        }
                    }
                    if (full) {
                        continue; // what is loaded is the same
                    }
                    for (int turn = 0; turn < 2; turn++) {
                        dropCaches();
                        if (turn == round % 2) {
                            load.ours.add(store.run(false));
                        } else if (fio.isPresent()) {
                            load.fio.add(
                                    fio.get()
                                            .run(
                                                    files,
                                                    name,
                                                    false,
                                                    file,
                                                    bytes / file,
                                                    THREADS,
                                                    direct));
                        }
                    }
                    lookup.ours.add(store.lookUp());
                }
            }
        }

        /// Saves and loads blocks of this shape until the compiler is done with what they run: a
        /// row of large blocks has too few of them for that.
        private void warmUp() throws IOException {
            var compiler = ManagementFactory.getCompilationMXBean();
            var at = folder.resolve("warm-up");
            long end = System.nanoTime() + WARM_UP_NANOS;
            try (var store = new StoreRun(at, block, 32 * run, run, THREADS, direct, true)) {
                for (int round = 0; System.nanoTime() < end; round++) {
                    long compiled = compiler.getTotalCompilationTime();
                    store.nameBlocks("warm-up-" + round);
                    store.run(true);
                    store.run(false);
                    if (round >= LEAST_WARM_UPS && compiler.getTotalCompilationTime() == compiled) {
                        break;
                    }
                }
            }
            Folders.delete(at);
        }

        void print(String system, Table table) {
            row(system, table, "save", save);
            if (!load.ours.isEmpty()) {
                row(system, table, "load", load);
                row(system, table, "lookup", lookup);
            }
        }

        private void row(String system, Table table, String work, Series series) {
            var fioRate = series.fioRate();
            var ratios = series.ratios();
            var none = series == lookup ? "-" : "skipped"; // fio looks for nothing
            table.rowNow(
                    system,
                    state.name().toLowerCase(java.util.Locale.ROOT),
                    (block >> 10) + " KiB",
                    run,
                    direct ? "direct" : "buffered",
                    work,
                    series == lookup
                            ? none
                            : Series.median(
                                            series.ours.stream()
                                                    .map(StoreRun.Result::rate)
                                                    .toList())
                                    / 1e9,
                    fioRate.isEmpty() ? none : Series.median(fioRate) / 1e9,
                    ratios.isEmpty() ? none : ratios.getFirst(),
                    ratios.isEmpty() ? none : Series.median(ratios),
                    ratios.isEmpty() ? none : ratios.getLast(),
                    Series.median(series.ours.stream().map(StoreRun.Result::cpuMicros).toList()),
                    fioRate.isEmpty()
                            ? none
                            : Series.median(series.fio.stream().map(Fio.Result::cpuMicros).toList())
                                    / run,
                    Math.round(
                            series.ours.stream()
                                    .mapToDouble(StoreRun.Result::allocated)
                                    .min()
                                    .orElse(0)));
        }
    }

    /// Enough small blocks for the compiler to finish with the hot methods.
    private static void warmUp(Path folder) throws IOException {
        try (var run = new StoreRun(folder, 4096, 4096, 1, THREADS, false, false)) {
            for (int round = 0; round < 8; round++) {
                run.nameBlocks("warm-up-" + round);
                run.run(true);
                run.run(false);
            }
        }
    }

    /// Asks the kernel to forget clean pages, so that buffered reads come from the disk; whether it
    /// did.
    private static boolean dropCaches() throws IOException, InterruptedException {
        Tool.sync();
        Path knob = Path.of("/proc/sys/vm/drop_caches");
        if (!Files.isWritable(knob)) {
            return false; // buffered loads are then served from memory, for both sides
        }
        Files.writeString(knob, "1");
        return true;
    }
}
