// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import tools.jackson.core.JacksonException;
import tools.jackson.databind.json.JsonMapper;

import java.io.BufferedReader;
import java.io.IOException;
import java.lang.management.ManagementFactory;
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

/// A `kvferry owner` in a process of its own. Its standard input is a pipe from this process, and
/// it stops when that ends, so it also ends when this process is killed.
///
/// Threading: any thread.
final class OwnerProcess implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(OwnerProcess.class);
    private static final int LOG_LINES = 50;

    /// Options by which a JVM records an AOT cache: two that end would write one file.
    private static final Pattern RECORDS_AOT =
            Pattern.compile("-XX:AOT(CacheOutput|Configuration|Mode)=.*");

    private static final Duration STOP = Duration.ofSeconds(10);

    private final Process process;
    private final Path log;
    private final CompletableFuture<String> ready = new CompletableFuture<>();

    /// @param command prints one line of JSON with `address` when it is ready
    /// @param log where its standard error goes
    OwnerProcess(List<String> command, Path log) {
        this.log = log;
        try {
            this.process = new ProcessBuilder(command).redirectError(log.toFile()).start();
        } catch (IOException e) {
            throw new KvFerryException(ErrorCode.IO, "cannot start the owner: " + e, e);
        }
        Thread.ofPlatform().daemon().name("kvferry-owner-output").start(this::readLines);
    }

    /// The command line of this JVM with other arguments.
    static List<String> thisProgram(List<String> arguments) {
        var command = new ArrayList<String>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(inherited(ManagementFactory.getRuntimeMXBean().getInputArguments()));
        String program = System.getProperty("sun.java.command", "").split(" ", 2)[0];
        if (program.endsWith(".jar")) {
            command.addAll(List.of("-jar", program));
        } else {
            command.addAll(List.of("-cp", System.getProperty("java.class.path"), program));
        }
        command.addAll(arguments);
        return command;
    }

    /// Those options of a JVM that a second one may have beside it.
    static List<String> inherited(List<String> options) {
        return options.stream().filter(option -> !RECORDS_AOT.matcher(option).matches()).toList();
    }

    private void readLines() {
        try (BufferedReader lines = process.inputReader(StandardCharsets.UTF_8)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.startsWith("{")) { // a JVM prints its warnings here as well
                    ready.complete(line);
                }
            }
        } catch (IOException e) {
            LOG.debug("the owner's output ended: {}", e.toString());
        } finally {
            ready.complete("");
        }
    }

    /// Waits until it can be used.
    ///
    /// @return its address
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] when it ends instead, [ErrorCode#TIMEOUT];
    ///   with the end of its log
    String awaitReady(Deadline deadline) throws InterruptedException {
        try {
            String line = ready.get(Math.max(0, deadline.remainingNanos()), TimeUnit.NANOSECONDS);
            String address =
                    JsonMapper.builder().build().readTree(line).path("address").asString("");
            if (!address.isEmpty()) {
                return address;
            }
            throw new KvFerryException(ErrorCode.UNAVAILABLE, exited());
        } catch (JacksonException | ExecutionException e) {
            throw new KvFerryException(ErrorCode.UNAVAILABLE, exited(), e);
        } catch (TimeoutException e) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    "Timed out waiting for the owner of the store. Its log ends:\n" + logTail(),
                    e);
        }
    }

    private String exited() {
        return "Mooncake owner exited before becoming ready. Its log ends:\n" + logTail();
    }

    private String logTail() {
        try {
            var lines = Files.readAllLines(log);
            return String.join(
                    "\n", lines.subList(Math.max(0, lines.size() - LOG_LINES), lines.size()));
        } catch (IOException e) {
            return "(cannot be read: " + e + ")";
        }
    }

    /// Completes when the process has ended.
    CompletableFuture<Process> onExit() {
        return process.onExit();
    }

    /// As kill -9.
    void kill() {
        process.destroyForcibly();
    }

    @Override
    public void close() {
        stop(process, STOP);
    }

    /// Asks a process to stop, kills it when it does not, and waits for its end.
    static void stop(Process process, Duration patience) {
        process.destroy();
        try {
            if (!process.waitFor(patience.toMillis(), TimeUnit.MILLISECONDS)) {
                process.destroyForcibly();
                process.waitFor(patience.toMillis(), TimeUnit.MILLISECONDS);
            }
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }
}
