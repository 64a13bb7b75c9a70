// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.HttpService;
import io.kvferry.serving.http.PrometheusText;
import io.kvferry.serving.http.TestClient;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

class PdRouterTest {
    private static final String P_ANSWER =
            "{\"choices\": [], \"kv_transfer_params\": {\"do_remote_prefill\": true, \"remote_port\": 7}}";
    private static final String D_ANSWER = "{\"choices\": [{\"text\": \"fine\"}]}";
    private static final String REQUEST =
            "{\"prompt\": \"a\", \"max_tokens\": 9, \"min_tokens\": 3}";
    private static final String STREAM_REQUEST =
            "{\"prompt\": \"a\", \"stream\": true, \"stream_options\": {\"include_usage\": true}}";

    private final List<AutoCloseable> open = new ArrayList<>();

    @AfterEach
    void closeAll() throws Exception {
        for (var thing : open.reversed()) {
            thing.close();
        }
    }

    private StubInstance stub(HttpService.Handler answer) {
        var stub = new StubInstance(answer);
        open.add(stub);
        return stub;
    }

    private static URI deadUri() throws IOException {
        try (var socket = new ServerSocket(0)) {
            return TestClient.uri(socket.getLocalPort(), "");
        }
    }

    private PdRouter router(
            HandOff handOff, List<URI> prefill, List<URI> decode, URI... bootstrap) {
        return router(handOff, prefill, decode, true, Duration.ofSeconds(60), bootstrap);
    }

    private PdRouter router(
            HandOff handOff,
            List<URI> prefill,
            List<URI> decode,
            boolean recompute,
            Duration idle,
            URI... bootstrap) {
        var settings =
                new RouterSettings(
                        prefill,
                        decode,
                        List.of(bootstrap),
                        handOff,
                        recompute,
                        Duration.ofSeconds(2),
                        Duration.ofSeconds(20),
                        idle,
                        Duration.ofHours(1),
                        1 << 20);
        var router = new PdRouter(settings, TestClient.loopback());
        open.add(router);
        router.start();
        return router;
    }

    private static HttpResponse<String> ask(PdRouter router, String body) throws Exception {
        return TestClient.post(
                router.port(),
                "/v1/completions",
                body,
                "X-Request-Id",
                "id-1",
                "Authorization",
                "Bearer k");
    }

    @Test
    void carriesTheParamsOfThePrefillToTheDecode() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(200, D_ANSWER));
        var response = ask(router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri())), REQUEST);
        assertThat(response.statusCode()).isEqualTo(200);
        assertThat(response.body()).isEqualTo(D_ANSWER);
        var prefill = p.seen.remove();
        assertThat(prefill.body().path("max_tokens").asInt()).isEqualTo(1);
        assertThat(prefill.body().has("min_tokens")).isFalse();
        assertThat(prefill.body().path("stream").asBoolean(true)).isFalse();
        assertThat(prefill.params().path("do_remote_decode").asBoolean(false)).isTrue();
        assertThat(prefill.params().path("remote_engine_id").isNull()).isTrue();
        assertThat(prefill.call().requestId()).isEqualTo("id-1");
        assertThat(prefill.call().header("Authorization")).contains("Bearer k");
        var decode = d.seen.remove();
        assertThat(decode.body().path("max_tokens").asInt()).isEqualTo(9);
        assertThat(decode.params().path("remote_port").asInt()).isEqualTo(7);
        assertThat(decode.call().requestId()).isEqualTo("id-1");
    }

    @Test
    void sendsNoParamsInContentMode() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(200, D_ANSWER));
        ask(router(HandOff.CONTENT, List.of(p.uri()), List.of(d.uri())), REQUEST);
        assertThat(p.seen.remove().body().has("kv_transfer_params")).isFalse();
        assertThat(d.seen.remove().body().has("kv_transfer_params")).isFalse();
    }

    @Test
    void takesInstancesInTurn() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d1 = stub(StubInstance.json(200, D_ANSWER));
        var d2 = stub(StubInstance.json(200, D_ANSWER));
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d1.uri(), d2.uri()));
        for (int i = 0; i < 6; i++) {
            ask(router, REQUEST);
        }
        assertThat(d1.seen).hasSize(3);
        assertThat(d2.seen).hasSize(3);
    }

    @Test
    void goesToTheNextPrefillAndRemembersTheDeadOne() throws Exception {
        var sick = stub(StubInstance.json(500, "{}"));
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(200, D_ANSWER));
        var router =
                router(HandOff.PARAMS, List.of(deadUri(), sick.uri(), p.uri()), List.of(d.uri()));
        for (int i = 0; i < 4; i++) {
            assertThat(ask(router, REQUEST).statusCode()).isEqualTo(200);
            assertThat(d.seen.remove().params().path("remote_port").asInt()).isEqualTo(7);
        }
        assertThat(sick.seen).hasSize(1);
        var metrics = TestClient.get(router.port(), "/metrics").body();
        assertThat(PrometheusText.find(metrics, "kvferry_router_failovers_total", "prefill"))
                .contains(2.0);
    }

    @Test
    void letsTheDecodeComputeWhenNoPrefillWorks() throws Exception {
        var d = stub(StubInstance.json(200, D_ANSWER));
        var router = router(HandOff.PARAMS, List.of(deadUri()), List.of(d.uri()));
        assertThat(ask(router, REQUEST).body()).isEqualTo(D_ANSWER);
        assertThat(d.seen.remove().body().has("kv_transfer_params")).isFalse();
        assertThat(TestClient.get(router.port(), "/health").statusCode()).isEqualTo(200);
    }

    @Test
    void failsClearlyWhenRecomputingIsOff() throws Exception {
        var d = stub(StubInstance.json(200, D_ANSWER));
        var router =
                router(
                        HandOff.PARAMS,
                        List.of(deadUri()),
                        List.of(d.uri()),
                        false,
                        Duration.ofSeconds(60));
        var response = ask(router, REQUEST);
        assertThat(response.statusCode()).isEqualTo(502);
        assertThat(response.body()).contains("no prefill instance").contains("cannot connect");
        assertThat(d.seen).isEmpty();
        assertThat(TestClient.get(router.port(), "/health").statusCode()).isEqualTo(503);
    }

    @Test
    void relaysWhatThePrefillRefuses() throws Exception {
        var error = HttpProblem.badRequest("prompt", "too long").toJson();
        var p = stub(StubInstance.json(400, error));
        var d = stub(StubInstance.json(200, D_ANSWER));
        var response = ask(router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri())), REQUEST);
        assertThat(response.statusCode()).isEqualTo(400);
        assertThat(response.body()).isEqualTo(error);
        assertThat(d.seen).isEmpty();
    }

    @Test
    void keepsTheParamsForTheNextDecodeWhenTheFirstWasNeverReached() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(200, D_ANSWER));
        ask(router(HandOff.PARAMS, List.of(p.uri()), List.of(deadUri(), d.uri())), REQUEST);
        assertThat(d.seen.remove().params().path("remote_port").asInt()).isEqualTo(7);
    }

    @Test
    void dropsTheParamsWhenTheFirstDecodeMayHaveUsedThem() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var sick = stub(StubInstance.json(502, "{\"error\": {}}"));
        var d = stub(StubInstance.json(200, D_ANSWER));
        var response =
                ask(
                        router(HandOff.PARAMS, List.of(p.uri()), List.of(sick.uri(), d.uri())),
                        REQUEST);
        assertThat(response.statusCode()).isEqualTo(200);
        assertThat(d.seen.remove().body().has("kv_transfer_params")).isFalse();
    }

    @Test
    void relaysTheErrorWhenEveryDecodeFails() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var sick = stub(StubInstance.json(504, "{\"error\": {\"code\": \"timeout\"}}"));
        var response = ask(router(HandOff.PARAMS, List.of(p.uri()), List.of(sick.uri())), REQUEST);
        assertThat(response.statusCode()).isEqualTo(504);
        assertThat(response.body()).contains("timeout");
    }

    @Test
    void relaysAStreamPieceByPiece() throws Exception {
        var gate = new CompletableFuture<Void>();
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d =
                stub(call -> {
                    try (var out = call.stream(200, "text/event-stream")) {
                        out.write("data: 1\n\n".getBytes(StandardCharsets.UTF_8));
                        out.flush();
                        gate.join();
                        out.write("data: [DONE]\n\n".getBytes(StandardCharsets.UTF_8));
                    }
                });
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()));
        try (var socket = TestClient.open(router.port(), "/v1/completions", STREAM_REQUEST)) {
            var text = new StringBuilder();
            while (text.indexOf("data: 1\n\n") < 0) {
                text.append((char) socket.getInputStream().read());
            }
            assertThat(text).doesNotContain("DONE");
            gate.complete(null);
            while (text.indexOf("data: [DONE]\n\n") < 0) {
                text.append((char) socket.getInputStream().read());
            }
        }
        assertThat(p.seen.remove().body().has("stream_options")).isFalse();
    }

    @Test
    void replacesADecodeThatDiesBeforeItsFirstByte() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var dying =
                stub(call -> {
                    call.stream(200, "text/event-stream").flush();
                    throw new IOException("killed");
                });
        var d = stub(StubInstance.stream("data: ok\n\n", "data: [DONE]\n\n"));
        var response =
                ask(
                        router(HandOff.PARAMS, List.of(p.uri()), List.of(dying.uri(), d.uri())),
                        STREAM_REQUEST);
        assertThat(TestClient.events(response.body())).containsExactly("ok", "[DONE]");
    }

    @Test
    void endsAStreamWhoseDecodeDiesWithAnErrorEvent() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var dying =
                stub(call -> {
                    var out = call.stream(200, "text/event-stream");
                    out.write("data: one\n\ndata: tw".getBytes(StandardCharsets.UTF_8));
                    out.flush();
                    throw new IOException("killed");
                });
        var response =
                ask(router(HandOff.PARAMS, List.of(p.uri()), List.of(dying.uri())), STREAM_REQUEST);
        var events = TestClient.events(response.body());
        assertThat(events.getFirst()).isEqualTo("one");
        assertThat(TestClient.json(events.get(2)).at("/error/code").asString())
                .isEqualTo("decode_failed");
        assertThat(events.getLast()).isEqualTo("[DONE]");
    }

    @Test
    void givesUpOnASilentStream() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var silent =
                stub(call -> {
                    var out = call.stream(200, "text/event-stream");
                    out.write("data: one\n\n".getBytes(StandardCharsets.UTF_8));
                    out.flush();
                    new CompletableFuture<Void>()
                            .completeOnTimeout(null, 10, TimeUnit.SECONDS)
                            .join();
                });
        var router =
                router(
                        HandOff.PARAMS,
                        List.of(p.uri()),
                        List.of(silent.uri()),
                        true,
                        Duration.ofMillis(300));
        var response = ask(router, STREAM_REQUEST);
        assertThat(response.body()).contains("silent for").contains("[DONE]");
    }

    @Test
    void endsTheLegWhenTheClientHangsUp() throws Exception {
        Assumptions.assumeTrue(
                Files.isReadable(Path.of("/proc/net/tcp")), "needs Linux' connection table");
        var gone = new CompletableFuture<Void>();
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d =
                stub(call -> {
                    call.onGone(() -> gone.complete(null));
                    gone.join();
                });
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()));
        var socket = TestClient.open(router.port(), "/v1/completions", REQUEST);
        d.seen.take();
        socket.close();
        gone.get(10, TimeUnit.SECONDS);
    }

    @Test
    void sendsBothLegsOfMooncakeAtOnce() throws Exception {
        var decoding = new CompletableFuture<Void>();
        var p =
                stub(call -> {
                    decoding.join(); // only a D that was asked without waiting for P lets P end
                    call.respondText(200, "application/json", "{\"choices\": []}");
                });
        var d =
                stub(call -> {
                    decoding.complete(null);
                    call.respondText(200, "application/json", D_ANSWER);
                });
        var bootstrap =
                bootstrap(
                        "{\"1\": {\"engine_id\": \"e-1\", \"worker_addr\": {\"0\": {\"0\": \"tcp://x:1\"}}}}");
        var response =
                ask(
                        router(HandOff.MOONCAKE, List.of(p.uri()), List.of(d.uri()), bootstrap),
                        REQUEST);
        assertThat(response.body()).isEqualTo(D_ANSWER);
        var prefill = p.seen.take();
        var decode = d.seen.take();
        assertThat(prefill.call().header("X-data-parallel-rank")).contains("1");
        assertThat(prefill.body().path("max_tokens").asInt()).isEqualTo(1);
        assertThat(prefill.params().path("do_remote_decode").asBoolean(false)).isTrue();
        assertThat(decode.params().path("remote_engine_id").asString("")).isEqualTo("e-1");
        assertThat(decode.params().path("remote_bootstrap_addr").asString(""))
                .isEqualTo(bootstrap.toString());
        assertThat(decode.params().path("transfer_id").asString(""))
                .startsWith("xfer-")
                .isEqualTo(prefill.params().path("transfer_id").asString(""));
    }

    @Test
    void cutsTheDecodeLegOfAFailedMooncakePrefillAndSendsItAgain() throws Exception {
        var sick = stub(StubInstance.json(500, "{}"));
        var d =
                stub(call -> {
                    if (new String(call.body(), StandardCharsets.UTF_8)
                            .contains("do_remote_prefill")) {
                        var gone = new CompletableFuture<Void>();
                        call.onGone(() -> gone.complete(null));
                        gone.completeOnTimeout(null, 10, TimeUnit.SECONDS)
                                .join(); // as a D does whose P never delivers
                        return;
                    }
                    call.respondText(200, "application/json", D_ANSWER);
                });
        var bootstrap =
                bootstrap(
                        "{\"0\": {\"engine_id\": \"e\", \"worker_addr\": {\"0\": {\"0\": \"tcp://x:1\"}}}}");
        var response =
                ask(
                        router(HandOff.MOONCAKE, List.of(sick.uri()), List.of(d.uri()), bootstrap),
                        REQUEST);
        assertThat(response.body()).isEqualTo(D_ANSWER);
    }

    @Test
    void refusesIncompleteBootstrapAnswers() {
        for (var answer :
                List.of(
                        "{}",
                        "{\"0\": {\"engine_id\": \"\", \"worker_addr\": {\"0\": {\"0\": \"tcp://x:1\"}}}}",
                        "{\"0\": {\"engine_id\": \"e\", \"worker_addr\": {}}}",
                        "{\"0\": {\"engine_id\": \"e\", \"worker_addr\": {\"1\": {\"0\": \"tcp://x:1\"}}}}",
                        "{\"0\": {\"engine_id\": \"e\", \"worker_addr\": {\"0\": {\"0\": \"tcp://x:1\"}, \"1\": {}}}}",
                        "not json")) {
            assertThat(
                            catchThrowable(() ->
                                    Bootstrap.parse(
                                            URI.create("http://b"),
                                            answer.getBytes(StandardCharsets.UTF_8))))
                    .as(answer)
                    .isInstanceOf(IOException.class);
        }
    }

    private URI bootstrap(String answer) {
        var http = new HttpService("bootstrap", TestClient.loopback());
        http.routeAdmin("/query", call -> call.respondText(200, "application/json", answer));
        http.start();
        open.add(http);
        return TestClient.uri(http.port(), "");
    }
}
