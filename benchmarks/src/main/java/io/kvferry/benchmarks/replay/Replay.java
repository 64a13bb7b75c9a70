// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.replay;

import io.kvferry.benchmarks.ChildJvm;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;

/// A trace through engines with DiskConnector that share one folder, each in a JVM of its own. They
/// take the requests in turns, and work at the same time.
final class Replay {
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    private Replay() {}

    /// Blocks that the engines found.
    ///
    /// @param folder empty, or absent
    /// @param capacity blocks of the trace for which the folder has room
    static long run(Trace trace, Path folder, int capacity, int processes) throws IOException {
        var children = new ArrayList<ChildJvm>();
        try {
            for (int i = 0; i < processes; i++) {
                children.add(
                        new ChildJvm(
                                ReplayChild.class,
                                List.of("-Xmx512m"),
                                List.of(
                                        config(folder, capacity, trace.requests().size()),
                                        trace.longest() + ""),
                                PATIENCE));
            }
            children.forEach(ChildJvm::awaitReady);
            return replay(trace, children);
        } finally {
            children.forEach(ChildJvm::close);
        }
    }

    /// A block that another process evicts just before it is loaded is computed again.
    ///
    /// What goes by time is as many times faster than by default as the replay is faster than the
    /// requests came: of a trace of an hour, a minute is a sixtieth, and a request takes 6 ms and
    /// more here.
    private static String config(Path folder, int capacity, int requests) {
        return """
        {"kv_connector": "DiskConnector", "kv_role": "kv_both", "kv_load_failure_policy": "recompute", "kv_connector_extra_config":
         {"path": "%2$s", "capacity": %3$d, "reserve": 0, "run_blocks": %4$d, "recency": "%1$dms", "scan_interval": "%1$dms"}}\
        """
                .formatted(
                        Math.max(20, requests / 10),
                        folder,
                        capacity * ReplayChild.FILE_BYTES,
                        ReplayChild.RUN);
    }

    private static long replay(Trace trace, List<ChildJvm> children) {
        long found = 0;
        var answers = new ArrayList<CompletableFuture<String>>();
        int turn = 0;
        for (int[] request : trace.requests()) {
            var child = children.get(turn);
            if (answers.size() <= turn) {
                answers.add(child.ask(line(request)));
            } else {
                found += Long.parseLong(child.await(answers.get(turn)));
                answers.set(turn, child.ask(line(request)));
            }
            turn = (turn + 1) % children.size();
        }
        for (int i = 0; i < answers.size(); i++) {
            found += Long.parseLong(children.get(i).await(answers.get(i)));
        }
        return found;
    }

    private static String line(int[] ids) {
        return Arrays.stream(ids).mapToObj(String::valueOf).collect(Collectors.joining(" "));
    }
}
