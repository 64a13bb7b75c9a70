// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// The hand-off that Mooncake's connector wants: bootstrap query, transfer ids, both legs at once.
class MooncakeStageTest extends RouterRig {
    @Test
    void sendsBothLegsOfMooncakeAtOnce() throws Exception {
        var prefilling = new CompletableFuture<Void>();
        var decoding = new CompletableFuture<Void>();
        var p =
                stub(call -> {
                    prefilling.complete(null);
                    decoding.join(); // only a D that was asked without waiting for P lets P end
                    call.respondText(200, "application/json", "{\"choices\": []}");
                });
        var d =
                stub(call -> {
                    decoding.complete(null);
                    prefilling.join(); // as one that waits for P's blocks
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
    void sendsBothLegsOfP2pAtOnce() throws Exception {
        var prefilling = new CompletableFuture<Void>();
        var decoding = new CompletableFuture<Void>();
        var p =
                stub(call -> {
                    prefilling.complete(null);
                    decoding.join(); // only a D that was asked without waiting for P lets P end
                    call.respondText(200, "application/json", "{\"choices\": []}");
                });
        var d =
                stub(call -> {
                    decoding.complete(null);
                    prefilling.join(); // as one that waits for P's blocks
                    call.respondText(200, "application/json", D_ANSWER);
                });
        var address = URI.create("tcp://127.0.0.1:21001");
        var response =
                ask(router(HandOff.P2P, List.of(p.uri()), List.of(d.uri()), address), REQUEST);
        assertThat(response.body()).isEqualTo(D_ANSWER);
        var prefill = p.seen.take();
        var decode = d.seen.take();
        assertThat(prefill.body().path("max_tokens").asInt()).isEqualTo(1);
        assertThat(prefill.params().path("do_remote_decode").asBoolean(false)).isTrue();
        assertThat(decode.params().path("do_remote_prefill").asBoolean(false)).isTrue();
        assertThat(decode.params().path("prefill_addr").asString("")).isEqualTo("127.0.0.1:21001");
        assertThat(decode.params().path("transfer_id").asString(""))
                .startsWith("xfer-")
                .isEqualTo(prefill.params().path("transfer_id").asString(""));
    }

    @Test
    void p2pNeedsAControlPortForEachPrefillInstance() {
        var http = List.of(URI.create("http://127.0.0.1:1"));
        for (var addresses :
                List.of(
                        List.<URI>of(),
                        List.of(URI.create("http://127.0.0.1:2")),
                        List.of(URI.create("tcp://127.0.0.1")))) {
            assertThat(catchThrowable(() -> RouterSettings.of(HandOff.P2P, http, http, addresses)))
                    .as("%s", addresses)
                    .isInstanceOf(io.kvferry.spi.KvFerryException.class)
                    .hasMessageContaining("--kv-address");
        }
    }

    @Test
    void cancelsTheDecodeOfAFailedMooncakePrefillAndRetriesIt() throws Exception {
        var sick = stub(StubInstance.json(503, "{}"));
        var d =
                stub(call -> {
                    if (new String(call.body(), StandardCharsets.UTF_8)
                            .contains("do_remote_prefill")) {
                        var gone = new CompletableFuture<Void>();
                        call.onCancel(() -> gone.complete(null));
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

    /// Anybody may register an engine that does not work.
    @Test
    void leavesOutAnEngineWhoseHandOversFail() throws Exception {
        var p = stub(StubInstance.json(200, "{\"choices\": []}"));
        var fake = new AtomicInteger();
        var d =
                stub(call -> {
                    boolean fails =
                            new String(call.body(), StandardCharsets.UTF_8).contains("fake");
                    fake.addAndGet(fails ? 1 : 0);
                    call.respondText(fails ? 500 : 200, "application/json", D_ANSWER);
                });
        var bootstrap =
                bootstrap(
                        "{\"0\": {\"engine_id\": \"e\", \"worker_addr\": {\"0\": {\"0\": \"tcp://x:1\"}}},"
                                + " \"1\": {\"engine_id\": \"fake\", \"worker_addr\": {\"0\": {\"0\": \"tcp://y:1\"}}}}");
        var router = router(HandOff.MOONCAKE, List.of(p.uri()), List.of(d.uri()), bootstrap);
        for (int i = 0; i < 20; i++) {
            ask(router, REQUEST);
        }
        assertThat(fake.get()).as("requests of 20 for an engine that fails").isBetween(1, 5);
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
}
