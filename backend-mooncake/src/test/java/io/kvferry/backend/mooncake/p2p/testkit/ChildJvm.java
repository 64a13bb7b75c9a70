// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import io.kvferry.spi.Deadline;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// A JVM to be killed, which obeys lines on its input and answers on its output.
public final class ChildJvm implements AutoCloseable {
    /// The start of a JVM takes a second, and much longer while others want all processors.
    private static final Duration LONGEST_SILENCE = Duration.ofMinutes(3);

    private final Process process;
    private final BlockingQueue<String> said = new LinkedBlockingQueue<>();

    public ChildJvm(Class<?> main, String... arguments) throws IOException {
        this(List.of(), main, arguments);
    }

    /// @param flags of the JVM
    public ChildJvm(List<String> flags, Class<?> main, String... arguments) throws IOException {
        var command =
                new ArrayList<>(
                        List.of(
                                ProcessHandle.current().info().command().orElse("java"),
                                "-XX:+UseSerialGC",
                                "-XX:TieredStopAtLevel=1",
                                "--enable-native-access=ALL-UNNAMED",
                                SideChannelOption.flag()));
        command.addAll(flags);
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
        command.addAll(List.of(arguments));
        process =
                new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        var out = process.inputReader(StandardCharsets.UTF_8);
        Thread.ofPlatform().daemon(true).start(() -> listen(out));
    }

    private void listen(BufferedReader out) {
        try {
            for (var line = out.readLine(); line != null; line = out.readLine()) {
                said.add(line);
            }
        } catch (IOException e) {
            said.add("gone " + e.getMessage());
        }
    }

    /// The next line that begins so; others are skipped.
    public String hear(String prefix) {
        var limit = Deadline.in(LONGEST_SILENCE);
        try {
            while (!limit.passed()) {
                boolean ended = !process.isAlive();
                var line = said.poll(1, TimeUnit.SECONDS);
                if (line == null && ended) {
                    throw new AssertionError("the child ended with status " + process.exitValue());
                }
                if (line != null && line.startsWith(prefix)) {
                    return line;
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        throw new AssertionError(
                "the child did not say \"" + prefix + "\" within " + LONGEST_SILENCE);
    }

    public void tell(String line) {
        try {
            process.getOutputStream().write((line + "\n").getBytes(StandardCharsets.UTF_8));
            process.getOutputStream().flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /// kill -9
    public void kill() {
        process.destroyForcibly().onExit().join();
    }

    @Override
    public void close() {
        kill();
    }
}
