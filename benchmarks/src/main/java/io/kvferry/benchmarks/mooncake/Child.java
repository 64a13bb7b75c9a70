// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.benchmarks.ProcessCost;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/// A program of others that serves while a measurement runs; killed at the end, also when a signal
/// ends the measurement.
public final class Child implements AutoCloseable {
    private static final Set<Process> RUNNING = ConcurrentHashMap.newKeySet();

    static {
        var end = new Thread(() -> RUNNING.forEach(Process::destroyForcibly));
        Runtime.getRuntime().addShutdownHook(end);
    }

    private final Process process;
    private final BufferedReader out;

    public Child(List<String> command, Map<String, String> environment) throws IOException {
        process = start(command, environment);
        out =
                new BufferedReader(
                        new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
    }

    private static Process start(List<String> command, Map<String, String> environment)
            throws IOException {
        var builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().putAll(environment);
        var process = builder.start();
        RUNNING.add(process);
        var _ = process.onExit().thenAccept(RUNNING::remove);
        return process;
    }

    /// Reads its output up to the first match and returns the group of it; the rest is thrown away.
    public String await(String pattern) throws IOException {
        Pattern wanted = Pattern.compile(pattern);
        for (String line = out.readLine(); line != null; line = out.readLine()) {
            Matcher match = wanted.matcher(line);
            if (match.find()) {
                Thread.ofPlatform().daemon().start(this::drain);
                return match.group(match.groupCount());
            }
        }
        throw new IOException("a peer ended without printing '" + pattern + "'");
    }

    private void drain() {
        try {
            while (out.read() >= 0) {
                // only so that the peer does not block on a full pipe
            }
        } catch (IOException e) {
            return; // killed: the measurement is over
        }
    }

    long pid() {
        return process.pid();
    }

    /// Processor time that it has taken so far, as exactly as the system tells it.
    public long cpuNanos() {
        return ProcessCost.cpuOf(process.toHandle());
    }

    /// Runs a client to its end and returns all it printed.
    static String run(List<String> command, Map<String, String> environment, int limitSeconds)
            throws IOException, InterruptedException {
        Process client = start(command, environment);
        var guard =
                Thread.ofPlatform()
                        .daemon()
                        .start(() -> {
                            try {
                                if (!client.waitFor(limitSeconds, TimeUnit.SECONDS)) {
                                    client.destroyForcibly();
                                }
                            } catch (InterruptedException e) {
                                client.destroyForcibly();
                            }
                        });
        String text = new String(client.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        client.waitFor();
        guard.join();
        return text;
    }

    /// The number that the last match of a pattern holds, 0 without one.
    static double lastNumber(String text, String pattern) {
        double found = 0;
        for (Matcher match = Pattern.compile(pattern).matcher(text); match.find(); ) {
            found = Double.parseDouble(match.group(1));
        }
        return found;
    }

    public static String freePort() throws IOException {
        try (var socket = new ServerSocket(0)) {
            return String.valueOf(socket.getLocalPort());
        }
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }
}
