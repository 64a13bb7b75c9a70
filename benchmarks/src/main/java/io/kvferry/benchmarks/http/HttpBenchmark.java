// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.http;

import io.kvferry.benchmarks.Benchmark;
import io.kvferry.benchmarks.Table;
import io.kvferry.serving.AssembledEngine;
import io.kvferry.serving.EngineSettings;
import io.kvferry.serving.http.EngineAccess;
import io.kvferry.serving.http.HttpService;
import io.kvferry.serving.http.OpenAiApi;
import io.kvferry.serving.http.SamplingDefaults;
import io.kvferry.serving.http.TransferTrust;
import io.kvferry.serving.route.HandOff;
import io.kvferry.serving.route.PdRouter;
import io.kvferry.serving.route.RouterSettings;

import java.io.OutputStream;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Optional;

/// Streams per second and their latency, from the server and through the router, with a model that
/// costs nothing, beside a Netty server that answers with the same bytes. All of them run in this
/// process with the clients, and take turns within each round; the access log is written to
/// nowhere.
public final class HttpBenchmark implements Benchmark {
    private static final int[] CLIENTS = {1, 10, 100, 1000};
    private static final int ROUNDS = 3;
    private static final String BODY =
            "{\"prompt\": \"It was the best of times\", \"max_tokens\": 8, \"temperature\": 0, \"ignore_eos\": true, \"stream\": true}";

    @Override
    public String name() {
        return "http";
    }

    @Override
    public String description() {
        return "streams of 8 tokens from server and router, 1 to 1,000 at a time, beside a Netty echo of the same bytes";
    }

    /// A server as `kvferry serve` runs it.
    private static final class Server implements AutoCloseable {
        private final AssembledEngine assembled =
                AssembledEngine.open(EngineSettings.of("synthetic", Path.of("")));
        private final HttpService http = new HttpService("serve", settings());

        Server() {
            var engine = assembled.engine();
            OpenAiApi.install(
                    EngineAccess.of(engine, engine.model().name(), SamplingDefaults.NONE),
                    http,
                    Duration.ofSeconds(60),
                    TransferTrust.of(Optional.empty(), List.of()),
                    http);
            engine.start();
            http.start();
        }

        URI uri() {
            return URI.create(http.url());
        }

        @Override
        public void close() {
            http.close();
            assembled.close();
        }
    }

    private static HttpService.Settings settings() {
        return new HttpService.Settings(
                new InetSocketAddress(InetAddress.getLoopbackAddress(), 0),
                1 << 20,
                4096,
                Duration.ofSeconds(1));
    }

    @Override
    public void run(List<String> args) throws Exception {
        var err = System.err;
        System.setErr(
                new PrintStream(OutputStream.nullOutputStream(), false, StandardCharsets.UTF_8));
        try {
            compare(args.contains("--quick"));
        } finally {
            System.setErr(err);
        }
    }

    private static void compare(boolean quick) throws Exception {
        var request =
                ("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
                                + BODY.length()
                                + "\r\n\r\n"
                                + BODY)
                        .getBytes(StandardCharsets.US_ASCII);
        try (var p = new Server();
                var d = new Server();
                var router =
                        new PdRouter(
                                RouterSettings.of(
                                        HandOff.CONTENT,
                                        List.of(p.uri()),
                                        List.of(d.uri()),
                                        List.of()),
                                settings())) {
            router.start();
            byte[] response;
            try (var socket = new Socket(InetAddress.getLoopbackAddress(), d.http.port())) {
                response = Load.exchange(socket, request);
            }
            System.out.println("# response: " + response.length + " bytes");
            try (var echo = new EchoServer(response)) {
                var ports = new LinkedHashMap<String, Integer>();
                ports.put("echo", echo.port());
                ports.put("server", d.http.port());
                ports.put("router", router.port());
                measure(ports, request, Duration.ofMillis(quick ? 500 : 4000));
            }
        }
    }

    private static void measure(LinkedHashMap<String, Integer> ports, byte[] request, Duration time)
            throws Exception {
        for (int port : ports.values()) {
            Load.run(port, request, 10, time);
        }
        var table =
                new Table(
                        "streams at a time",
                        "of",
                        "streams/s",
                        "of the echo's",
                        "p50 us",
                        "added p50 us",
                        "p99 us");
        for (int clients : CLIENTS) {
            var loads = new LinkedHashMap<String, List<Load>>();
            for (int round = 0; round < ROUNDS; round++) {
                for (var target : ports.entrySet()) {
                    loads.computeIfAbsent(target.getKey(), _ -> new ArrayList<>())
                            .add(Load.run(target.getValue(), request, clients, time));
                }
            }
            var echo = median(loads.getOrDefault("echo", List.of()));
            loads.forEach((name, rounds) -> {
                var load = median(rounds);
                table.row(
                        clients,
                        name,
                        Math.round(load.perSecond()),
                        load.perSecond() / echo.perSecond(),
                        Math.round(load.p50Micros()),
                        Math.round(load.p50Micros() - echo.p50Micros()),
                        Math.round(load.p99Micros()));
            });
        }
        table.print();
    }

    /// The round in the middle, by streams per second.
    private static Load median(List<Load> rounds) {
        return rounds.stream()
                .sorted(Comparator.comparingDouble(Load::perSecond))
                .toList()
                .get(rounds.size() / 2);
    }
}
