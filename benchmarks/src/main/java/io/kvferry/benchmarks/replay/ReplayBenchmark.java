// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.replay;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.Table;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/// Requests of a trace through DiskConnector, with room for a tenth of what they consist of: how
/// much it finds again, beside an exact LRU over blocks of the same capacity. Fails below 0.95 of
/// that.
public final class ReplayBenchmark implements Benchmark {
    private static final double LEAST = 0.95;
    private static final String DEFAULT_TRACE = "conversation_trace.jsonl";
    private static final int QUICK = 1500;
    private static final int[] PROCESSES = {1, 3};

    @Override
    public String name() {
        return "replay";
    }

    @Override
    public String description() {
        return "hit rate of DiskConnector beside an exact LRU, one engine process and three on one folder;"
                + " --trace FILE: in Mooncake's format, by default "
                + DEFAULT_TRACE
                + " here, else a made one; --dir DIR";
    }

    @Override
    public void run(List<String> args) throws Exception {
        var trace = trace(args);
        if (args.contains("--quick")) {
            trace = trace.first(QUICK);
        }
        int capacity = trace.distinct() / 10;
        double exact = (double) trace.exactLru(capacity) / trace.references();
        System.out.printf(
                "# %d requests, %d blocks, %d distinct, room for %d%n",
                trace.requests().size(), trace.references(), trace.distinct(), capacity);
        var table =
                new Table(
                        "processes", "exact LRU", "DiskConnector", "ratio", "requests per second");
        var parent = Path.of(Benchmark.option(args, "--dir", System.getProperty("java.io.tmpdir")));
        double worst = 1;
        for (int processes : PROCESSES) {
            var folder = Files.createTempDirectory(parent, "kvferry-replay");
            try {
                long begun = System.nanoTime();
                long found = Replay.run(trace, folder.resolve("kv"), capacity, processes);
                double seconds = (System.nanoTime() - begun) / 1e9;
                double rate = (double) found / trace.references();
                worst = Math.min(worst, rate / exact);
                table.row(
                        processes,
                        "%.4f".formatted(exact),
                        "%.4f".formatted(rate),
                        "%.3f".formatted(rate / exact),
                        Math.round(trace.requests().size() / seconds));
            } finally {
                Folders.delete(folder);
            }
        }
        table.print();
        if (worst < LEAST) {
            throw new IllegalStateException("less than " + LEAST + " of an exact LRU");
        }
    }

    private static Trace trace(List<String> args) throws IOException {
        var file = Path.of(Benchmark.option(args, "--trace", DEFAULT_TRACE));
        if (Files.exists(file) || args.contains("--trace")) {
            return Trace.read(file);
        }
        System.out.println("# no " + file + " here, see --trace: a made trace of conversations");
        return Trace.made(5000);
    }
}
