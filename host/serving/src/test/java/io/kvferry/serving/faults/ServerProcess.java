// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.faults;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.cli.KvferryCommand;

import org.jspecify.annotations.Nullable;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.ProcessBuilder.Redirect;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// `kvferry serve` or `kvferry route` in a JVM of its own, which a test kills, pauses and starts
/// again with the same arguments.
///
/// Threading: one thread.
final class ServerProcess implements AutoCloseable {
    private static final int START_SECONDS = 150;
    private static final int END_SECONDS = 90;
    private static final List<String> JVM_OPTIONS = List.of("-Xmx256m");

    final String name;
    final int port;
    private final List<String> command;
    private final Path log;
    private @Nullable Process process;

    /// @param log takes standard error of all incarnations
    ServerProcess(String name, int port, Path log, List<String> arguments) {
        this.name = name;
        this.port = port;
        this.log = log;
        var all = new ArrayList<>(arguments);
        all.addAll(
                List.of(
                        "--port",
                        Integer.toString(port),
                        "--json",
                        "--stop-with-stdin",
                        "--stop-grace",
                        "2"));
        command = KvferryCommand.of(List.of(), JVM_OPTIONS, all.toArray(String[]::new));
    }

    void launch() throws IOException {
        process =
                new ProcessBuilder(command).redirectError(Redirect.appendTo(log.toFile())).start();
    }

    /// Waits for the line by which the process says that it is ready.
    void awaitReady() throws Exception {
        var started = Objects.requireNonNull(process);
        var ready = new CompletableFuture<String>();
        Thread.ofVirtual().start(() -> readOutput(started, ready));
        String line;
        try {
            line = ready.get(START_SECONDS, TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            throw new AssertionError(
                    name
                            + " is not ready after "
                            + START_SECONDS
                            + " s: "
                            + log()
                            + threadDump(started),
                    e);
        }
        assertThat(line).as("%s did not start: %s", name, Files.readString(log)).startsWith("{");
    }

    private static String threadDump(Process process) throws Exception {
        var tool = Path.of(System.getProperty("java.home"), "bin", "jstack").toString();
        var dump = Files.createTempFile("kvferry", ".threads");
        try {
            var jstack =
                    new ProcessBuilder(tool, Long.toString(process.pid()))
                            .redirectOutput(dump.toFile())
                            .redirectErrorStream(true)
                            .start();
            if (!jstack.waitFor(END_SECONDS, TimeUnit.SECONDS)) {
                jstack.destroyForcibly();
            }
            return Files.readString(dump);
        } finally {
            Files.delete(dump);
        }
    }

    private static void readOutput(Process process, CompletableFuture<String> ready) {
        try (var lines =
                new BufferedReader(
                        new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            ready.complete(String.valueOf(lines.readLine()));
            while (lines.readLine() != null) {
                continue; // a full pipe would stop the process
            }
        } catch (IOException e) {
            ready.complete("ended: " + e);
        }
    }

    /// SIGKILL.
    void kill() throws Exception {
        var killed = Objects.requireNonNull(process).destroyForcibly();
        assertThat(killed.waitFor(END_SECONDS, TimeUnit.SECONDS)).as("%s is killed", name).isTrue();
    }

    /// SIGTERM.
    void terminate() throws Exception {
        var ended = Objects.requireNonNull(process);
        ended.destroy();
        assertThat(ended.waitFor(END_SECONDS, TimeUnit.SECONDS))
                .as("%s ends after SIGTERM", name)
                .isTrue();
    }

    /// Sends a signal by its name.
    void signal(String signal) throws Exception {
        var sent = new ProcessBuilder("kill", "-" + signal, Long.toString(pid())).start();
        assertThat(sent.waitFor(END_SECONDS, TimeUnit.SECONDS)).isTrue();
        assertThat(sent.exitValue()).as("kill -%s of %s", signal, name).isZero();
    }

    long pid() {
        return Objects.requireNonNull(process).pid();
    }

    boolean isAlive() {
        return process != null && process.isAlive();
    }

    int descriptors() throws IOException {
        return count(Path.of("/proc/" + pid() + "/fd"));
    }

    int threads() throws IOException {
        return count(Path.of("/proc/" + pid() + "/task"));
    }

    private static int count(Path folder) throws IOException {
        try (var entries = Files.list(folder)) {
            return (int) entries.count();
        }
    }

    String log() throws IOException {
        return Files.readString(log);
    }

    /// Ports that the process listens on, all protocols of it.
    List<Integer> listeningPorts() throws IOException {
        var inodes = new HashSet<String>();
        try (var descriptors = Files.list(Path.of("/proc/" + pid() + "/fd"))) {
            for (var descriptor : descriptors.toList()) {
                try {
                    var target = Files.readSymbolicLink(descriptor).toString();
                    if (target.startsWith("socket:[")) {
                        inodes.add(target.substring(8, target.length() - 1));
                    }
                } catch (NoSuchFileException e) {
                    continue; // closed meanwhile
                }
            }
        }
        var ports = new ArrayList<Integer>();
        for (var table : List.of("tcp", "tcp6")) {
            for (var line : Files.readAllLines(Path.of("/proc/" + pid() + "/net/" + table))) {
                var columns = line.strip().split("\\s+");
                if (columns[3].equals("0A") && inodes.contains(columns[9])) { // LISTEN
                    var local = columns[1];
                    ports.add(Integer.parseInt(local.substring(local.indexOf(':') + 1), 16));
                }
            }
        }
        return ports.stream().distinct().toList();
    }

    @Override
    public void close() {
        if (process != null) {
            process.destroyForcibly();
        }
    }
}
