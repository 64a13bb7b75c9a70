// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// A JVM with the class path of this one. It prints `READY` once it accepts requests, then answers
/// each input line with one line, and exits when its input ends.
///
/// Threading: one thread; send the next line only after the previous answer.
public final class ChildJvm implements AutoCloseable {
    private static final String READY = "READY";

    private final Process process;
    private final BufferedReader said;
    private final Duration patience;

    /// @param options of the JVM, behind those that every engine needs
    /// @param patience longest time for one answer
    public ChildJvm(Class<?> main, List<String> options, List<String> args, Duration patience)
            throws IOException {
        var command = new ArrayList<String>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.add("--enable-native-access=ALL-UNNAMED");
        command.add("-Dslf4j.internal.verbosity=ERROR");
        command.addAll(options);
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
        command.addAll(args);
        this.process =
                new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        this.said = process.inputReader(StandardCharsets.UTF_8);
        this.patience = patience;
    }

    /// What a child says when it can be asked.
    public static void ready() {
        System.out.println(READY);
    }

    /// Waits until it can be asked.
    public void awaitReady() {
        var line = await(hear());
        if (!line.equals(READY)) {
            throw new IllegalStateException("the child said " + line);
        }
    }

    public long pid() {
        return process.pid();
    }

    /// Sends a line; the answer comes later.
    public CompletableFuture<String> ask(String line) {
        try {
            var out = process.getOutputStream();
            out.write((line + "\n").getBytes(StandardCharsets.UTF_8));
            out.flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return hear();
    }

    private CompletableFuture<String> hear() {
        var heard = new CompletableFuture<String>();
        Thread.ofPlatform()
                .daemon()
                .start(() -> {
                    try {
                        var line = said.readLine();
                        if (line == null) {
                            throw new IOException("a child process ended; see its messages");
                        }
                        heard.complete(line);
                    } catch (IOException e) {
                        heard.completeExceptionally(e);
                    }
                });
        return heard;
    }

    /// Waits for an answer.
    public String await(CompletableFuture<String> line) {
        try {
            return line.get(patience.toSeconds(), TimeUnit.SECONDS);
        } catch (ExecutionException | TimeoutException e) {
            throw new IllegalStateException("a child process does not answer: " + e, e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted", e);
        }
    }

    /// Closes the child's input, which makes it exit, and write its AOT cache if it has to.
    @Override
    public void close() {
        try {
            process.getOutputStream().close();
            if (process.waitFor(60, TimeUnit.SECONDS)) {
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
