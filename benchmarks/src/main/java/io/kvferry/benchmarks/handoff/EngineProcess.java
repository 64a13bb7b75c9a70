// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import io.kvferry.benchmarks.ChildJvm;
import io.kvferry.benchmarks.ProcessCost;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/// The parent's end of an [EngineChild].
///
/// Threading: one thread; only [#start] may be followed by another child's calls before its
/// [CompletableFuture] ends.
final class EngineProcess implements AutoCloseable {
    private final ChildJvm child;

    /// A moment in the life of a process.
    ///
    /// @param nanos [System#nanoTime], which on Linux is one clock for all processes of a machine
    /// @param cost of the process until then
    record Moment(long nanos, ProcessCost cost) {
        static Moment now() {
            return new Moment(System.nanoTime(), ProcessCost.now());
        }

        static Moment of(String word) {
            int end = word.indexOf(':');
            return new Moment(
                    Long.parseLong(word.substring(0, end)),
                    ProcessCost.of(word.substring(end + 1)));
        }

        String word() {
            return nanos + ":" + cost.line();
        }

        /// Processor time of the process until then, all threads together.
        long cpuNanos() {
            return cost.cpuNanos();
        }
    }

    /// What became of one prompt.
    ///
    /// @param begun when it was submitted
    /// @param token when its one token was there
    /// @param idle when nothing held its blocks any more
    /// @param loaded prompt tokens that the connector delivered
    record Report(Moment begun, Moment token, Moment idle, int loaded) {
        String line() {
            return begun.word() + " " + token.word() + " " + idle.word() + " " + loaded;
        }

        static Report of(String line) {
            var words = line.split(" ");
            return new Report(
                    Moment.of(words[0]),
                    Moment.of(words[1]),
                    Moment.of(words[2]),
                    Integer.parseInt(words[3]));
        }
    }

    /// @param options of the JVM
    EngineProcess(String connector, int longestPrompt, String verify, List<String> options)
            throws IOException {
        long memory = longestPrompt * EngineChild.BYTES_PER_TOKEN + (1L << 30);
        var all = new ArrayList<>(List.of("-Xmx512m", "-XX:MaxDirectMemorySize=" + memory));
        all.addAll(options);
        child =
                new ChildJvm(
                        EngineChild.class,
                        all,
                        List.of(connector, String.valueOf(longestPrompt), verify),
                        EngineChild.LIMIT.multipliedBy(2));
    }

    /// Waits until it serves.
    void awaitReady() {
        child.awaitReady();
    }

    /// Sends a prompt.
    ///
    /// @param params words `key=value`
    CompletableFuture<String> start(String id, int tokens, List<String> params) {
        return child.ask(id + " " + tokens + " " + String.join(" ", params));
    }

    Report report(CompletableFuture<String> line) {
        return Report.of(child.await(line));
    }

    @Override
    public void close() {
        child.close();
    }
}
