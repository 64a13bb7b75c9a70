// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.backend.disk.block.FleetKey;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.CProgram;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.Table;

import org.jspecify.annotations.Nullable;

import picocli.CommandLine.Command;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Option;
import picocli.CommandLine.TypeConversionException;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;

/// Saves and loads of the block store, direct and buffered, compared with reference programs in
/// alternating rounds. Prints medians of five or more rounds, and for the ratio per round also
/// minimum and maximum.
///
/// All contenders do the same work: each block, or run of blocks, becomes a file, written once by
/// one of several threads, not synced, and later read whole from the disk. In addition, the store
/// checks whether the block exists, renames the file only when it is complete, and computes and
/// verifies a checksum of every byte. The lookup rows, which have no reference, show the cost of
/// finding a block of a prompt. Every turn starts with clean caches, loads with empty ones, and
/// buffered saves with [HostMemory]. The order of contenders changes from round to round.
///
/// The references differ in the memory they use. [Fio] has one buffer per thread, which stays in
/// the CPU caches; [ColdMemory] has a location for each file of a turn. The store also has the
/// latter: it gathers from and scatters to 32 regions, as many as a model has layers (or
/// `--ranges`), with a location in each for every block of a turn. The blocks of a file are
/// adjacent there unless `--scattered`. Both use huge pages, like the engine's memory.
///
/// The second form of [ColdMemory] also computes the checksum and renames, and nothing else: its
/// distance to fio's save rate is the cost of verified bytes and atomic publication. The third form
/// gathers and scatters with all system calls of the store: the distance of the store to it is the
/// cost of our own code. None of them bounds loads, because the way a file is read determines
/// readahead.
///
/// The references create their files in the store's own folders, one per thread, so that no threads
/// contend for a folder. File systems such as ext4 place a new file's inode and data by its folder,
/// and without a journal ext4 skips all inodes there that were deleted within the last minutes,
/// which takes hundreds of microseconds after a few thousand deletions.
///
/// States of the file system: `empty`, no file of the store or a reference is deleted before the
/// last round; `full`, each save deletes a block, and a reference's time includes deleting as many
/// files with as many threads; `deleted`, many files were deleted from those folders just before.
@Command(
        name = "disk",
        description =
                "Block store against fio and C programs with files of the same size; rows are printed as they come, and all of them at the end. With KVFERRY_SECRET_FILE the store seals its blocks.")
public final class DiskBenchmark extends Benchmark {
    private static final List<Shape> BLOCKS =
            shapes("1024", "256", "32", "1024x4", "256x16", "32x64");
    private static final List<Shape> QUICK_BLOCKS = shapes("256", "32", "32x64");

    private static final int LAYERS = 32;

    @Option(names = "--dir", description = "Where the stores make their folders.")
    private Path dir = Path.of("target");

    @Option(names = "--fs", split = ",", description = "Of here, loop.")
    private List<String> systems = List.of("here", "loop");

    @Option(names = "--states", split = ",", description = "Of empty, full, deleted.")
    private @Nullable Set<DiskRounds.State> states;

    @Option(names = "--io", split = ",", description = "Of direct, buffered.")
    private Set<String> io = Set.of("direct", "buffered");

    @Option(names = "--mib", description = "Bytes of a turn, for each participant.")
    private @Nullable Integer mib;

    @Option(names = "--rounds", description = "Turns of each participant for each row, 5 or more.")
    private int rounds = 5;

    @Option(
            names = "--writers",
            description = "Threads that save, and of the limits that write; the store's own is 4.")
    private int writers = 4;

    @Option(
            names = "--readers",
            description = "Threads that load, and of the limits that read; the store's own is 16.")
    private int readers = 16;

    @Option(
            names = "--loop-cache",
            description =
                    "Have the loop device go through the page cache of the file system below it, and not straight to its medium.")
    private boolean loopCache;

    @Option(
            names = "--ranges",
            description =
                    "Ranges of memory that make up a block, each in a region of its own: one per layer, or 1 where a block has all layers.")
    private int ranges = LAYERS;

    @Option(
            names = "--scattered",
            description =
                    "Have the blocks of a file far from each other in the regions, as after long use of an engine's memory, and not one behind the other.")
    private boolean scattered;

    @Option(
            names = "--blocks",
            split = ",",
            converter = ShapeConverter.class,
            description = "KiB of a block, or KiB x blocks per file, as 256x16.")
    private @Nullable List<Shape> blocks;

    static final class ShapeConverter implements ITypeConverter<Shape> {
        @Override
        public Shape convert(String text) {
            try {
                return shape(text);
            } catch (NumberFormatException e) {
                throw new TypeConversionException(text + ": expected KiB, or as 256x16");
            }
        }
    }

    private static Shape shape(String text) {
        var words = text.split("x");
        return new Shape(
                Integer.parseInt(words[0]) << 10,
                words.length == 1 ? 1 : Integer.parseInt(words[1]),
                LAYERS,
                false);
    }

    private static List<Shape> shapes(String... texts) {
        return Arrays.stream(texts).map(DiskBenchmark::shape).toList();
    }

    /// What is asked for on the command line.
    private record Wanted(
            List<Shape> shapes,
            Set<DiskRounds.State> states,
            Set<String> io,
            DiskRounds.Threads threads,
            int bytes,
            int rounds,
            int deletions) {}

    private Wanted wanted() {
        var shapes = blocks != null ? blocks : quick ? QUICK_BLOCKS : BLOCKS;
        return new Wanted(
                shapes.stream().map(shape -> shape.in(ranges, scattered)).toList(),
                states != null
                        ? states
                        : quick
                                ? EnumSet.of(DiskRounds.State.EMPTY)
                                : EnumSet.allOf(DiskRounds.State.class),
                io,
                new DiskRounds.Threads(writers, readers),
                mib != null ? Math.multiplyExact(mib, 1 << 20) : quick ? 32 << 20 : 256 << 20,
                rounds,
                quick ? 10_000 : 100_000);
    }

    private void refuseWhatDoesNotFit(Wanted wanted) {
        if (wanted.rounds() < 5) {
            throw refusal("--rounds 5 or more: of fewer a median says nothing");
        }
        int most = StoreConfig.Pools.MOST_THREADS;
        // The store has a thread that only reads; of those that write all but one read too.
        if (writers < 1 || readers < writers || readers > most) {
            throw refusal("--writers 1 to --readers, and --readers up to " + most);
        }
        for (var shape : wanted.shapes()) {
            if (ranges < 1 || shape.block() % ((long) ranges * Long.BYTES) != 0) {
                throw refusal(
                        "--ranges %d: blocks of %d KiB do not divide into so many ranges of whole words"
                                .formatted(ranges, shape.block() >> 10));
            }
            int segments = ranges * (scattered ? shape.run() : 1);
            if (segments > BlockStore.MOST_SEGMENTS) {
                throw refusal(
                        "--ranges %d: a file of %d KiB takes at most %d ranges that are not adjacent"
                                .formatted(
                                        ranges, shape.fileBytes() >> 10, BlockStore.MOST_SEGMENTS));
            }
            if (!shape.scatters(wanted.bytes() / shape.block())) {
                throw refusal(
                        "--scattered does not scatter %d blocks; choose another --mib"
                                .formatted(wanted.bytes() / shape.block()));
            }
            int file = shape.fileBytes();
            int files = wanted.bytes() / file;
            // Each thread of fio has as many files.
            if (wanted.bytes() % file != 0
                    || files == 0
                    || files % writers != 0
                    || files % readers != 0) {
                throw refusal(
                        "--mib %d: that is not as many files of %d KiB for each writer and reader"
                                .formatted(wanted.bytes() >> 20, file >> 10));
            }
        }
    }

    @Override
    protected void run() throws Exception {
        refuseUnknown("--fs", systems, List.of("here", "loop"));
        refuseUnknown("--io", io, List.of("direct", "buffered"));
        var wanted = wanted();
        refuseWhatDoesNotFit(wanted);
        Files.createDirectories(dir);
        var limits = new ArrayList<FileLimit>();
        Fio.find().ifPresent(limits::add);
        var c = CProgram.compile(ColdMemory.class, ColdMemory.SOURCE);
        try {
            c.ifPresent(program -> {
                for (var kind : ColdMemory.Kind.values()) {
                    limits.add(new ColdMemory(program, kind));
                }
            });
            run(wanted, dir, systems, limits);
        } finally {
            if (c.isPresent()) {
                c.get().close();
            }
        }
    }

    private void run(Wanted wanted, Path base, List<String> systems, List<FileLimit> limits)
            throws Exception {
        var table = DiskRounds.table(limits);
        if (systems.contains("here")) {
            var folder = Files.createTempDirectory(base, "disk-bench");
            try {
                all("here", folder, limits, wanted, table);
            } finally {
                Folders.delete(folder);
            }
        }
        if (systems.contains("loop")) {
            // Room for what all make in a row, and as much again for their warm-up and the journal.
            long room = 2L * wanted.rounds() * (1 + limits.size()) * wanted.bytes();
            try (var loop = LoopFileSystem.mount(base, room, loopCache)) {
                if (loop.folder().isPresent()) {
                    all("loop", loop.folder().get(), limits, wanted, table);
                }
            }
        }
        table.print();
    }

    private void all(String system, Path folder, List<FileLimit> limits, Wanted wanted, Table table)
            throws Exception {
        System.out.println(
                "# "
                        + system
                        + ": "
                        + Files.getFileStore(folder).type()
                        + ", "
                        + wanted.threads().writers()
                        + " threads write, "
                        + wanted.threads().readers()
                        + " read, no fsync, page cache dropped: "
                        + DiskRounds.dropCaches()
                        + ", ranges of a block: "
                        + ranges
                        + (scattered ? ", scattered" : "")
                        + (system.equals("loop") && loopCache ? ", loop through a page cache" : "")
                        + (StoreRun.key() == FleetKey.NONE ? "" : ", blocks sealed"));
        warmUp(folder.resolve("warm-up"), wanted.threads(), ranges);
        for (var state : DiskRounds.State.values()) {
            for (var shape : wanted.shapes()) {
                for (boolean direct : new boolean[] {true, false}) {
                    if (wanted.states().contains(state)
                            && wanted.io().contains(direct ? "direct" : "buffered")) {
                        var at = folder.resolve("measured");
                        var rounds =
                                new DiskRounds(at, limits, shape, state, direct, wanted.threads());
                        rounds.run(wanted.bytes(), wanted.rounds(), wanted.deletions());
                        rounds.print(system, table);
                        Folders.delete(at);
                    }
                }
            }
        }
    }

    /// Enough small blocks for the compiler to finish with the hot methods.
    private static void warmUp(Path folder, DiskRounds.Threads threads, int ranges)
            throws IOException {
        var shape = new Shape(Math.max(4096, ranges * Long.BYTES), 1, ranges, false);
        try (var run = new StoreRun(folder, shape, 4096, threads, false, false)) {
            for (int round = 0; round < 8; round++) {
                run.nameBlocks("warm-up-" + round);
                run.run(true);
                run.run(false);
            }
        }
    }
}
