// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.AppenderBase;

import io.kvferry.serving.ServedEngine;
import io.kvferry.serving.TestSettings;
import io.kvferry.serving.http.Json;
import io.kvferry.serving.http.TestClient;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.slf4j.LoggerFactory;

import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/// The warnings by which an operator learns what went wrong, as docs/operating.md lists them.
@Timeout(300)
class WarningsTest extends RouterRig {
    private static final Logger LOGGER = (Logger) LoggerFactory.getLogger("io.kvferry");
    private static final String PROMPT = "It was the best of times, it was the worst of times. ";

    private final BlockingQueue<String> warnings = new LinkedBlockingQueue<>();
    private final AppenderBase<ILoggingEvent> appender =
            new AppenderBase<>() {
                @Override
                protected void append(ILoggingEvent event) {
                    if (event.getLevel() == Level.WARN) {
                        warnings.add(event.getFormattedMessage());
                    }
                }
            };

    @BeforeEach
    void listen() {
        appender.start();
        LOGGER.addAppender(appender);
        LOGGER.setLevel(Level.WARN);
    }

    @AfterEach
    void stopListening() {
        LOGGER.detachAppender(appender);
        LOGGER.setLevel(null);
    }

    /// The next warning that contains `parts`.
    private void assertWarned(String... parts) throws InterruptedException {
        while (true) {
            var warning = warnings.poll(30, TimeUnit.SECONDS);
            assertThat(warning).as("a warning with %s", List.of(parts)).isNotNull();
            if (List.of(parts).stream().allMatch(String.valueOf(warning)::contains)) {
                return;
            }
        }
    }

    @Test
    void anInstanceThatGoesDown() throws Exception {
        var p = stub(StubInstance.json(200, P_ANSWER));
        var dead = deadUri();
        var d = stub(StubInstance.json(200, D_ANSWER));
        var router = router(HandOff.PARAMS, List.of(p.uri()), List.of(dead, d.uri()));
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(200);
        assertThat(ask(router, REQUEST).statusCode()).isEqualTo(200);
        assertWarned("decode " + dead + " is down: ", "cannot connect");
    }

    private static ServedEngine engine(String role, int bootstrapPort) {
        var config =
                Json.object()
                        .put("kv_connector", "MooncakeConnector")
                        .put("kv_role", role)
                        .put("kv_load_failure_policy", "recompute");
        config.putObject("kv_connector_extra_config")
                .put("bootstrap_port", bootstrapPort)
                .put("abort_request_timeout", "1s")
                .put("connector_timeout", "5s");
        return new ServedEngine(TestSettings.synthetic().kvJson(Json.text(config)).get());
    }

    @Test
    void aHoldThatExpires() throws Exception {
        try (var engine = engine("kv_producer", freePort())) {
            var body = Json.object().put("prompt", PROMPT.repeat(4)).put("max_tokens", 1);
            body.putObject("kv_transfer_params")
                    .put("do_remote_decode", true)
                    .put("do_remote_prefill", false)
                    .put("transfer_id", "xfer-nobody");
            var response = TestClient.post(engine.port(), "/v1/completions", Json.text(body));
            assertThat(response.statusCode()).as(response.body()).isEqualTo(200);
            assertWarned("hold-expired of engine: ", "was not fetched in time");
        }
    }

    @Test
    void aPeerThatIsLost() throws Exception {
        // The bootstrap server names a prefill rank that is not there any more.
        var bootstrap =
                bootstrap(ENGINE.replace("tcp://x:1", "tcp://127.0.0.1:" + deadUri().getPort()));
        try (var engine = engine("kv_consumer", 0)) {
            var body = Json.object().put("prompt", PROMPT.repeat(4)).put("max_tokens", 1);
            body.putObject("kv_transfer_params")
                    .put("do_remote_decode", false)
                    .put("do_remote_prefill", true)
                    .put("remote_bootstrap_addr", bootstrap.toString())
                    .put("remote_engine_id", "e")
                    .put("transfer_id", "xfer-lost");
            var response = TestClient.post(engine.port(), "/v1/completions", Json.text(body));
            assertThat(response.statusCode()).as(response.body()).isEqualTo(200);
            assertWarned("lost tcp://127.0.0.1:", " of engine e");
        }
    }
}
