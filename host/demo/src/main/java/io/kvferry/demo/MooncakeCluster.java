// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;

/// A real Mooncake master and a client with memory for it, on ephemeral loopback ports: the
/// programs beside `libmooncake_store.so`. They end with this process, however it ends.
///
/// Threading: one thread starts; [#close] from any thread.
final class MooncakeCluster implements AutoCloseable {
    private static final String LIBRARY = "KVFERRY_MOONCAKE_STORE_LIB";
    private static final String MASTER = "mooncake_master";
    private static final String CLIENT = "mooncake_client";
    private static final Duration POLL = Duration.ofMillis(50);

    private final Path folder;
    private final Path logs;
    private final HttpClient http =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final List<Process> processes = new CopyOnWriteArrayList<>();

    /// @param folder as of [#programs]
    MooncakeCluster(Path folder, Path logs) {
        this.folder = folder;
        this.logs = logs;
    }

    /// The folder of the programs.
    ///
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE] when Mooncake is not installed
    static Path programs() {
        var library =
                Optional.ofNullable(System.getenv(LIBRARY))
                        .filter(text -> !text.isBlank())
                        .map(Path::of);
        Path folder = library.map(Path::toAbsolutePath).map(Path::getParent).orElse(null);
        if (folder == null
                || !Files.isReadable(library.orElseThrow())
                || !Files.isExecutable(folder.resolve(MASTER))
                || !Files.isExecutable(folder.resolve(CLIENT))) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    "the demo on a Mooncake cluster needs Mooncake: name libmooncake_store.so, with "
                            + MASTER
                            + " and "
                            + CLIENT
                            + " beside it, in "
                            + LIBRARY
                            + "; interop/install-peers store gets them");
        }
        return folder;
    }

    /// Starts both and waits until the memory is there.
    ///
    /// @return the store's name for the connector
    /// @throws KvFerryException when one does not start, with the end of its log
    String start(Deadline deadline) throws IOException, InterruptedException {
        int rpc = ClusterPlan.freePort();
        int admin = ClusterPlan.freePort();
        String address = "127.0.0.1:" + rpc;
        run(
                MASTER,
                "--rpc_address=127.0.0.1",
                "--rpc_port=" + rpc,
                "--metrics_host=127.0.0.1",
                "--metrics_port=" + admin);
        await(MASTER, admin, "/health", deadline);
        run(
                CLIENT,
                "--host=127.0.0.1",
                "--port=" + ClusterPlan.freePort(),
                "--global_segment_size=256MB",
                "--master_server_address=" + address,
                "--metadata_server=P2PHANDSHAKE",
                "--protocol=tcp");
        await(CLIENT, admin, "/get_all_segments", deadline);
        return "mooncake://" + address;
    }

    /// Under a shell that waits for the end of its standard input, which is ours: these programs do
    /// not notice when their parent is killed.
    private void run(String program, String... flags) throws IOException {
        var command =
                new ArrayList<>(
                        List.of(
                                "sh",
                                "-c",
                                "\"$0\" \"$@\" & p=$!; cat >/dev/null; kill -9 $p; wait $p",
                                folder.resolve(program).toString()));
        command.addAll(List.of(flags));
        processes.add(
                new ProcessBuilder(command)
                        .redirectErrorStream(true)
                        .redirectOutput(log(program).toFile())
                        .start());
    }

    private Path log(String program) {
        return logs.resolve(program + ".log");
    }

    /// Until the master's admin port answers something.
    private void await(String program, int port, String path, Deadline deadline)
            throws IOException, InterruptedException {
        var request =
                HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path))
                        .timeout(Duration.ofSeconds(5))
                        .build();
        while (!answers(request)) {
            if (deadline.passed()) {
                var lines = Files.readAllLines(log(program));
                throw new KvFerryException(
                        ErrorCode.TIMEOUT,
                        program
                                + " was not ready in time. Its log ends:\n"
                                + String.join(
                                        "\n",
                                        lines.subList(
                                                Math.max(0, lines.size() - 15), lines.size())));
            }
            Thread.sleep(POLL);
        }
    }

    private boolean answers(HttpRequest request) throws InterruptedException {
        try {
            var response = http.send(request, BodyHandlers.ofString());
            return response.statusCode() == 200 && !response.body().isBlank();
        } catch (IOException e) {
            return false; // it does not listen yet
        }
    }

    @Override
    public void close() {
        for (var process : processes.reversed()) {
            try {
                process.getOutputStream().close();
                if (!process.waitFor(10, TimeUnit.SECONDS)) {
                    process.descendants().forEach(ProcessHandle::destroyForcibly);
                    process.destroyForcibly();
                }
            } catch (IOException e) {
                process.descendants().forEach(ProcessHandle::destroyForcibly);
                process.destroyForcibly();
            } catch (InterruptedException e) {
                process.descendants().forEach(ProcessHandle::destroyForcibly);
                process.destroyForcibly();
                Thread.currentThread().interrupt();
            }
        }
        http.shutdownNow();
    }
}
