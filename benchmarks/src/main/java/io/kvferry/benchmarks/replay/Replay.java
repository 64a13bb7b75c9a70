// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.replay;

import io.kvferry.benchmarks.ChildJvm;

import java.io.IOException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;

/// Replays a trace through engines with DiskConnector that share one folder, each in its own JVM.
/// They take requests in turn and work concurrently.
final class Replay {
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    /// Requests between two looks at what the folder holds.
    private static final int LOOK_EVERY = 50;

    private Replay() {}

    /// @param found blocks of the trace that the engines found
    /// @param peak most bytes that were seen in the folder, by its capacity
    record Result(long found, double peak) {}

    /// @param folder empty, or absent
    /// @param capacity blocks of the trace for which the folder has room
    /// @param processes engines
    /// @param workerProcesses whether the worker half of each engine has a process of its own
    static Result run(
            Trace trace,
            BlockCut cut,
            Path folder,
            int capacity,
            int processes,
            boolean workerProcesses)
            throws IOException {
        var children = new ArrayList<ChildJvm>();
        try {
            for (int i = 0; i < processes; i++) {
                children.add(
                        new ChildJvm(
                                ReplayChild.class,
                                List.of("-Xmx512m"),
                                List.of(
                                        config(folder, capacity, cut, trace.requests().size()),
                                        trace.longest() + "",
                                        cut.name(),
                                        workerProcesses + ""),
                                PATIENCE));
            }
            children.forEach(ChildJvm::awaitReady);
            var peak = new Peak(folder);
            long found = replay(trace, children, peak);
            return new Result(found, (double) peak.bytes / (capacity * cut.bytes()));
        } finally {
            children.forEach(ChildJvm::close);
        }
    }

    /// A block that another process evicts just before it is loaded is computed again.
    ///
    /// What goes by time is as many times faster than by default as the replay is faster than the
    /// requests came: of a trace of an hour, a minute is a sixtieth.
    private static String config(Path folder, int capacity, BlockCut cut, int requests) {
        return """
        {"kv_connector": "DiskConnector", "kv_role": "kv_both", "kv_load_failure_policy": "recompute", "kv_connector_extra_config":
         {"path": "%2$s", "capacity": %3$d, "reserve": 0, "rehearsal": false, "run_blocks": %4$d, "recency": "%1$dms", "scan_interval": "%1$dms"}}\
        """
                .formatted(
                        Math.max(20, requests * cut.millis() / 60),
                        folder,
                        capacity * cut.bytes(),
                        cut.runBlocks());
    }

    private static long replay(Trace trace, List<ChildJvm> children, Peak peak) throws IOException {
        long found = 0;
        var answers = new ArrayList<CompletableFuture<String>>();
        int turn = 0;
        int sent = 0;
        for (int[] request : trace.requests()) {
            var child = children.get(turn);
            if (answers.size() <= turn) {
                answers.add(child.ask(line(request)));
            } else {
                found += Long.parseLong(child.await(answers.get(turn)));
                answers.set(turn, child.ask(line(request)));
            }
            turn = (turn + 1) % children.size();
            if (++sent % LOOK_EVERY == 0) {
                peak.look();
            }
        }
        for (int i = 0; i < answers.size(); i++) {
            found += Long.parseLong(children.get(i).await(answers.get(i)));
        }
        return found;
    }

    /// Most bytes of block files.
    private static final class Peak {
        private final Path folder;
        private long bytes;

        Peak(Path folder) {
            this.folder = folder;
        }

        /// While engines make and delete files there.
        void look() throws IOException {
            long[] sum = {0};
            Files.walkFileTree(
                    folder,
                    new SimpleFileVisitor<>() {
                        @Override
                        public FileVisitResult visitFile(Path file, BasicFileAttributes found) {
                            sum[0] += file.toString().endsWith(".kvb") ? found.size() : 0;
                            return FileVisitResult.CONTINUE;
                        }

                        @Override
                        public FileVisitResult visitFileFailed(Path file, IOException gone) {
                            return FileVisitResult.CONTINUE;
                        }
                    });
            bytes = Math.max(bytes, sum[0]);
        }
    }

    private static String line(int[] ids) {
        return Arrays.stream(ids).mapToObj(String::valueOf).collect(Collectors.joining(" "));
    }
}
