// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.p2p;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/// The parent's end of a [ServingChild].
///
/// Threading: any thread.
final class ServingProcess implements AutoCloseable {
    private final Process process;
    private final Writer in;
    private final Map<String, CompletableFuture<Report>> asked = new ConcurrentHashMap<>();
    private final CompletableFuture<Void> ready = new CompletableFuture<>();

    /// What became of a request; all 0 where it was not served.
    record Report(long begun, long first, long end, int generated, int loaded) {}

    /// @param blocks of the cache
    ServingProcess(String connector, int blocks, String stepTime, String tokenTime)
            throws IOException {
        process =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "--enable-native-access=ALL-UNNAMED",
                                "-Dslf4j.internal.verbosity=ERROR",
                                "-Xmx512m",
                                "-cp",
                                System.getProperty("java.class.path"),
                                ServingChild.class.getName(),
                                connector,
                                String.valueOf(blocks),
                                stepTime,
                                tokenTime)
                        .redirectError(ProcessBuilder.Redirect.INHERIT)
                        .start();
        in = process.outputWriter(StandardCharsets.UTF_8);
        var out = process.inputReader(StandardCharsets.UTF_8);
        Thread.ofPlatform().daemon().start(() -> hear(out));
    }

    private void hear(BufferedReader out) {
        var end = new IOException("a child process ended; see its messages");
        try {
            for (var line = out.readLine(); line != null; line = out.readLine()) {
                var words = line.split(" ");
                var report = asked.remove(words[0]);
                if (report == null) {
                    ready.complete(null);
                } else {
                    report.complete(
                            new Report(
                                    Long.parseLong(words[1]),
                                    Long.parseLong(words[2]),
                                    Long.parseLong(words[3]),
                                    Integer.parseInt(words[4]),
                                    Integer.parseInt(words[5])));
                }
            }
        } catch (IOException e) {
            end = e;
        }
        var why = end;
        ready.completeExceptionally(why);
        asked.values().forEach(report -> report.completeExceptionally(why));
    }

    void awaitReady() {
        ready.orTimeout(2, TimeUnit.MINUTES).join();
    }

    /// @param params words `key=value`
    CompletableFuture<Report> submit(String id, int tokens, int output, List<String> params)
            throws IOException {
        var report = new CompletableFuture<Report>();
        asked.put(id, report);
        synchronized (in) {
            in.write(id + " " + tokens + " " + output + " " + String.join(" ", params) + "\n");
            in.flush();
        }
        return report.orTimeout(ServingChild.LIMIT.toSeconds(), TimeUnit.SECONDS);
    }

    @Override
    public void close() throws IOException {
        in.close();
        try {
            if (process.waitFor(20, TimeUnit.SECONDS)) {
                return;
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        process.destroyForcibly();
    }
}
