// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.IntFunction;

/// Runs a command beside an owner of a store: starts the owner, waits until it is ready, tells the
/// command where it is, starts another owner on the same port whenever it dies, and stops first the
/// command and then the owner.
///
/// Threading: [#run] on one thread; [#close] from any.
final class RunWithOwner implements AutoCloseable {
    private static final String CONFIG = "--kv-transfer-config";
    private static final String INJECTED =
            "{\"kv_connector\":\"MooncakeStoreConnector\",\"kv_role\":\"kv_both\","
                    + "\"kv_connector_extra_config\":"
                    + "{\"load_async\":true,\"enable_cross_layers_blocks\":true}}";
    private static final Duration STOP = Duration.ofSeconds(10);

    /// Least time between two starts of the owner.
    private static final Duration PAUSE = Duration.ofSeconds(1);

    private final IntFunction<List<String>> ownerCommand;
    private final Path ownerLog;
    private final Duration readyLimit;
    private final Optional<String> master;
    private final Map<String, String> environment;
    private final PrintWriter err;
    private final List<AutoCloseable> running = new ArrayList<>();
    private boolean closed;

    /// @param ownerCommand that starts an owner on a port, 0 for the first one
    /// @param master that the command is to use in place of the owner alone
    /// @param environment what the command has beside that of this process
    /// @param err told what happens
    RunWithOwner(
            IntFunction<List<String>> ownerCommand,
            Path ownerLog,
            Duration readyLimit,
            Optional<String> master,
            Map<String, String> environment,
            PrintWriter err) {
        this.ownerCommand = ownerCommand;
        this.ownerLog = ownerLog;
        this.readyLimit = readyLimit;
        this.master = master;
        this.environment = Map.copyOf(environment);
        this.err = err;
    }

    /// The command as it is run: with a configuration unless it brings one.
    static List<String> withConfig(List<String> command, PrintWriter err) {
        boolean has =
                command.stream()
                        .anyMatch(word -> word.equals(CONFIG) || word.startsWith(CONFIG + "="));
        if (has) {
            err.println(
                    "Wrapped command already has --kv-transfer-config; skipping wrapper"
                            + " auto-inject.");
            return command;
        }
        var more = new ArrayList<>(command);
        more.addAll(List.of(CONFIG, INJECTED));
        return more;
    }

    /// Runs it to its end.
    ///
    /// @return the exit code of the command
    /// @throws KvFerryException when owner or command cannot be started
    int run(List<String> command) throws InterruptedException {
        OwnerProcess owner = startOwner(0);
        String address = owner.awaitReady(Deadline.in(readyLimit));
        int port = Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
        err.println("Mooncake preferred segment: " + address);
        err.flush();
        Process server = startServer(withConfig(command, err), address);
        err.flush();
        while (true) {
            await(CompletableFuture.anyOf(server.onExit(), owner.onExit()));
            if (!server.isAlive()) {
                return server.exitValue();
            }
            err.println(
                    "The owner of the store has ended; another one is started. The engine serves"
                            + " without it meanwhile.");
            err.flush();
            owner = anotherOwner(server, port);
        }
    }

    /// Tries until there is one, or the command has ended.
    private OwnerProcess anotherOwner(Process server, int port) throws InterruptedException {
        while (true) {
            Thread.sleep(PAUSE); // one that dies at once must not take the processor
            OwnerProcess owner = startOwner(port);
            try {
                owner.awaitReady(Deadline.in(readyLimit));
                err.println("The owner of the store is back.");
                err.flush();
                return owner;
            } catch (KvFerryException e) {
                err.println(e.getMessage());
                err.flush();
                owner.close();
                if (!server.isAlive()) {
                    return owner;
                }
            }
        }
    }

    private static void await(CompletableFuture<?> end) throws InterruptedException {
        try {
            end.get();
        } catch (ExecutionException e) {
            throw new IllegalStateException("a process ended with an exception", e);
        }
    }

    private OwnerProcess startOwner(int port) {
        synchronized (running) {
            requireOpen();
            var owner = new OwnerProcess(ownerCommand.apply(port), ownerLog);
            running.addFirst(owner);
            return owner;
        }
    }

    private Process startServer(List<String> command, String address) {
        synchronized (running) {
            requireOpen();
            var builder = new ProcessBuilder(command).inheritIO();
            builder.environment().putAll(environment);
            builder.environment().put("MOONCAKE_PREFERRED_SEGMENT", address);
            builder.environment().put("MOONCAKE_MASTER", master.orElse(address));
            try {
                Process server = builder.start();
                running.add(() -> OwnerProcess.stop(server, STOP));
                return server;
            } catch (IOException e) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        String.valueOf(e.getMessage()), // names the program and the system's reason
                        e);
            }
        }
    }

    private void requireOpen() {
        if (closed) {
            throw new KvFerryException(ErrorCode.CLOSED, "interrupted");
        }
    }

    /// Stops the command, then the owners. Idempotent.
    @Override
    public void close() {
        List<AutoCloseable> all;
        synchronized (running) {
            closed = true;
            all = new ArrayList<>(running);
            running.clear();
        }
        for (AutoCloseable each : all.reversed()) {
            try {
                each.close();
            } catch (Exception e) {
                throw new IllegalStateException("a process could not be stopped", e);
            }
        }
    }
}
