// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Pattern;

/// `kvferry owner` in a JVM of its own, on ports that the system chooses. It ends with its input.
///
/// Threading: one thread.
@SuppressWarnings("try") // an interrupt ends the benchmark
final class OwnerJvm implements AutoCloseable {
    private static final String MAIN = "io.kvferry.serving.cli.Main";
    private static final Pattern ADDRESS = Pattern.compile("\"address\"\\s*:\\s*\"([^\"]+)\"");
    private static final int PATIENCE_SECONDS = 120;

    private final Process process;
    private final String address;

    /// Starts one and waits until it is ready.
    ///
    /// @param pool bytes of its memory, as the option says it
    /// @param options behind these
    /// @param log where its messages go
    OwnerJvm(String pool, List<String> options, Path log) throws IOException, InterruptedException {
        var arguments =
                new ArrayList<>(List.of("owner", "--port", "0", "--http-port", "0", "--json"));
        arguments.addAll(List.of("--stop-with-stdin", "--global-segment-size", pool));
        arguments.addAll(options);
        process =
                new ProcessBuilder(command(MAIN, List.of(), arguments))
                        .redirectError(log.toFile())
                        .start();
        boolean ready = false;
        try {
            address = awaitAddress(log);
            ready = true;
        } finally {
            if (!ready) {
                close();
            }
        }
    }

    /// A JVM as this one, with its class path.
    static List<String> command(String main, List<String> options, List<String> arguments) {
        var command = new ArrayList<String>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(
                List.of(
                        "--add-modules",
                        "jdk.incubator.vector",
                        "--enable-native-access=ALL-UNNAMED"));
        command.addAll(options);
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), main));
        command.addAll(arguments);
        return command;
    }

    private String awaitAddress(Path log) throws IOException, InterruptedException {
        var said = new CompletableFuture<String>();
        Thread.ofPlatform().daemon().start(() -> said.complete(firstAddress()));
        String found = "";
        try {
            found = said.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        } catch (ExecutionException | TimeoutException e) {
            throw new IOException("the owner is not ready: " + e, e);
        }
        if (found.isEmpty()) {
            throw new IOException(
                    "the owner ended before it was ready: "
                            + Files.readString(log, StandardCharsets.UTF_8));
        }
        return found;
    }

    private String firstAddress() {
        try {
            BufferedReader lines = process.inputReader(StandardCharsets.UTF_8);
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                var matcher = ADDRESS.matcher(line);
                if (matcher.find()) {
                    return matcher.group(1);
                }
            }
            return "";
        } catch (IOException e) {
            return ""; // it was killed
        }
    }

    /// `host:port`
    String address() {
        return address;
    }

    /// Processor time that it has taken so far, as exactly as the system tells it.
    long cpuNanos() {
        return process.info().totalCpuDuration().map(Duration::toNanos).orElse(0L);
    }

    @Override
    public void close() throws IOException, InterruptedException {
        stop(process);
    }

    /// Ends the input of a process, and kills it where it does not end with that.
    static void stop(Process process) throws IOException, InterruptedException {
        process.getOutputStream().close();
        if (!process.waitFor(30, TimeUnit.SECONDS)) {
            process.destroyForcibly();
            process.waitFor(30, TimeUnit.SECONDS);
        }
    }
}
