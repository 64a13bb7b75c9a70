// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import io.kvferry.benchmarks.ChildJvm;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/// The parent's end of an [EngineChild].
///
/// Threading: one thread; only [#start] may be followed by another child's calls before its
/// [CompletableFuture] ends.
final class EngineProcess implements AutoCloseable {
    private final ChildJvm child;

    /// A moment in the life of a process.
    ///
    /// @param nanos [System#nanoTime], which on Linux is one clock for all processes of a machine
    /// @param cpuNanos processor time of the process until then, all threads together
    record Moment(long nanos, long cpuNanos) {
        static Moment now() {
            long cpu =
                    ManagementFactory.getOperatingSystemMXBean()
                                    instanceof com.sun.management.OperatingSystemMXBean system
                            ? system.getProcessCpuTime()
                            : 0;
            return new Moment(System.nanoTime(), cpu);
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
            return LongStream.of(
                            begun.nanos(),
                            begun.cpuNanos(),
                            token.nanos(),
                            token.cpuNanos(),
                            idle.nanos(),
                            idle.cpuNanos(),
                            loaded)
                    .mapToObj(String::valueOf)
                    .collect(Collectors.joining(" "));
        }

        static Report of(String line) {
            var words = Arrays.stream(line.split(" ")).mapToLong(Long::parseLong).toArray();
            return new Report(
                    new Moment(words[0], words[1]),
                    new Moment(words[2], words[3]),
                    new Moment(words[4], words[5]),
                    (int) words[6]);
        }
    }

    EngineProcess(String connector, int longestPrompt, String verify) throws IOException {
        long memory = longestPrompt * EngineChild.BYTES_PER_TOKEN + (1L << 30);
        child =
                new ChildJvm(
                        EngineChild.class,
                        List.of("-Xmx512m", "-XX:MaxDirectMemorySize=" + memory),
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
