// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.p2p;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Folders;
import io.kvferry.benchmarks.Table;
import io.kvferry.benchmarks.p2p.ServingProcess.Report;

import org.jspecify.annotations.Nullable;

import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// The comparison with which vLLM's MooncakeConnector was introduced: one prefill and one decode
/// engine, 100 prompts with lengths as in ShareGPT, 23,260 input tokens and 21,500 output tokens in
/// all, over each connector, as one serving report.
///
/// The synthetic runner takes `--step-time` for a step and `--token-time` for a token beyond that,
/// writes the KV of each token, and verifies every byte that was handed over. Requests come by a
/// Poisson process; a router that costs nothing sends both legs at once, or one after the other for
/// a connector that hands over through a store.
@Command(
        name = "pd-serving",
        description =
                "Serving report of 1 prefill and 1 decode engine, 100 prompts as in ShareGPT, by connector.")
public final class PdServingBenchmark extends Benchmark {
    private static final int REQUESTS = 100;
    private static final int QUICK_REQUESTS = 12;
    private static final int INPUT_TOKENS = 23_260;
    private static final int OUTPUT_TOKENS = 21_500;

    /// 1 MiB of KV for a block of 16 tokens: room for all requests at once.
    private static final int BLOCKS = 4096;

    /// Before the measured ones, so that both processes have compiled what they run.
    private static final int WARM_UP = 20;

    private static final long SEED = 7;

    @Option(names = "--rate", description = "Requests a second (3.5).")
    private @Nullable Double givenRate;

    @Option(names = "--step-time", description = "Of the model, for each step (10ms).")
    private @Nullable String givenStepTime;

    @Option(names = "--token-time", description = "Of the model, for each token.")
    private String tokenTime = "50us";

    @Option(names = "--only", description = "Connectors whose name contains this.")
    private String only = "";

    @Option(names = "--dir", description = "Where DiskConnector makes its folder.")
    private Path dir = Path.of(System.getProperty("java.io.tmpdir"));

    /// One prompt.
    ///
    /// @param arrival seconds from the start
    private record Prompt(int input, int output, double arrival) {}

    /// How both engines are configured, and what a router tells them.
    ///
    /// @param together whether both legs are sent at once
    private record Way(
            String connector,
            String prefill,
            String decode,
            List<String> prefillParams,
            List<String> decodeParams,
            boolean together) {}

    @Override
    protected void run() throws Exception {
        double rate = givenRate != null ? givenRate : quick ? 20 : 3.5;
        var stepTime = givenStepTime != null ? givenStepTime : quick ? "1ms" : "10ms";
        var prompts = prompts(quick ? QUICK_REQUESTS : REQUESTS, rate);
        System.out.printf(
                "# %d requests, %d input and %d output tokens, %.1f requests/s, a step takes %s and %s for each token%n",
                prompts.size(),
                prompts.stream().mapToInt(Prompt::input).sum(),
                prompts.stream().mapToInt(Prompt::output).sum(),
                rate,
                stepTime,
                tokenTime);
        var table =
                new Table(
                        "connector",
                        "requests/s",
                        "output tokens/s",
                        "TTFT ms: mean",
                        "median",
                        "p99",
                        "TPOT ms: mean",
                        "median",
                        "p99",
                        "E2E ms: mean",
                        "handed over, %");
        var folder = Files.createTempDirectory(dir, "kvferry-serving");
        try {
            for (var way : ways(folder)) {
                if (way.connector.contains(only)) {
                    row(table, way, prompts, stepTime, tokenTime);
                }
            }
        } finally {
            Folders.delete(folder);
        }
        table.print();
        System.out.println(
                """
                TTFT and E2E: from the moment a request was sent to both legs (DiskConnector: to the prefill leg; \
                the decode leg follows when that has answered). TPOT: from the first
                token to the last, by token. Handed over: prompt tokens that the decoder loaded; the others it computed \
                itself.\
                """);
    }

    /// Lengths are log-normal, as those of ShareGPT roughly are, and scaled to the sums.
    private static List<Prompt> prompts(int count, double rate) {
        var random = new Random(SEED);
        var input = lengths(random, count, INPUT_TOKENS * count / REQUESTS);
        var output = lengths(random, count, OUTPUT_TOKENS * count / REQUESTS);
        var prompts = new ArrayList<Prompt>();
        double arrival = 0;
        for (int i = 0; i < count; i++) {
            prompts.add(new Prompt(input[i], output[i], arrival));
            arrival -= Math.log(1 - random.nextDouble()) / rate;
        }
        return prompts;
    }

    private static int[] lengths(Random random, int count, int sum) {
        var raw = new double[count];
        Arrays.setAll(raw, _ -> Math.exp(random.nextGaussian()));
        double scale = sum / Arrays.stream(raw).sum();
        var lengths = new int[count];
        Arrays.setAll(lengths, i -> Math.max(4, (int) Math.round(raw[i] * scale)));
        lengths[0] += sum - Arrays.stream(lengths).sum();
        lengths[0] = Math.max(4, lengths[0]);
        return lengths;
    }

    private static List<Way> ways(Path folder) throws IOException {
        var ways = new ArrayList<Way>();
        int bootstrap = freePort();
        ways.add(
                new Way(
                        "MooncakeConnector",
                        config(
                                "MooncakeConnector",
                                "kv_producer",
                                "p",
                                "\"bootstrap_port\": " + bootstrap),
                        config("MooncakeConnector", "kv_consumer", "d", ""),
                        List.of("do_remote_decode=true", "do_remote_prefill=false"),
                        List.of(
                                "do_remote_prefill=true",
                                "do_remote_decode=false",
                                "remote_bootstrap_addr=http://127.0.0.1:" + bootstrap,
                                "remote_engine_id=p"),
                        true));
        for (var sendType : List.of("PUT_ASYNC", "PUT", "GET")) {
            int prefill = freePort();
            int decode = freePort();
            var type = "\"send_type\": \"%s\", \"listen_port\": %d";
            ways.add(
                    new Way(
                            "P2pNcclConnector " + sendType,
                            config(
                                    "P2pNcclConnector",
                                    "kv_producer",
                                    "p",
                                    type.formatted(sendType, prefill)),
                            config(
                                    "P2pNcclConnector",
                                    "kv_consumer",
                                    "d",
                                    type.formatted(sendType, decode)),
                            List.of("do_remote_decode=true", "decode_addr=127.0.0.1:" + decode),
                            List.of("do_remote_prefill=true", "prefill_addr=127.0.0.1:" + prefill),
                            true));
        }
        var disk = "\"path\": \"%s\", \"capacity\": \"20GiB\"";
        ways.add(
                new Way(
                        "DiskConnector",
                        config("DiskConnector", "kv_producer", "p", disk.formatted(folder)),
                        config("DiskConnector", "kv_consumer", "d", disk.formatted(folder)),
                        List.of(),
                        List.of(),
                        false));
        return ways;
    }

    private static String config(String connector, String role, String id, String extra) {
        return "{\"kv_connector\": \"%s\", \"kv_role\": \"%s\", \"engine_id\": \"%s\", \"kv_connector_extra_config\": {%s}}"
                .formatted(connector, role, id, extra);
    }

    private static int freePort() throws IOException {
        try (var socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    private static void row(
            Table table, Way way, List<Prompt> prompts, String stepTime, String tokenTime)
            throws Exception {
        try (var prefill = new ServingProcess(way.prefill, BLOCKS, stepTime, tokenTime)) {
            prefill.awaitReady();
            try (var decode = new ServingProcess(way.decode, BLOCKS, stepTime, tokenTime)) {
                decode.awaitReady();
                var warm = new ArrayList<Prompt>();
                for (int i = 0; i < WARM_UP; i++) {
                    warm.add(new Prompt(100 + 20 * i, 20, 0.02 * i));
                }
                serve(way, prefill, decode, warm, "warm");
                print(table, way, prompts, serve(way, prefill, decode, prompts, "x"));
            }
        }
    }

    /// A request as its client sees it.
    private record Served(long sent, Report decode) {}

    private static List<Served> serve(
            Way way,
            ServingProcess prefill,
            ServingProcess decode,
            List<Prompt> prompts,
            String name)
            throws Exception {
        var all = new ArrayList<CompletableFuture<Served>>();
        long start = System.nanoTime();
        for (int i = 0; i < prompts.size(); i++) {
            var prompt = prompts.get(i);
            long at = start + (long) (prompt.arrival * 1e9);
            while (System.nanoTime() < at) {
                LockSupport.parkNanos(at - System.nanoTime());
            }
            var id = name + i;
            long sent = System.nanoTime();
            var first = prefill.submit(id, prompt.input, 1, with(way.prefillParams, id));
            CompletableFuture<Report> second;
            if (way.together) {
                second = decode.submit(id, prompt.input, prompt.output, with(way.decodeParams, id));
            } else {
                second =
                        first.thenCompose(_ -> {
                            try {
                                return decode.submit(
                                        id,
                                        prompt.input,
                                        prompt.output,
                                        with(way.decodeParams, id));
                            } catch (IOException e) {
                                return CompletableFuture.failedFuture(e);
                            }
                        });
            }
            all.add(first.thenCombine(second, (_, report) -> new Served(sent, report)));
        }
        var served = new ArrayList<Served>();
        for (var each : all) {
            served.add(each.get(ServingChild.LIMIT.toSeconds(), TimeUnit.SECONDS));
        }
        return served;
    }

    private static List<String> with(List<String> params, String transfer) {
        if (params.isEmpty()) {
            return params;
        }
        var all = new ArrayList<>(params);
        all.add("transfer_id=" + transfer);
        return all;
    }

    private static void print(Table table, Way way, List<Prompt> prompts, List<Served> served) {
        int count = served.size();
        var ttft = new double[count];
        var tpot = new double[count];
        double e2e = 0;
        long end = 0;
        long begin = Long.MAX_VALUE;
        long output = 0;
        long loaded = 0;
        for (int i = 0; i < count; i++) {
            var each = served.get(i);
            var report = each.decode;
            if (report.generated() != prompts.get(i).output) {
                throw new IllegalStateException(
                        way.connector + ": " + report.generated() + " tokens of request " + i);
            }
            ttft[i] = (report.first() - each.sent) / 1e6;
            tpot[i] = (report.end() - report.first()) / 1e6 / Math.max(1, report.generated() - 1);
            e2e += (report.end() - each.sent) / 1e6 / count;
            begin = Math.min(begin, each.sent);
            end = Math.max(end, report.end());
            output += report.generated();
            loaded += report.loaded();
        }
        double seconds = (end - begin) / 1e9;
        long input = prompts.stream().mapToLong(Prompt::input).sum();
        table.row(
                way.connector,
                count / seconds,
                output / seconds,
                mean(ttft),
                part(ttft, 50),
                part(ttft, 99),
                mean(tpot),
                part(tpot, 50),
                part(tpot, 99),
                e2e,
                100.0 * loaded / input);
    }

    private static double mean(double[] values) {
        return Arrays.stream(values).average().orElse(0);
    }

    private static double part(double[] values, int percent) {
        var sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[Math.min(sorted.length - 1, sorted.length * percent / 100)];
    }
}
