// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// The parent's end of an [EngineChild].
///
/// Threading: one thread; only [#start] may be followed by another child's calls before its
/// [CompletableFuture] ends.
final class EngineProcess implements AutoCloseable {
    private final Process process;
    private final BufferedReader said;

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
        process =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "--enable-native-access=ALL-UNNAMED",
                                "-Xmx512m",
                                "-Dslf4j.internal.verbosity=ERROR",
                                "-XX:MaxDirectMemorySize=" + memory,
                                "-cp",
                                System.getProperty("java.class.path"),
                                EngineChild.class.getName(),
                                connector,
                                String.valueOf(longestPrompt),
                                verify)
                        .redirectError(ProcessBuilder.Redirect.INHERIT)
                        .start();
        said = process.inputReader(StandardCharsets.UTF_8);
    }

    /// Waits until it serves.
    void awaitReady() {
        var line = await(hear());
        if (!line.equals("READY")) {
            throw new IllegalStateException("the engine said " + line);
        }
    }

    /// Sends a prompt.
    ///
    /// @param params words `key=value`
    CompletableFuture<String> start(String id, int tokens, List<String> params) {
        try {
            var out = process.getOutputStream();
            out.write(
                    (id + " " + tokens + " " + String.join(" ", params) + "\n")
                            .getBytes(StandardCharsets.UTF_8));
            out.flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return hear();
    }

    static Report report(CompletableFuture<String> line) {
        return Report.of(await(line));
    }

    private CompletableFuture<String> hear() {
        var heard = new CompletableFuture<String>();
        Thread.ofVirtual()
                .start(() -> {
                    try {
                        var line = said.readLine();
                        if (line == null) {
                            throw new IOException("an engine process ended; see its messages");
                        }
                        heard.complete(line);
                    } catch (IOException e) {
                        heard.completeExceptionally(e);
                    }
                });
        return heard;
    }

    private static String await(CompletableFuture<String> line) {
        try {
            return line.get(EngineChild.LIMIT.toSeconds() * 2, TimeUnit.SECONDS);
        } catch (ExecutionException | TimeoutException e) {
            throw new IllegalStateException("an engine process does not answer: " + e, e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted", e);
        }
    }

    /// Its input ends, and so does it.
    @Override
    public void close() {
        try {
            process.getOutputStream().close();
            if (process.waitFor(20, TimeUnit.SECONDS)) {
                return;
            }
        } catch (IOException e) {
            process.destroyForcibly(); // the pipe is gone, so it is, or will be
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        process.destroyForcibly();
    }
}
