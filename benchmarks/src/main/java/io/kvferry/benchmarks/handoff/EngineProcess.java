// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import io.kvferry.benchmarks.ChildJvm;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/// The parent's end of an [EngineChild].
///
/// Threading: one thread; only [#start] may be followed by another child's calls before its
/// [CompletableFuture] ends.
final class EngineProcess implements AutoCloseable {
    private final ChildJvm child;

    /// What became of one prompt. Times are [System#nanoTime], which on Linux is one clock for all
    /// processes of a machine.
    ///
    /// @param begun when it was submitted
    /// @param token when its one token was there
    /// @param idle when nothing held its blocks any more
    /// @param loaded prompt tokens that the connector delivered
    record Report(long begun, long token, long idle, int loaded) {
        String line() {
            return begun + " " + token + " " + idle + " " + loaded;
        }

        static Report of(String line) {
            var words = line.split(" ");
            return new Report(
                    Long.parseLong(words[0]),
                    Long.parseLong(words[1]),
                    Long.parseLong(words[2]),
                    Integer.parseInt(words[3]));
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
