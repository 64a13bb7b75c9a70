// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.HttpService;
import io.kvferry.serving.http.TestClient;
import io.kvferry.serving.metrics.MetricsPage;

import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;

/// Which instance gets a request, with which params, and what happens when it fails.
class PdRouterTest extends RouterRig {
    @Test
    void passesTheParamsOfThePrefillToTheDecode() throws Exception {
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
    void sendsARequestThatScoresItsPromptToTheDecodeAlone() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(200, D_ANSWER));
        for (var handOff : List.of(HandOff.PARAMS, HandOff.CONTENT, HandOff.MOONCAKE)) {
            var router =
                    handOff == HandOff.MOONCAKE
                            ? router(handOff, List.of(p.uri()), List.of(d.uri()), bootstrap(ENGINE))
                            : router(handOff, List.of(p.uri()), List.of(d.uri()));
            var body = "{\"prompt\": \"a\", \"echo\": true, \"logprobs\": 1, \"max_tokens\": 0}";
            assertThat(ask(router, body).body()).as(handOff.name()).isEqualTo(D_ANSWER);
            var seen = d.seen.remove().body();
            assertThat(seen.path("max_tokens").asInt(-1)).isZero();
            assertThat(seen.has("kv_transfer_params")).isFalse();
            assertThat(p.seen).isEmpty();
        }
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
    void triesTheNextPrefillAndSkipsTheFailedOneAfterwards() throws Exception {
        var busy = stub(StubInstance.json(503, "{}"));
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(200, D_ANSWER));
        var router =
                router(HandOff.PARAMS, List.of(deadUri(), busy.uri(), p.uri()), List.of(d.uri()));
        for (int i = 0; i < 4; i++) {
            assertThat(ask(router, REQUEST).statusCode()).isEqualTo(200);
            assertThat(d.seen.remove().params().path("remote_port").asInt()).isEqualTo(7);
        }
        var health = TestClient.get(router.port(), "/health").body();
        assertThat(TestClient.json(health).at("/prefill_instances").asInt()).isEqualTo(2);
        var metrics = TestClient.get(router.port(), "/metrics").body();
        assertThat(MetricsPage.find(metrics, "kvferry_router_failovers_total", "prefill"))
                .contains(1.0 + busy.seen.size());
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
    void servesAModelByItsId() throws Exception {
        var d = new HttpService("models", TestClient.loopback());
        open.add(d);
        d.routeAdmin("/v1/models", StubInstance.json(200, "{\"data\": [{\"id\": \"org/one\"}]}"));
        d.routeAdmin("/health", StubInstance.json(200, "{}"));
        d.start();
        var uri = List.of(TestClient.uri(d.port(), ""));
        var router = router(HandOff.CONTENT, uri, uri);
        var one = TestClient.get(router.port(), "/v1/models/org/one");
        assertThat(one.statusCode()).isEqualTo(200);
        assertThat(TestClient.json(one.body()).path("id").asString()).isEqualTo("org/one");
        assertThat(TestClient.get(router.port(), "/v1/models/org/two").statusCode()).isEqualTo(404);
        assertThat(TestClient.get(router.port(), "/v1/models").body()).contains("org/one");
    }

    @Test
    void forwardsTokenizationAndVersion() throws Exception {
        var d = new HttpService("decode", TestClient.loopback());
        open.add(d);
        for (var path : List.of("/tokenize", "/detokenize")) {
            d.route(
                    "POST",
                    path,
                    call -> {
                        var key = call.header("Authorization").orElse("none");
                        var body = new String(call.body(), StandardCharsets.UTF_8);
                        call.respondText(200, "text/plain", path + " " + key + " " + body);
                    });
        }
        d.routeAdmin("/version", StubInstance.json(200, "{\"version\": \"1\"}"));
        d.routeAdmin("/health", StubInstance.json(200, "{}"));
        d.start();
        var uri = List.of(TestClient.uri(d.port(), ""));
        var router = router(HandOff.CONTENT, uri, uri);
        for (var path : List.of("/tokenize", "/detokenize")) {
            var answer =
                    TestClient.post(
                            router.port(), path, "{\"tokens\": [1]}", "Authorization", "Bearer k");
            assertThat(answer.statusCode()).isEqualTo(200);
            assertThat(answer.body()).isEqualTo(path + " Bearer k {\"tokens\": [1]}");
        }
        assertThat(TestClient.get(router.port(), "/version").body()).contains("\"1\"");
        d.close();
        assertThat(TestClient.post(router.port(), "/tokenize", "{}").statusCode()).isEqualTo(502);
    }
}
