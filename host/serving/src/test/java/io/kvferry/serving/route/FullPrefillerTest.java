// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.ServedEngine;
import io.kvferry.serving.TestSettings;
import io.kvferry.serving.faults.LinkProxy;
import io.kvferry.serving.http.Json;
import io.kvferry.serving.http.TestClient;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import tools.jackson.databind.JsonNode;

import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/// A prefill engine whose blocks are all held for a decode engine that does not fetch them. New
/// requests are still answered, by the decode engine alone.
@Timeout(300)
class FullPrefillerTest extends RouterRig {
    private static final int ANSWER = 6;

    /// Of 16 tokens; the prefill engine has 128.
    private static final int PROMPT_BLOCKS = 40;

    private static final int STALLED = 3;

    private static ServedEngine engine(String role, int bootstrapPort, int blocks) {
        var config =
                Json.object()
                        .put("kv_connector", "MooncakeConnector")
                        .put("kv_role", role)
                        .put("kv_load_failure_policy", "recompute");
        config.putObject("kv_connector_extra_config")
                .put("bootstrap_port", bootstrapPort)
                .put("connector_timeout", "300s"); // outlasts the stall on any machine
        return new ServedEngine(
                TestSettings.synthetic()
                        .option("verify", "all")
                        .kvJson(Json.text(config))
                        .blocks(blocks)
                        .holdPatience(Duration.ofMillis(200))
                        .get());
    }

    private static String prompt(int i) {
        return (i + " It was the best of times, it was the worst of times. ")
                .repeat(20)
                .substring(0, 16 * PROMPT_BLOCKS - 4);
    }

    private static List<Integer> ask(int port, String prompt) throws Exception {
        var body =
                Json.object()
                        .put("prompt", prompt)
                        .put("max_tokens", ANSWER)
                        .put("temperature", 0)
                        .put("ignore_eos", true)
                        .put("return_token_ids", true);
        var response = TestClient.post(port, "/v1/completions", Json.text(body));
        assertThat(response.statusCode()).as(response.body()).isEqualTo(200);
        var ids = new ArrayList<Integer>();
        TestClient.json(response.body())
                .at("/choices/0/token_ids")
                .forEach(id -> ids.add(id.asInt()));
        return ids;
    }

    /// What a bootstrap server says.
    private static JsonNode known(int bootstrapPort) throws Exception {
        return TestClient.json(TestClient.get(bootstrapPort, "/query").body());
    }

    private static void await(ServedEngine engine, String state, double count) throws Exception {
        var limit = Deadline.in(Duration.ofSeconds(60));
        while (engine.metric("kvferry_requests", "state=\"" + state + "\"") != count) {
            assertThat(limit.passed()).as(engine.metrics()).isFalse();
            TimeUnit.MILLISECONDS.sleep(10); // the figures are all there is; the deadline decides
        }
    }

    private static void awaitIdle(ServedEngine engine) throws Exception {
        var limit = Deadline.in(Duration.ofSeconds(60));
        while (engine.metric("kvferry_requests", "state=\"held\"") > 0
                || engine.metric("kvferry_blocks", "kind=\"free\"")
                        < engine.metric("kvferry_blocks", "kind=\"total\"")) {
            assertThat(limit.passed()).as(engine.metrics()).isFalse();
            TimeUnit.MILLISECONDS.sleep(10); // the figures are all there is; the deadline decides
        }
    }

    @Test
    void letsTheDecodeEngineComputeThePrompt() throws Exception {
        var expected = new ArrayList<List<Integer>>();
        try (var alone = new ServedEngine(TestSettings.synthetic().blocks(1024).get())) {
            for (int i = 0; i <= STALLED; i++) {
                expected.add(ask(alone.port(), prompt(i)));
            }
        }
        int port = freePort();
        var p = engine("kv_producer", port, 128);
        open.add(p);
        var d = engine("kv_consumer", 0, 1024);
        open.add(d);
        var known = known(port);
        int sideChannel = URI.create(known.at("/0/worker_addr/0/0").asString("")).getPort();
        var link = new LinkProxy(sideChannel);
        open.add(link);
        var bootstrap = bootstrap(Json.text(known).replace(":" + sideChannel, ":" + link.port()));
        var router =
                router(
                        HandOff.MOONCAKE,
                        List.of(TestClient.uri(p.port(), "")),
                        List.of(TestClient.uri(d.port(), "")),
                        bootstrap);
        link.stall(true);
        try (ExecutorService users = Executors.newVirtualThreadPerTaskExecutor()) {
            var stalled = new ArrayList<Future<List<Integer>>>();
            for (int i = 0; i < STALLED; i++) {
                int number = i;
                stalled.add(users.submit(() -> ask(router.port(), prompt(number))));
            }
            await(p, "held", STALLED);
            await(d, "loading", STALLED);
            assertThat(ask(router.port(), prompt(STALLED))).isEqualTo(expected.get(STALLED));
            assertThat(p.metric("kvferry_requests", "state=\"held\"")).isEqualTo(STALLED);
            assertThat(p.metric("kvferry_requests_kept_out_by_holds_total", "")).isEqualTo(1);
            var health = TestClient.json(TestClient.get(router.port(), "/health").body());
            assertThat(health.path("prefill_instances").asInt()).isEqualTo(1);
            link.stall(false);
            for (int i = 0; i < STALLED; i++) {
                assertThat(stalled.get(i).get(60, TimeUnit.SECONDS)).isEqualTo(expected.get(i));
            }
        }
        awaitIdle(p);
        awaitIdle(d);
        assertThat(ask(router.port(), prompt(STALLED))).isEqualTo(expected.get(STALLED));
        assertThat(p.metric("kvferry_requests_kept_out_by_holds_total", "")).isEqualTo(1);
        assertThat(p.metric("kvferry_holds_expired_total", "")).isZero();
    }
}
