// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.ServedEngine;
import io.kvferry.serving.TestSettings;
import io.kvferry.serving.http.Json;
import io.kvferry.serving.http.TestClient;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.URI;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// A prefill engine with MooncakeConnector behind a router whose decode instance fails: what it
/// holds comes back at once, not when the holds expire.
class ReleasedHoldsTest extends RouterRig {
    private static final String PROMPT = "It was the best of times, it was the worst of times. ";

    private static ServedEngine prefiller(int bootstrapPort) {
        var config =
                Json.object()
                        .put("kv_connector", "MooncakeConnector")
                        .put("kv_role", "kv_producer");
        config.putObject("kv_connector_extra_config").put("bootstrap_port", bootstrapPort);
        return new ServedEngine(TestSettings.synthetic().kvJson(Json.text(config)).get());
    }

    private static void awaitIdle(ServedEngine engine) throws Exception {
        var limit = Deadline.in(Duration.ofSeconds(30));
        double held;
        double free;
        do {
            held = engine.metric("kvferry_requests", "state=\"held\"");
            free = engine.metric("kvferry_blocks", "kind=\"free\"");
            if (held == 0 && free == engine.metric("kvferry_blocks", "kind=\"total\"")) {
                return;
            }
            TimeUnit.MILLISECONDS.sleep(10); // the figures are all there is; the deadline decides
        } while (!limit.passed());
        assertThat(held).as("requests still held, %s blocks free", free).isZero();
        assertThat(free).isEqualTo(engine.metric("kvferry_blocks", "kind=\"total\""));
    }

    @Test
    void areReleasedWhenTheDecodeRefusesOrFails() throws Exception {
        int port = freePort();
        try (var engine = prefiller(port)) {
            var uri = TestClient.uri(engine.port(), "");
            var bootstrap = URI.create("http://127.0.0.1:" + port);
            var refusing = stub(StubInstance.json(400, "{\"error\": {}}"));
            var dying =
                    stub(call -> {
                        // Late, so that the prefill has ended and its blocks are held.
                        awaitHeld(engine);
                        throw new IOException("killed");
                    });
            for (var d : List.of(refusing, dying)) {
                var router =
                        router(
                                HandOff.MOONCAKE,
                                List.of(uri),
                                List.of(d.uri()),
                                false,
                                Duration.ofSeconds(60),
                                bootstrap);
                for (int i = 0; i < 3; i++) {
                    var body = Json.object().put("prompt", PROMPT.repeat(4) + i);
                    assertThat(ask(router, Json.text(body)).statusCode()).isIn(400, 502, 503);
                }
                awaitIdle(engine);
            }
            assertThat(engine.metric("kvferry_holds_expired_total", "")).isZero();
        }
    }

    private static void awaitHeld(ServedEngine engine) {
        var limit = Deadline.in(Duration.ofSeconds(10));
        try {
            while (engine.metric("kvferry_requests", "state=\"held\"") == 0 && !limit.passed()) {
                TimeUnit.MILLISECONDS.sleep(10);
            }
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }
}
