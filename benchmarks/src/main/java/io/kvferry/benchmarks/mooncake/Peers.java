// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.benchmarks.Table;
import io.kvferry.benchmarks.Tool;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/// What others reach on this machine's loopback, as far as they are installed.
final class Peers {
    private static final Duration LIMIT = Duration.ofSeconds(60);

    /// Python of `interop/install-peers`, whose site-packages hold Mooncake's benchmark.
    private static final String PYTHON = "KVFERRY_MOONCAKE_PYTHON";

    private Peers() {}

    static void print(boolean quick) throws Exception {
        var table = new Table("limit or peer", "block", "GB/s");
        iperf(table, quick);
        ucx(table, quick);
        mooncake(table, quick);
        table.print();
    }

    private static int freePort() throws IOException {
        try (var socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private static Process start(List<String> command, Map<String, String> environment)
            throws IOException {
        var builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().putAll(environment);
        return builder.start();
    }

    private static void awaitPort(int port) throws IOException {
        long end = System.nanoTime() + Duration.ofSeconds(10).toNanos();
        while (true) {
            try (var socket = new Socket("127.0.0.1", port)) {
                if (socket.isConnected()) {
                    return;
                }
            } catch (IOException e) {
                if (System.nanoTime() > end) {
                    throw e;
                }
            }
        }
    }

    private static void iperf(Table table, boolean quick) throws Exception {
        Optional<Path> iperf = Tool.find("iperf3", "apt-get install iperf3");
        if (iperf.isEmpty()) {
            return;
        }
        String port = String.valueOf(freePort());
        Process server =
                start(
                        List.of(iperf.get().toString(), "-s", "-B", "127.0.0.1", "-p", port),
                        Map.of());
        try {
            awaitPort(Integer.parseInt(port));
            for (String streams : List.of("1", "2")) {
                String out =
                        Tool.run(
                                LIMIT,
                                List.of(
                                        iperf.get().toString(),
                                        "-c",
                                        "127.0.0.1",
                                        "-p",
                                        port,
                                        "-t",
                                        quick ? "1" : "5",
                                        "-P",
                                        streams,
                                        "-l",
                                        "1M",
                                        "-f",
                                        "G"));
                table.row(
                        "iperf3, " + streams + " streams",
                        "1048576",
                        last(out, "([0-9.]+) GBytes/sec.*receiver"));
            }
        } finally {
            server.destroy();
        }
    }

    private static void ucx(Table table, boolean quick) throws Exception {
        Optional<Path> perf = Tool.find("ucx_perftest", "apt-get install ucx-utils");
        if (perf.isEmpty()) {
            return;
        }
        for (int block : new int[] {4096, 65536, 262144, 1 << 20, 16 << 20}) {
            String port = String.valueOf(freePort());
            Map<String, String> tcp =
                    Map.of(
                            "UCX_TLS",
                            "tcp",
                            "UCX_NET_DEVICES",
                            "lo",
                            "UCX_WARN_UNUSED_ENV_VARS",
                            "n");
            Process server = start(List.of(perf.get().toString(), "-p", port), tcp);
            try {
                // It serves one client and says nothing first; a client that comes too early fails
                // and is asked again.
                String rounds = String.valueOf(Math.max(50, (quick ? 1L << 28 : 1L << 30) / block));
                String out = ucxClient(perf.get(), port, block, rounds, tcp);
                table.row("ucx_perftest tag_bw, UCX_TLS=tcp", block, mega(out));
            } finally {
                server.destroy();
            }
        }
    }

    private static String ucxClient(
            Path perf, String port, int block, String rounds, Map<String, String> environment)
            throws Exception {
        String out = "";
        for (int attempt = 0; attempt < 20 && !out.contains("Final"); attempt++) {
            Process client =
                    start(
                            List.of(
                                    perf.toString(),
                                    "127.0.0.1",
                                    "-p",
                                    port,
                                    "-t",
                                    "tag_bw",
                                    "-s",
                                    String.valueOf(block),
                                    "-n",
                                    rounds,
                                    "-w",
                                    "20"),
                            environment);
            out = new String(client.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            client.waitFor();
            Thread.sleep(out.contains("Final") ? 0 : 50);
        }
        return out;
    }

    /// UCX prints MB/s (of 2^20) on the line "Final:", the average before the overall figure.
    private static String mega(String out) {
        for (String line : out.lines().toList()) {
            if (line.startsWith("Final:")) {
                String[] words = line.trim().split("\\s+");
                return String.format(
                        java.util.Locale.ROOT,
                        "%.2f",
                        Double.parseDouble(words[words.length - 3]) * 1.048576e-3);
            }
        }
        return "no result";
    }

    private static void mooncake(Table table, boolean quick) throws Exception {
        String python = System.getenv(PYTHON);
        Path bench = python == null ? Path.of("/nonexistent") : findBench(Path.of(python));
        if (!Files.isExecutable(bench)) {
            System.out.println(
                    "SKIPPED transfer_engine_bench: interop/install-peers gets it; name its Python in "
                            + PYTHON);
            return;
        }
        for (String pool : List.of("0", "1")) {
            Map<String, String> environment =
                    Map.of("MC_TCP_ENABLE_CONNECTION_POOL", pool, "MC_FORCE_TCP", "1");
            Process target =
                    start(
                            List.of(
                                    bench.toString(),
                                    "--mode=target",
                                    "--metadata_server=P2PHANDSHAKE",
                                    "--protocol=tcp",
                                    "--local_server_name=127.0.0.1",
                                    "--buffer_size=268435456"),
                            environment);
            try {
                String segment = segmentOf(target);
                for (String operation : List.of("write", "read")) {
                    for (int block : new int[] {4096, 65536, 262144, 1 << 20, 4 << 20}) {
                        Process client =
                                start(
                                        mooncakeClient(bench, segment, operation, block, quick),
                                        environment);
                        String out =
                                new String(
                                        client.getInputStream().readAllBytes(),
                                        StandardCharsets.UTF_8);
                        client.waitFor();
                        table.row(
                                "transfer_engine_bench "
                                        + operation
                                        + ", pool "
                                        + pool
                                        + ", batch 16",
                                block,
                                last(out, "throughput ([0-9.]+) GB/s"));
                    }
                }
            } finally {
                target.destroyForcibly();
            }
        }
    }

    private static List<String> mooncakeClient(
            Path bench, String segment, String operation, int block, boolean quick) {
        return new ArrayList<>(
                List.of(
                        bench.toString(),
                        "--mode=initiator",
                        "--metadata_server=P2PHANDSHAKE",
                        "--protocol=tcp",
                        "--local_server_name=127.0.0.1",
                        "--segment_id=" + segment,
                        "--operation=" + operation,
                        "--block_size=" + block,
                        "--batch_size=16",
                        "--threads=2",
                        "--duration=" + (quick ? 1 : 3),
                        "--buffer_size=268435456"));
    }

    private static Path findBench(Path python) throws IOException {
        Path lib = python.resolveSibling("../lib");
        if (!Files.isDirectory(lib)) {
            return lib;
        }
        try (var files =
                Files.find(lib, 5, (path, _) -> path.endsWith("mooncake/transfer_engine_bench"))) {
            return files.findFirst().orElse(lib.resolve("none"));
        }
    }

    private static String segmentOf(Process target) throws IOException {
        var out =
                new BufferedReader(
                        new InputStreamReader(target.getInputStream(), StandardCharsets.UTF_8));
        Pattern listens = Pattern.compile("listening on (127\\.0\\.0\\.1:\\d+)");
        for (String line = out.readLine(); line != null; line = out.readLine()) {
            Matcher match = listens.matcher(line);
            if (match.find()) {
                Thread.ofVirtual().start(() -> out.lines().forEach(_ -> {}));
                return match.group(1);
            }
        }
        throw new IOException("transfer_engine_bench ended without saying where it listens");
    }

    private static String last(String out, String pattern) {
        String found = "no result";
        for (Matcher match = Pattern.compile(pattern).matcher(out); match.find(); ) {
            found = match.group(1);
        }
        return found;
    }
}
