// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.http.HttpProblem;
import io.kvferry.serving.http.HttpService;
import io.kvferry.serving.http.TestClient;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

/// The router does not occupy prefill instances needlessly, does not send one bad request to every
/// instance, and does not treat a refusal as a failure.
class RouterFailureTest extends RouterRig {
    private static final HttpService.Handler CUT =
            call -> {
                call.stream(200, "application/json").flush();
                throw new IOException("killed");
            };

    private static String health(PdRouter router, String role) throws Exception {
        var json = TestClient.json(TestClient.get(router.port(), "/health").body());
        return json.path(role + "_instances").toString();
    }

    private static void awaitReleased(StubInstance p) throws Exception {
        var token = p.seen.remove().call().header("X-Kvferry-Hold").orElseThrow();
        assertThat(p.released.poll(40, TimeUnit.SECONDS)).isEqualTo(token);
    }

    @Test
    void sendsNoPrefillWhileNoDecodeInstanceWorks() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(deadUri()));
        for (int i = 0; i < 5; i++) {
            assertThat(ask(router, REQUEST).statusCode()).isIn(502, 503);
        }
        assertThat(p.seen.size()).as("before the router knew that D is down").isLessThan(2);
        assertThat(TestClient.get(router.port(), "/health").statusCode()).isEqualTo(503);
    }

    @Test
    void usesADecodeInstanceAgainAsSoonAsItIsBack() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(200, D_ANSWER));
        d.health = 503;
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(deadUri()));
        ask(router, REQUEST);
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(503);
        var second = router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()));
        assertThat(ask(second, REQUEST).statusCode()).isEqualTo(200);
    }

    /// If no other instance works, the pause after several failures in a row does not apply.
    @Test
    void usesTheOnlyDecodeInstanceWheneverItIsHealthy() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var failures = new AtomicInteger(4);
        var d =
                stub(call -> {
                    if (failures.getAndDecrement() > 0) {
                        CUT.handle(call);
                    }
                    call.respondText(200, "application/json", D_ANSWER);
                });
        var router = router(HandOff.CONTENT, List.of(p.uri()), List.of(d.uri()));
        for (int i = 0; i < 4; i++) {
            assertThat(ask(router, REQUEST).statusCode()).as("cut off").isEqualTo(502);
        }
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(200);
    }

    @ParameterizedTest
    @ValueSource(ints = {400, 404, 500, 502, 503})
    void givesTheHoldBackWhenTheDecodeRefuses(int status) throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(status, "{\"error\": {}}"));
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()));
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(status);
        awaitReleased(p);
        assertThat(health(router, "decode")).isEqualTo("1");
    }

    @Test
    void releasesTheHoldWhenTheDecodeFails() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(CUT);
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()));
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(502);
        awaitReleased(p);
    }

    @Test
    void releasesTheHoldWhenAStreamBreaks() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d =
                stub(call -> {
                    var out = call.stream(200, "text/event-stream");
                    out.write("data: 1\n\n".getBytes(StandardCharsets.UTF_8));
                    out.flush();
                    throw new IOException("killed");
                });
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()));
        assertThat(ask(router, STREAM_REQUEST).body()).contains("[DONE]");
        awaitReleased(p);
    }

    @Test
    void releasesTheHoldWhenAStreamEndsWithAnErrorEvent() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d =
                stub(
                        StubInstance.stream(
                                ":\n\nda",
                                "ta: {\"error\": {\"code\": \"timeout\"}}\n\n",
                                "data: [DONE]\n\n"));
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()));
        assertThat(TestClient.events(ask(router, STREAM_REQUEST).body())).hasSize(2);
        awaitReleased(p);
    }

    @Test
    void releasesTheHoldWhenAnotherDecodeComputedThePrompt() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var cut = stub(CUT);
        var d = stub(StubInstance.json(200, D_ANSWER));
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(cut.uri(), d.uri()));
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(200);
        awaitReleased(p);
    }

    @Test
    void leavesAHoldThatWasFetched() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(200, D_ANSWER));
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()));
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(200);
        router.close();
        assertThat(p.released).isEmpty();
    }

    @Test
    void cancelsThePrefillOfAMooncakePairWhenTheDecodeRefuses() throws Exception {
        var cancelled = new CompletableFuture<Void>();
        var p =
                stub(call -> {
                    call.onCancel(() -> cancelled.complete(null));
                    cancelled.orTimeout(10, TimeUnit.SECONDS).join();
                    throw new IOException("cancelled");
                });
        var d = stub(StubInstance.json(400, "{\"error\": {}}"));
        var router =
                router(HandOff.MOONCAKE, List.of(p.uri()), List.of(d.uri()), bootstrap(ENGINE));
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(400);
        assertThat(p.released.poll(40, TimeUnit.SECONDS)).isNotNull();
        assertThat(health(router, "prefill")).isEqualTo("1");
    }

    @ParameterizedTest
    @ValueSource(ints = {400, 404, 500})
    void tellsTheClientWhatAMooncakePrefillRefuses(int status) throws Exception {
        var error = HttpProblem.badRequest("prompt", "too long").toJson();
        var p = stub(StubInstance.json(status, error));
        var cancelled = new CompletableFuture<Void>();
        var d =
                stub(call -> {
                    call.onCancel(() -> cancelled.complete(null));
                    cancelled.orTimeout(10, TimeUnit.SECONDS).join();
                    throw new IOException("cancelled");
                });
        var router =
                router(HandOff.MOONCAKE, List.of(p.uri()), List.of(d.uri()), bootstrap(ENGINE));
        var response = ask(router, REQUEST);
        assertThat(response.statusCode()).isEqualTo(status);
        assertThat(response.body()).isEqualTo(error);
        assertThat(health(router, "prefill")).isEqualTo("1");
        assertThat(p.seen).hasSize(1);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "{\"prompt\": \"a\", \"max_tokens\": -1}",
                "{\"prompt\": \"a\", \"n\": 0}",
                "{\"prompt\": \"a\", \"stop\": 5}",
                "{\"prompt\": \"a\", \"temperature\": 3}",
                "{\"prompt\": \"a\", \"stream\": \"yes\"}",
                "{\"prompt\": {}}",
                "{\"prompt\": []}",
                "{}",
                "{\"prompt\": \"a\", \"kv_transfer_params\": {\"do_remote_prefill\": true}}"
            })
    void refusesABadRequestBeforeAnyInstanceHearsOfIt(String body) throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d = stub(StubInstance.json(200, D_ANSWER));
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()));
        assertThat(ask(router, body).statusCode()).isEqualTo(400);
        assertThat(p.seen).isEmpty();
        assertThat(d.seen).isEmpty();
    }

    @Test
    void retriesARequestThatCauses500sAtNoThirdInstance() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var all = List.of(stub(CUT), stub(CUT), stub(CUT), stub(CUT));
        var uris = all.stream().map(StubInstance::uri).toList();
        var router = router(HandOff.PARAMS, List.of(p.uri()), uris);
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(502);
        assertThat(all.stream().mapToInt(d -> d.seen.size()).sum()).isEqualTo(2);
        assertThat(health(router, "decode")).isEqualTo("2");
    }

    @Test
    void asksNobodyElseAfterA500() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var d1 = stub(StubInstance.json(500, "{\"error\": {}}"));
        var d2 = stub(StubInstance.json(500, "{\"error\": {}}"));
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d1.uri(), d2.uri()));
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(500);
        assertThat(d1.seen.size() + d2.seen.size()).isEqualTo(1);
        var sick = stub(StubInstance.json(500, "{\"error\": {}}"));
        var other = stub(StubInstance.json(500, "{\"error\": {}}"));
        var second = router(HandOff.PARAMS, List.of(sick.uri(), other.uri()), List.of(d1.uri()));
        assertThat(ask(second, REQUEST).statusCode()).isEqualTo(500);
        assertThat(sick.seen.size() + other.seen.size()).isEqualTo(1);
    }

    @Test
    void takesABusyInstanceForAWorkingOne() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var busy = stub(StubInstance.json(429, "{\"error\": {}}"));
        var d = stub(StubInstance.json(200, D_ANSWER));
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(busy.uri(), d.uri()));
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(200);
        assertThat(d.seen.remove().params().path("remote_port").asInt()).isEqualTo(7);
        assertThat(health(router, "decode")).isEqualTo("2");
    }

    @Test
    void sendsAgainWhenAConnectionThatRestedIsClosed() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var asked = new AtomicInteger();
        var d =
                stub(call -> {
                    if (asked.incrementAndGet() == 2) {
                        throw new IOException("closes the connection without an answer");
                    }
                    call.respondText(200, "application/json", D_ANSWER);
                });
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(d.uri()));
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(200);
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(200);
        assertThat(asked).hasValue(3);
        assertThat(p.seen).hasSize(2);
    }

    @Test
    void skipsAnInstanceThatSendsNoFirstByte() throws Exception {
        var gate = new CompletableFuture<Void>();
        var p = stub(StubInstance.json(200, P_ANSWER));
        var hung =
                stub(call -> {
                    call.onCancel(() -> gate.complete(null));
                    gate.orTimeout(20, TimeUnit.SECONDS).join();
                    throw new IOException("cancelled");
                });
        var d = stub(StubInstance.stream("data: ok\n\n", "data: [DONE]\n\n"));
        var router =
                router(
                        HandOff.PARAMS,
                        List.of(p.uri()),
                        List.of(hung.uri(), d.uri()),
                        true,
                        Duration.ofSeconds(5), // for the other one, too, on a busy machine
                        Duration.ofSeconds(20));
        assertThat(TestClient.events(ask(router, STREAM_REQUEST).body()))
                .containsExactly("ok", "[DONE]");
    }

    @Test
    void probesAHalfOpenInstanceWithOneRequest() {
        var one = new Upstream("decode", URI.create("http://one"), Optional.empty());
        var two = new Upstream("decode", URI.create("http://two"), Optional.empty());
        var pool = new Pool(List.of(one, two), RoutingPolicy.ROUND_ROBIN);
        one.failed("killed");
        for (int i = 0; i < 4; i++) {
            assertThat(pool.pick(Prompt.NONE, Set.of())).contains(two);
        }
        one.probed(true, "");
        assertThat(one.circuit()).isEqualTo(Upstream.Circuit.HALF_OPEN);
        int trials = 0;
        for (int i = 0; i < 4; i++) {
            trials += pool.pick(Prompt.NONE, Set.of()).orElseThrow() == one ? 1 : 0;
        }
        assertThat(trials).isEqualTo(1);
        long begin = System.nanoTime();
        one.failed("killed again");
        one.probed(true, "");
        var circuit = one.circuit();
        if (System.nanoTime() - begin < TimeUnit.SECONDS.toNanos(2)) {
            assertThat(circuit).as("the second pause is longer").isEqualTo(Upstream.Circuit.OPEN);
        }
        var limit = Deadline.in(Duration.ofSeconds(20));
        while (one.circuit() == Upstream.Circuit.OPEN && !limit.passed()) {
            one.probed(true, "");
            Thread.onSpinWait();
        }
        one.answered();
        assertThat(one.circuit()).isEqualTo(Upstream.Circuit.CLOSED);
    }

    @Test
    void aBusyInstanceWhoseHealthIsSlowOnceStaysInUse() {
        var one = new Upstream("decode", URI.create("http://one"), Optional.empty());
        for (int i = 0; i < 3; i++) {
            one.probeTimedOut("silent", System.nanoTime());
            one.probeTimedOut("silent", System.nanoTime());
            assertThat(one.isUp()).isTrue();
            one.probed(true, "");
        }
        one.probeTimedOut("silent", System.nanoTime());
        one.probeTimedOut("silent", System.nanoTime());
        one.probeTimedOut("silent", System.nanoTime());
        assertThat(one.isUp()).isFalse();
    }

    /// Whose port is attacked may be late with `/health` and serve all the same.
    @Test
    void anInstanceThatAnswersRequestsStaysInUseWhateverItsHealthDoes() {
        var one = new Upstream("decode", URI.create("http://one"), Optional.empty());
        for (int i = 0; i < 10; i++) {
            long since = System.nanoTime() - 1;
            one.heard();
            one.probeTimedOut("silent", since);
        }
        assertThat(one.isUp()).isTrue();
        for (int i = 0; i < 3; i++) {
            one.probeTimedOut("silent", System.nanoTime());
        }
        assertThat(one.isUp()).isFalse();
    }

    /// Any client can ask for the list of models, an attacker too.
    @Test
    void aLateAnswerToASmallRequestSaysNothingAboutTheInstance() throws Exception {
        var gate = new CompletableFuture<Void>();
        var late = new HttpService("late", TestClient.loopback());
        late.routeAdmin("/health", call -> call.respondText(200, "text/plain", "ok"));
        late.routeAdmin(
                "/v1/models",
                call -> {
                    gate.orTimeout(60, TimeUnit.SECONDS).join();
                    call.respondText(200, "application/json", "{}");
                });
        late.start();
        open.add(late);
        var p = stub(StubInstance.json(200, P_ANSWER));
        var router =
                new PdRouter(
                        RouterSettings.of(
                                HandOff.PARAMS,
                                List.of(p.uri()),
                                List.of(TestClient.uri(late.port(), "")),
                                List.of()),
                        TestClient.loopback());
        open.add(router);
        router.start();
        assertThat(TestClient.get(router.port(), "/v1/models").statusCode()).isEqualTo(502);
        var instances = TestClient.json(TestClient.get(router.port(), "/health").body());
        assertThat(instances.at("/instances/1/circuit").asString("")).isEqualTo("closed");
        gate.complete(null);
    }

    @Test
    void anInstanceThatAnswersOthersIsNotDownWhenNoConnectionComesAbout() {
        var one = new Upstream("decode", URI.create("http://one"), Optional.empty());
        one.failed(new LegException(LegException.Cause.BUSY, "no connection in time"));
        assertThat(one.isUp()).isTrue();
        one.failed(new LegException(LegException.Cause.UNREACHED, "no connection in time"));
        assertThat(one.isUp()).isFalse();
    }

    @Test
    void sendsEqualPrefixesToOneInstanceAndMovesFewWhenOneIsDown() {
        var members =
                IntStream.range(0, 4)
                        .mapToObj(i ->
                                new Upstream(
                                        "decode", URI.create("http://d" + i), Optional.empty()))
                        .toList();
        var pool = new Pool(members, RoutingPolicy.PREFIX);
        var before =
                IntStream.range(0, 100)
                        .mapToObj(i -> pool.pick(Prompt.of("prefix " + i), Set.of()).orElseThrow())
                        .toList();
        assertThat(before).contains(members.toArray(Upstream[]::new));
        members.getFirst().failed("killed");
        for (int i = 0; i < 100; i++) {
            var now = pool.pick(Prompt.of("prefix " + i), Set.of()).orElseThrow();
            if (before.get(i) != members.getFirst()) {
                assertThat(now).isEqualTo(before.get(i));
            }
        }
        var busy = members.get(1);
        busy.inFlight.set(100);
        for (int i = 0; i < 100; i++) {
            assertThat(pool.pick(Prompt.of("prefix " + i), Set.of()))
                    .isNotEqualTo(Optional.of(busy));
        }
    }
}
