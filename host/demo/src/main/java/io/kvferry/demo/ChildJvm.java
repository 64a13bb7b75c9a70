// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import io.kvferry.serving.JvmFlags;
import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import tools.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.IOException;
import java.net.URI;
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

/// A `kvferry` command in a child JVM. Its standard input is a pipe from this process, and it stops
/// when that ends, so it also ends when this process is killed.
///
/// Threading: any thread.
final class ChildJvm implements AutoCloseable {
    private final String name;
    private final Path log;
    private final Process process;
    private final CompletableFuture<String> readyLine = new CompletableFuture<>();

    /// Starts `kvferry arguments...`; standard error goes to `log`.
    ///
    /// @param arguments of a command that prints one JSON line when it is ready
    ChildJvm(String name, Path log, List<String> arguments) {
        this.name = name;
        this.log = log;
        var command = new ArrayList<String>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(JvmFlags.forChild());
        command.addAll(
                List.of(
                        "-Xmx768m",
                        "-cp",
                        System.getProperty("java.class.path"),
                        "io.kvferry.serving.cli.Main"));
        command.addAll(arguments);
        command.addAll(List.of("--json", "--stop-with-stdin"));
        try {
            process = new ProcessBuilder(command).redirectError(log.toFile()).start();
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.IO, "cannot start the " + name + " process: " + e, e);
        }
        Thread.ofPlatform().daemon().name("kvferry-demo-" + name).start(this::readLines);
    }

    private void readLines() {
        try (var lines = new BufferedReader(process.inputReader(StandardCharsets.UTF_8))) {
            for (var line = lines.readLine(); line != null; line = lines.readLine()) {
                if (line.startsWith("{")) { // a JVM prints its warnings here as well
                    readyLine.complete(line);
                }
            }
            readyLine.complete("");
        } catch (IOException e) {
            readyLine.completeExceptionally(e);
        }
    }

    /// Waits until the child is ready.
    ///
    /// @return its base URL
    /// @throws KvFerryException INTERNAL when it ended instead, TIMEOUT; both with the end of its
    ///   log
    URI awaitUrl(Deadline deadline) throws InterruptedException {
        return URI.create(awaitFact("url", deadline));
    }

    /// As [#awaitUrl], for another fact of the line.
    String awaitFact(String fact, Deadline deadline) throws InterruptedException {
        try {
            var line = readyLine.get(Math.max(0, deadline.remainingNanos()), TimeUnit.NANOSECONDS);
            return ready(line).path(fact).asString();
        } catch (TimeoutException e) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    "the " + name + " process was not ready in time. Its log ends:\n" + logTail(),
                    e);
        } catch (ExecutionException | HttpProblem e) {
            throw new KvFerryException(
                    ErrorCode.INTERNAL,
                    "the " + name + " process did not start. Its log ends:\n" + logTail(),
                    e);
        }
    }

    private static ObjectNode ready(String line) {
        return Json.parseObject(line.getBytes(StandardCharsets.UTF_8));
    }

    String logTail() {
        try {
            var lines = Files.readAllLines(log);
            return String.join("\n", lines.subList(Math.max(0, lines.size() - 15), lines.size()));
        } catch (IOException e) {
            return "(cannot be read: " + e + ")";
        }
    }

    /// Ends it at once, as `kill -9` does.
    void kill() {
        process.destroyForcibly();
    }

    boolean isAlive() {
        return process.isAlive();
    }

    /// Waits for its end after [#kill].
    boolean awaitEnd(Duration limit) throws InterruptedException {
        return process.waitFor(limit.toMillis(), TimeUnit.MILLISECONDS);
    }

    /// Asks it to stop, by the end of its standard input; kills it when it does not. On return it
    /// has ended, and writes no file any more.
    @Override
    public void close() {
        try {
            process.getOutputStream().close();
        } catch (IOException e) {
            process.destroyForcibly(); // the pipe is broken: the child has ended or is ending
        }
        try {
            if (!process.waitFor(10, TimeUnit.SECONDS)) {
                process.destroyForcibly();
                process.waitFor(10, TimeUnit.SECONDS);
            }
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }
}
