// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.replay;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.Table;

import org.jspecify.annotations.Nullable;

import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.Locale;
import java.util.Set;

/// Replays a trace through DiskConnector with room for a tenth of its blocks, and compares the hits
/// with an exact LRU of the same capacity. Fails below 0.95 of that.
@Command(
        name = "replay",
        description =
                "Hit rate of DiskConnector beside an exact LRU, one engine process and three on one folder.")
public final class ReplayBenchmark extends Benchmark {
    private static final double LEAST = 0.95;
    private static final String DEFAULT_TRACE = "conversation_trace.jsonl";
    private static final int QUICK = 1500;
    private static final int[] PROCESSES = {1, 3};

    @Option(
            names = "--trace",
            paramLabel = "FILE",
            description = "In Mooncake's format; by default " + DEFAULT_TRACE + " here, else made.")
    private @Nullable Path given;

    @Option(names = "--requests", description = "The first so many of the trace; by default all.")
    private int requests;

    @Option(names = "--cuts", split = ",", description = "Of ${COMPLETION-CANDIDATES}.")
    private Set<BlockCut> cuts = EnumSet.allOf(BlockCut.class);

    @Option(
            names = "--worker-processes",
            description = "The rank of each engine in a JVM of its own, as with kvferry serve.")
    private boolean workerProcesses;

    @Option(names = "--dir", description = "Where the store makes its folder.")
    private Path dir = Path.of(System.getProperty("java.io.tmpdir"));

    @Override
    protected void run() throws Exception {
        var trace = trace();
        if (requests > 0 || quick) {
            trace = trace.first(requests > 0 ? requests : QUICK);
        }
        int capacity = trace.distinct() / 10;
        double exact = (double) trace.exactLru(capacity) / trace.references();
        System.out.printf(
                "# %d requests, %d blocks, %d distinct, room for %d%n",
                trace.requests().size(), trace.references(), trace.distinct(), capacity);
        var table =
                new Table(
                        "files",
                        "processes",
                        "exact LRU",
                        "DiskConnector",
                        "ratio",
                        "peak bytes by capacity",
                        "requests per second");
        double worst = 1;
        for (var cut : cuts) {
            for (int processes : PROCESSES) {
                var folder = Files.createTempDirectory(dir, "kvferry-replay");
                try {
                    long begun = System.nanoTime();
                    var result =
                            Replay.run(
                                    trace,
                                    cut,
                                    folder.resolve("kv"),
                                    capacity,
                                    processes,
                                    workerProcesses);
                    double seconds = (System.nanoTime() - begun) / 1e9;
                    double rate = (double) result.found() / trace.references();
                    worst = Math.min(worst, rate / exact);
                    table.rowNow(
                            cut.name().toLowerCase(Locale.ROOT).replace('_', ' '),
                            processes,
                            "%.4f".formatted(exact),
                            "%.4f".formatted(rate),
                            "%.3f".formatted(rate / exact),
                            "%.3f".formatted(result.peak()),
                            Math.round(trace.requests().size() / seconds));
                } finally {
                    Folders.delete(folder);
                }
            }
        }
        table.print();
        if (worst < LEAST) {
            throw new IllegalStateException("less than " + LEAST + " of an exact LRU");
        }
    }

    private Trace trace() throws IOException {
        var file = given != null ? given : Path.of(DEFAULT_TRACE);
        if (Files.exists(file) || given != null) {
            return Trace.read(file);
        }
        System.out.println("# no " + file + " here, see --trace: a made trace of conversations");
        return Trace.made(5000);
    }
}
