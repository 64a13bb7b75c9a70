// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.mooncake.Child;
import io.kvferry.benchmarks.mooncake.MooncakeFiles;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// A real Mooncake store on loopback: its master, and `mooncake_store.py` as the process that has
/// the memory and as users of it.
///
/// Threading: one thread; each [Answerer] may have one of its own.
@SuppressWarnings("try") // an interrupt ends the benchmark
final class MooncakeStore implements AutoCloseable {
    private static final String SCRIPT = "mooncake_store.py";
    private static final String LEASE_MS =
            "60000"; // longer than a call; what is removed is removed in spite of it;
    private static final int LOG_LINES = 5;
    private static final int PATIENCE_SECONDS = 240;

    /// With its connection pool, which is faster than without.
    private static final Map<String, String> SETTINGS =
            Map.of("MC_TCP_BIND_ADDRESS", "127.0.0.1", "MC_TCP_ENABLE_CONNECTION_POOL", "1");

    private final Path folder;
    private final Path python;
    private final String address;
    private final Child master;
    private final Answerer owner;

    private MooncakeStore(Path python, Path program, Path folder, long bytes)
            throws IOException, InterruptedException {
        this.folder = folder;
        this.python = python;
        String port = Child.freePort();
        this.address = "127.0.0.1:" + port;
        this.master =
                new Child(
                        List.of(
                                program.toString(),
                                "--rpc_address=127.0.0.1",
                                "--rpc_port=" + port,
                                "--metrics_host=127.0.0.1",
                                "--metrics_port=" + Child.freePort(),
                                "--default_kv_lease_ttl=" + LEASE_MS),
                        Map.of());
        boolean started = false;
        try (var script = MooncakeStore.class.getResourceAsStream(SCRIPT)) {
            if (script == null) {
                throw new IOException(SCRIPT + " is not on the class path");
            }
            Files.copy(script, folder.resolve(SCRIPT));
            master.await("(Master service started|Starting RPC server|listen)");
            this.owner = new Answerer("owner", bytes);
            started = true;
        } finally {
            if (!started) {
                master.close();
            }
        }
    }

    /// Empty, after one visible line, where Mooncake is not installed.
    ///
    /// @param bytes of memory
    static Optional<MooncakeStore> start(long bytes) throws IOException, InterruptedException {
        var python = MooncakeFiles.python("Mooncake's store");
        var program =
                python.isPresent()
                        ? MooncakeFiles.program("mooncake_master")
                        : Optional.<Path>empty();
        if (program.isEmpty()) {
            return Optional.empty();
        }
        var folder = Files.createTempDirectory("kvferry-mooncake");
        boolean started = false;
        try {
            var store = new MooncakeStore(python.orElseThrow(), program.get(), folder, bytes);
            started = true;
            return Optional.of(store);
        } finally {
            if (!started) {
                Folders.delete(folder);
            }
        }
    }

    /// A process that uses the store.
    ///
    /// @param bytes of its registered buffer
    Answerer user(long bytes) throws IOException, InterruptedException {
        return new Answerer("user", bytes);
    }

    /// Processor time of the master and of the process that has the memory, so far.
    long cpuNanos() {
        return master.cpuNanos() + owner.cpuNanos();
    }

    @Override
    public void close() throws IOException, InterruptedException {
        try {
            owner.close();
        } finally {
            master.close();
            Folders.delete(folder);
        }
    }

    /// A process with the script.
    final class Answerer implements AutoCloseable {
        private final Process process;
        private final BufferedReader lines;
        private final Path log;

        private Answerer(String role, long bytes) throws IOException, InterruptedException {
            log = Files.createTempFile(folder, role, ".log");
            var builder =
                    new ProcessBuilder(
                                    python.toString(),
                                    "-B",
                                    folder.resolve(SCRIPT).toString(),
                                    role,
                                    address,
                                    String.valueOf(bytes))
                            .redirectError(log.toFile());
            builder.environment().putAll(SETTINGS);
            process = builder.start();
            lines = process.inputReader(StandardCharsets.UTF_8);
            boolean ready = false;
            try {
                hear();
                ready = true;
            } finally {
                if (!ready) {
                    close();
                }
            }
        }

        /// Sends a line and returns the numbers of its answer.
        long[] ask(String line) throws IOException {
            var out = process.getOutputStream();
            out.write((line + "\n").getBytes(StandardCharsets.UTF_8));
            out.flush();
            return Arrays.stream(hear().split(" ")).mapToLong(Long::parseLong).toArray();
        }

        private String hear() throws IOException {
            var heard = new CompletableFuture<String>();
            Thread.ofPlatform().daemon().start(() -> heard.complete(nextAnswer()));
            try {
                String answer = heard.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
                if (!answer.isEmpty()) {
                    return answer;
                }
            } catch (ExecutionException | TimeoutException e) {
                throw new IOException("Mooncake does not answer: " + e, e);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            var said = Files.readAllLines(log, StandardCharsets.ISO_8859_1);
            throw new IOException(
                    "Mooncake ended: "
                            + String.join(
                                    "\n",
                                    said.subList(
                                            Math.max(0, said.size() - LOG_LINES), said.size())));
        }

        private String nextAnswer() {
            try {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    if (line.startsWith("@ ")) {
                        return line.substring(2);
                    }
                }
                return "";
            } catch (IOException e) {
                return ""; // it was killed
            }
        }

        long cpuNanos() {
            return process.info().totalCpuDuration().map(Duration::toNanos).orElse(0L);
        }

        @Override
        public void close() throws IOException, InterruptedException {
            OwnerJvm.stop(process);
        }
    }
}
