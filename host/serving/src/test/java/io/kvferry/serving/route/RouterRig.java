// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.HttpService;
import io.kvferry.serving.http.TestClient;

import org.junit.jupiter.api.AfterEach;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// Routers and the stubs that they route to; all are closed after each test.
abstract class RouterRig {
    static final String P_ANSWER =
            "{\"choices\": [], \"kv_transfer_params\": {\"do_remote_prefill\": true, \"remote_port\": 7}}";
    static final String D_ANSWER = "{\"choices\": [{\"text\": \"fine\"}]}";
    static final String ENGINE =
            "{\"0\": {\"engine_id\": \"e\", \"worker_addr\": {\"0\": {\"0\": \"tcp://x:1\"}}}}";
    static final String REQUEST = "{\"prompt\": \"a\", \"max_tokens\": 9, \"min_tokens\": 3}";
    static final String STREAM_REQUEST =
            "{\"prompt\": \"a\", \"stream\": true, \"stream_options\": {\"include_usage\": true}}";

    final List<AutoCloseable> open = new ArrayList<>();

    @AfterEach
    void closeAll() throws Exception {
        for (var thing : open.reversed()) {
            thing.close();
        }
    }

    StubInstance stub(HttpService.Handler answer) {
        var stub = new StubInstance(answer);
        open.add(stub);
        return stub;
    }

    /// An address that refuses connections, until the test has ended: its port is taken, and nobody
    /// listens.
    URI deadUri() throws IOException {
        var socket = new Socket();
        open.add(socket);
        socket.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        return TestClient.uri(socket.getLocalPort(), "");
    }

    PdRouter router(HandOff handOff, List<URI> prefill, List<URI> decode, URI... bootstrap) {
        return router(handOff, prefill, decode, true, Duration.ofSeconds(60), bootstrap);
    }

    PdRouter router(
            HandOff handOff,
            List<URI> prefill,
            List<URI> decode,
            boolean recompute,
            Duration idle,
            URI... bootstrap) {
        return router(handOff, prefill, decode, recompute, Duration.ofSeconds(60), idle, bootstrap);
    }

    PdRouter router(
            HandOff handOff,
            List<URI> prefill,
            List<URI> decode,
            boolean recompute,
            Duration firstByte,
            Duration idle,
            URI... bootstrap) {
        var settings =
                new RouterSettings(
                        prefill,
                        decode,
                        List.of(bootstrap),
                        handOff,
                        recompute,
                        RoutingPolicy.ROUND_ROBIN,
                        Map.of(),
                        Optional.empty(),
                        2,
                        Optional.empty(),
                        Duration.ofSeconds(10),
                        Duration.ofSeconds(60),
                        firstByte,
                        idle,
                        Duration.ofHours(1),
                        1 << 20);
        var router = new PdRouter(settings, TestClient.loopback());
        open.add(router);
        router.start();
        return router;
    }

    static HttpResponse<String> ask(PdRouter router, String body) throws Exception {
        return TestClient.post(
                router.port(),
                "/v1/completions",
                body,
                "X-Request-Id",
                "id-1",
                "Authorization",
                "Bearer k");
    }

    /// A bootstrap server that gives this answer to every query.
    URI bootstrap(String answer) {
        var http = new HttpService("bootstrap", TestClient.loopback());
        http.routeAdmin("/query", call -> call.respondText(200, "application/json", answer));
        http.start();
        open.add(http);
        return TestClient.uri(http.port(), "");
    }
}
