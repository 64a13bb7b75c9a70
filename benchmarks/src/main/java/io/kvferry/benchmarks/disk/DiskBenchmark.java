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

/// Saves and loads of the block store, direct and buffered, in rounds in which it takes turns with
/// limits; medians of five or more, and of the ratio of each round also the least and the greatest.
///
/// What all do is the same: every block, or every run of blocks, becomes a file of its own, written
/// once by one of several threads, not synced, and is read whole from the disk later. On top of it
/// the store looks whether the block is there, gives the file its name only when it is complete,
/// and makes and checks a checksum of every byte. The rows of lookups, which the limits have none
/// of, show what a block of a prompt costs to find. All start each turn with clean caches, loads
/// with empty ones and buffered saves with [HostMemory]; who goes first changes from round to
/// round.
///
/// The limits differ in the memory they move. [Fio] has one buffer per thread, which stays in the
/// processor's caches; [ColdMemory] has a place for each file of a turn. The store has the latter:
/// it gathers from and scatters to 32 regions, as many as a model has layers, or to as many as
/// `--ranges` says, with a place in each for every block of a turn. Those of a file lie one behind
/// the other there unless they are `--scattered`. Both have huge pages, as the engine's memory. In
/// its second form [ColdMemory] makes the checksum and renames too, and nothing else: what that
/// lacks of fio's rate in saves is the price of checked bytes and of names that only complete files
/// get. In its third form it gathers and scatters with all the calls of the store: what a ratio to
/// that lacks of one is the program's. No form is a bound for loads: how a file is read decides how
/// the system reads ahead.
///
/// The limits make their files in the folders in which the store makes its own, one per thread, so
/// that nobody's threads wait for each other's changes of a folder. File systems such as ext4
/// choose where a new file's inode and bytes go by its folder, and without a journal ext4 looks
/// past all inodes of that place that were deleted within the last minutes, which takes hundreds of
/// microseconds after a few thousand deletions.
///
/// States of the file system: `empty`, in which no file of the store or of a limit is deleted
/// before the last round; `full`, in which each save deletes a block, and a limit's time includes
/// the deletion of as many files by as many threads; and `deleted`, in which many files were
/// deleted from those folders just before.
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
