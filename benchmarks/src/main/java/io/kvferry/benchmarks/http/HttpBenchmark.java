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

import org.jspecify.annotations.Nullable;

import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

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

/// Streams per second and latency with a model that costs nothing: of the server, of the router
/// with two such servers, and of the router with servers that answer from memory (the cost of the
/// router alone). For comparison, Jetty and Netty servers that send the same bytes. All run in this
/// process with the clients and alternate within each round; the access log is discarded.
@Command(
        name = "http",
        description =
                "Streams of 8 tokens from server and router, 1 to 1,000 at a time, beside Jetty and Netty echoes of the same bytes.")
public final class HttpBenchmark extends Benchmark {
    private static final int[] CLIENTS = {1, 10, 100, 1000};
    private static final int ROUNDS = 3;
    private static final String BASE = "Jetty echo";

    /// What a prefill instance answers.
    private static final byte[] PREFILLED =
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"choices\": []}"
                    .getBytes(StandardCharsets.US_ASCII);

    private static final String BODY =
            "{\"prompt\": \"It was the best of times\", \"max_tokens\": 8, \"temperature\": 0, \"ignore_eos\": true, \"stream\": true}";

    @Option(names = "--streams", description = "So many clients at a time only.")
    private @Nullable Integer streams;

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
    protected void run() throws Exception {
        var err = System.err;
        System.setErr(
                new PrintStream(OutputStream.nullOutputStream(), false, StandardCharsets.UTF_8));
        try {
            compare(quick, streams == null ? CLIENTS : new int[] {streams});
        } finally {
            System.setErr(err);
        }
    }

    private static void compare(boolean quick, int[] clients) throws Exception {
        var request =
                ("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
                                + BODY.length()
                                + "\r\n\r\n"
                                + BODY)
                        .getBytes(StandardCharsets.US_ASCII);
        try (var p = new Server();
                var d = new Server();
                var router = routerTo(p.http.port(), d.http.port())) {
            router.start();
            byte[] response;
            try (var socket = new Socket(InetAddress.getLoopbackAddress(), d.http.port())) {
                response = Load.exchange(socket, request);
            }
            System.out.println("# response: " + response.length + " bytes");
            try (var jetty = new JettyEcho(body(response));
                    var echo = new EchoServer(response);
                    var prefill = new EchoServer(PREFILLED);
                    var alone = routerTo(prefill.port(), echo.port())) {
                alone.start();
                var ports = new LinkedHashMap<String, Integer>();
                ports.put(BASE, jetty.port());
                ports.put("Netty echo", echo.port());
                ports.put("server", d.http.port());
                ports.put("router, echoes behind it", alone.port());
                ports.put("router, servers behind it", router.port());
                measure(ports, request, clients, Duration.ofMillis(quick ? 500 : 4000));
            }
        }
    }

    private static PdRouter routerTo(int prefill, int decode) {
        return new PdRouter(
                RouterSettings.of(
                        HandOff.CONTENT, List.of(uri(prefill)), List.of(uri(decode)), List.of()),
                settings());
    }

    private static URI uri(int port) {
        return URI.create("http://127.0.0.1:" + port);
    }

    /// The body of a response, out of its chunks.
    private static byte[] body(byte[] response) {
        var text = new String(response, StandardCharsets.ISO_8859_1);
        var body = new StringBuilder();
        int at = text.indexOf("\r\n\r\n") + 4;
        while (true) {
            int end = text.indexOf("\r\n", at);
            int length = Integer.parseInt(text, at, end, 16);
            if (length == 0) {
                return body.toString().getBytes(StandardCharsets.ISO_8859_1);
            }
            body.append(text, end + 2, end + 2 + length);
            at = end + 2 + length + 2;
        }
    }

    private static void measure(
            LinkedHashMap<String, Integer> ports, byte[] request, int[] numbers, Duration time)
            throws Exception {
        for (int port : ports.values()) {
            Load.run(port, request, 10, time);
        }
        var table =
                new Table(
                        "streams at a time",
                        "of",
                        "streams/s",
                        "of Jetty's",
                        "p50 us",
                        "added p50 us",
                        "p99 us",
                        "cpu us",
                        "waits");
        for (int clients : numbers) {
            var loads = new LinkedHashMap<String, List<Load>>();
            for (int round = 0; round < ROUNDS; round++) {
                for (var target : ports.entrySet()) {
                    loads.computeIfAbsent(target.getKey(), _ -> new ArrayList<>())
                            .add(Load.run(target.getValue(), request, clients, time));
                }
            }
            var echo = median(loads.getOrDefault(BASE, List.of()));
            loads.forEach((name, rounds) -> {
                var load = median(rounds);
                table.row(
                        clients,
                        name,
                        Math.round(load.perSecond()),
                        load.perSecond() / echo.perSecond(),
                        Math.round(load.p50Micros()),
                        Math.round(load.p50Micros() - echo.p50Micros()),
                        Math.round(load.p99Micros()),
                        Math.round(load.cpuMicros()),
                        load.waits());
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
