// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.benchmarks.Table;
import io.kvferry.benchmarks.Tool;
import io.kvferry.benchmarks.WarmUp;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;

/// The lines of the table for one shape of blocks: the same work by the store and by each limit,
/// round by round.
///
/// Threading: one thread.
final class DiskRounds {
    private static final Duration WARM_UP = Duration.ofSeconds(4);

    /// How much of the host's memory a turn has at hand, in terms of the bytes it moves. With twice
    /// as much more turns got memory that the host had to give first.
    private static final long HOST_MEMORY = 4;

    private final Path folder;
    private final List<FileLimit> limits;
    private final Shape shape;
    private final State state;
    private final boolean direct;
    private final Threads threads;
    private final Series save;
    private final Series load;
    private final Series lookup = new Series(0);

    /// What was in the file system before.
    enum State {
        EMPTY,
        FULL,
        DELETED
    }

    /// Of the store and of each limit.
    record Threads(int writers, int readers) {
        StoreConfig.Pools pools(int queueDepth) {
            return new StoreConfig.Pools(readers - writers + 1, writers, queueDepth);
        }

        int of(boolean write) {
            return write ? writers : readers;
        }
    }

    DiskRounds(
            Path folder,
            List<FileLimit> limits,
            Shape shape,
            State state,
            boolean direct,
            Threads threads) {
        this.folder = folder;
        this.limits = limits;
        this.shape = shape;
        this.state = state;
        this.direct = direct;
        this.threads = threads;
        this.save = new Series(limits.size());
        this.load = new Series(limits.size());
    }

    /// The columns of [#print].
    static Table table(List<FileLimit> limits) {
        var head =
                new ArrayList<>(
                        List.of(
                                "file system",
                                "state",
                                "block",
                                "per file",
                                "I/O",
                                "work",
                                "kvferry GB/s"));
        limits.forEach(limit -> head.add(limit.title() + " GB/s"));
        limits.forEach(limit -> head.add("of " + limit.title() + ": min, median, max"));
        limits.stream()
                .skip(1)
                .forEach(limit ->
                        head.add(limit.title() + " of " + limits.getFirst().title() + ": median"));
        head.add("CPU us/block");
        limits.forEach(limit -> head.add(limit.title() + " CPU us/block"));
        head.add("B allocated/block");
        return new Table(head.toArray(String[]::new));
    }

    /// @param bytes of one turn
    /// @param count of rounds
    /// @param deletions before the first
    void run(int bytes, int count, int deletions) throws Exception {
        warmUp();
        boolean full = state == State.FULL;
        int files = bytes / shape.fileBytes();
        try (var store =
                new StoreRun(
                        folder.resolve("store"),
                        shape,
                        bytes / shape.block(),
                        threads,
                        direct,
                        full)) {
            var folders = store.temporaries();
            if (state == State.DELETED) {
                Deletions.make(folders, deletions, threads.writers());
            }
            if (full) {
                store.nameBlocks("first");
                store.run(true);
            }
            for (int round = 0; round < count; round++) {
                store.nameBlocks("round-" + round);
                var written = save(store, folders, round, files);
                load(store, folders, round, files);
                lookup.ours.add(store.lookUp());
                for (int who = 0; who < limits.size(); who++) {
                    save.limits
                            .get(who)
                            .add(
                                    full
                                            ? written.get(who).and(delete(who, folders, round))
                                            : written.get(who));
                }
            }
        }
    }

    /// The participant whose turn it is: 0 for the store, else a limit and one.
    private int participant(int turn, int round) {
        return (turn + round) % (1 + limits.size());
    }

    /// Answers what each limit did.
    private List<FileLimit.Work> save(StoreRun store, List<Path> files, int round, int count)
            throws Exception {
        var written = new FileLimit.Work[limits.size()];
        for (int turn = 0; turn <= limits.size(); turn++) {
            Tool.sync();
            if (!direct) {
                HostMemory.take(
                        folder,
                        HOST_MEMORY * shape.fileBytes() * count,
                        Math.min(shape.fileBytes(), FileLimit.Turn.MOST_BYTES_PER_CALL));
            }
            int who = participant(turn, round) - 1;
            if (who < 0) {
                store.touch();
                save.ours.add(store.run(true));
            } else {
                written[who] = move(who, files, round, true, count);
            }
        }
        return List.of(written);
    }

    private long delete(int who, List<Path> files, int round) throws Exception {
        return Deletions.delete(limits.get(who).homes(files), name(who, round), threads.writers());
    }

    private void load(StoreRun store, List<Path> files, int round, int count) throws Exception {
        for (int turn = 0; turn <= limits.size(); turn++) {
            dropCaches();
            int who = participant(turn, round) - 1;
            if (who < 0) {
                store.touch();
                load.ours.add(store.run(false));
            } else {
                load.limits.get(who).add(move(who, files, round, false, count));
            }
        }
    }

    private FileLimit.Work move(int who, List<Path> files, int round, boolean write, int count)
            throws Exception {
        return limits.get(who)
                .run(
                        new FileLimit.Turn(
                                files,
                                name(who, round),
                                write,
                                shape,
                                count,
                                threads.of(write),
                                direct));
    }

    private static String name(int who, int round) {
        return "limit-" + who + "-" + round;
    }

    /// Saves and loads blocks of this shape before the first turn: a row of large blocks has too
    /// few of them to get it compiled.
    private void warmUp() throws Exception {
        var at = folder.resolve("warm-up");
        var count = new AtomicInteger();
        try (var store = new StoreRun(at, shape, 32 * shape.run(), threads, direct, true)) {
            WarmUp.until(
                    (shape.block() >> 10) + " KiB, " + shape.run() + " per file",
                    WARM_UP,
                    () -> ProcessCost.now().compileMillis(),
                    () -> {
                        store.nameBlocks("warm-up-" + count.getAndIncrement());
                        store.run(true);
                        store.run(false);
                    });
        }
        Folders.delete(at);
    }

    void print(String system, Table table) {
        row(system, table, "save", save);
        row(system, table, "load", load);
        row(system, table, "lookup", lookup);
    }

    private void row(String system, Table table, String work, Series series) {
        boolean looks = series == lookup; // which no limit does
        var cells =
                new ArrayList<Object>(
                        List.of(
                                system,
                                state.name().toLowerCase(Locale.ROOT),
                                (shape.block() >> 10) + " KiB",
                                shape.run(),
                                direct ? "direct" : "buffered",
                                work));
        cells.add(looks ? "-" : series.rate() / 1e9);
        for (int i = 0; i < limits.size(); i++) {
            cells.add(looks ? "-" : series.rate(i) / 1e9);
        }
        for (int i = 0; i < limits.size(); i++) {
            cells.add(looks ? "-" : series.ratios(i));
        }
        for (int i = 1; i < limits.size(); i++) {
            cells.add(looks ? "-" : series.ratio(i, 0));
        }
        cells.add(series.cpuMicros());
        for (int i = 0; i < limits.size(); i++) {
            cells.add(looks ? "-" : series.cpuMicros(i) / shape.run());
        }
        cells.add(series.allocated());
        table.rowNow(cells.toArray());
    }

    /// Asks the kernel to forget clean pages, so that buffered reads come from the disk; whether it
    /// did.
    static boolean dropCaches() throws IOException, InterruptedException {
        Tool.sync();
        Path knob = Path.of("/proc/sys/vm/drop_caches");
        if (!Files.isWritable(knob)) {
            return false; // buffered loads are then served from memory, for all
        }
        Files.writeString(knob, "1");
        return true;
    }
}
