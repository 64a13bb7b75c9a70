// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import static io.kvferry.tck.FreePorts.freePort;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.serving.ServedEngine;
import io.kvferry.serving.TestSettings;
import io.kvferry.serving.events.KvEventPublisher;
import io.kvferry.serving.events.KvEventSubscriber;
import io.kvferry.serving.events.KvEventsConfig;
import io.kvferry.serving.events.ZmqAddress;
import io.kvferry.serving.http.Json;
import io.kvferry.serving.http.TestClient;
import io.kvferry.serving.metrics.MetricsPage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/// The router follows the KV events of two prefill engines: a prompt goes to the one that has its
/// beginning in the prefix cache, also after the engine was started again.
@Timeout(300)
class KvEventRoutingTest {
    private static final int PROMPTS = 4;

    private final List<AutoCloseable> open = new ArrayList<>();

    /// A prefill engine that publishes.
    private static final class Publishing implements AutoCloseable {
        final KvEventPublisher publisher;
        final ServedEngine engine;

        Publishing(String endpoint, String replay) {
            var config =
                    KvEventsConfig.of(
                            Map.of(
                                    "enable_kv_cache_events",
                                    true,
                                    "endpoint",
                                    endpoint,
                                    "replay_endpoint",
                                    replay));
            publisher = KvEventPublisher.open(config.orElseThrow());
            engine = new ServedEngine(TestSettings.synthetic().get(), Optional.of(publisher));
        }

        URI uri() {
            return TestClient.uri(engine.port(), "");
        }

        KvEventSubscriber.Source source() {
            return new KvEventSubscriber.Source(
                    new ZmqAddress(publisher.endpoint()),
                    Optional.of(publisher.replayEndpoint())
                            .filter(at -> !at.isEmpty())
                            .map(ZmqAddress::new),
                    "");
        }

        double prompts() throws Exception {
            return engine.metric("kvferry_requests_finished_total", "");
        }

        @Override
        public void close() {
            engine.close();
            publisher.close();
        }
    }

    @AfterEach
    void close() throws Exception {
        for (var one : open.reversed()) {
            one.close();
        }
    }

    private <T extends AutoCloseable> T opened(T one) {
        open.add(one);
        return one;
    }

    private static String endpoint() throws IOException {
        return "tcp://127.0.0.1:" + freePort();
    }

    private PdRouter router(Publishing... prefill) {
        var decode = opened(new ServedEngine(TestSettings.synthetic().get()));
        var sources = new HashMap<URI, KvEventSubscriber.Source>();
        for (var one : prefill) {
            sources.put(one.uri(), one.source());
        }
        var settings =
                RouterSettings.of(
                                HandOff.CONTENT,
                                Arrays.stream(prefill).map(Publishing::uri).toList(),
                                List.of(TestClient.uri(decode.port(), "")),
                                List.of())
                        .withKvEvents(sources);
        var router = opened(new PdRouter(settings, TestClient.loopback()));
        router.start();
        return router;
    }

    private static double cached(PdRouter router, Publishing engine) throws Exception {
        return MetricsPage.find(
                        TestClient.get(router.port(), "/metrics").body(),
                        "kvferry_router_instance_cached_blocks",
                        engine.uri().toString())
                .orElse(-1.0);
    }

    private static void awaitCached(PdRouter router, Publishing engine, double blocks)
            throws Exception {
        var limit = Deadline.in(Duration.ofSeconds(30));
        while (cached(router, engine) != blocks && !limit.passed()) {
            TimeUnit.MILLISECONDS.sleep(20); // the figure is all there is; the deadline decides
        }
        assertThat(cached(router, engine)).isEqualTo(blocks);
    }

    private static String prompt(char of, int number) {
        return (of + " prompt number " + number + " ").repeat(10);
    }

    private static void ask(PdRouter router, Object prompt) throws Exception {
        ask(router, prompt, "");
    }

    private static void ask(PdRouter router, Object prompt, String salt) throws Exception {
        var body =
                Json.object()
                        .put("max_tokens", 2)
                        .put("ignore_eos", true)
                        .put("cache_salt", salt)
                        .set("prompt", Json.tree(prompt));
        var response = TestClient.post(router.port(), "/v1/completions", Json.text(body));
        assertThat(response.statusCode()).as(response.body()).isEqualTo(200);
    }

    private static void fill(Publishing engine, char of) throws Exception {
        for (int i = 0; i < PROMPTS; i++) {
            engine.engine.complete(prompt(of, i), 1);
        }
    }

    private static double blocks(Publishing engine) throws Exception {
        return engine.engine.metric("kvferry_blocks_cached_total", "");
    }

    @Test
    void sendsAPromptToTheEngineThatHasItsBeginning() throws Exception {
        var a = opened(new Publishing("tcp://127.0.0.1:*", ""));
        var b = opened(new Publishing("tcp://127.0.0.1:*", "tcp://127.0.0.1:*"));
        fill(b, 'b'); // before the router follows: it gets them by the replay
        var router = router(a, b);
        awaitCached(router, b, blocks(b));
        fillUntilHeard(router, a);
        double promptsOfA = a.prompts();
        double promptsOfB = b.prompts();
        for (int i = 0; i < PROMPTS; i++) {
            ask(router, prompt('a', i) + "and something else");
            ask(router, prompt('b', i) + "and something else");
        }
        assertThat(a.prompts() - promptsOfA).isEqualTo(PROMPTS);
        assertThat(b.prompts() - promptsOfB).isEqualTo(PROMPTS);
        var tokens =
                TestClient.json(
                        TestClient.post(
                                        b.engine.port(),
                                        "/tokenize",
                                        Json.text(Json.object().put("prompt", prompt('b', 0))))
                                .body());
        ask(router, tokens.get("tokens"));
        assertThat(b.prompts() - promptsOfB).as("a prompt of token ids").isEqualTo(PROMPTS + 1);
    }

    /// Cached blocks of one tenant's prompts are of no use to another tenant.
    @Test
    void sendsATenantsPromptToTheEngineThatHasItsBlocks() throws Exception {
        var a = opened(new Publishing("tcp://127.0.0.1:*", "tcp://127.0.0.1:*"));
        var b = opened(new Publishing("tcp://127.0.0.1:*", "tcp://127.0.0.1:*"));
        for (int i = 0; i < PROMPTS; i++) {
            a.engine.complete(prompt('t', i), 1, "tenant a");
            b.engine.complete(prompt('t', i), 1, "tenant b");
        }
        var router = router(a, b);
        awaitCached(router, a, blocks(a));
        awaitCached(router, b, blocks(b));
        double promptsOfA = a.prompts();
        double promptsOfB = b.prompts();
        for (int i = 0; i < PROMPTS; i++) {
            ask(router, prompt('t', i), "tenant a");
        }
        assertThat(a.prompts() - promptsOfA).isEqualTo(PROMPTS);
        for (int i = 0; i < PROMPTS; i++) {
            ask(router, prompt('t', i), "tenant b");
        }
        assertThat(b.prompts() - promptsOfB).isEqualTo(PROMPTS);
    }

    /// Without a replay, what was published before the subscription took effect is not known.
    private static void fillUntilHeard(PdRouter router, Publishing engine) throws Exception {
        var limit = Deadline.in(Duration.ofSeconds(30));
        for (int i = 0; cached(router, engine) <= 0 && !limit.passed(); i++) {
            engine.engine.complete("warm up " + i + " of the subscription, long enough", 1);
        }
        // Once this is heard, so is all that was published before.
        TestClient.post(engine.engine.port(), "/reset_prefix_cache", "");
        awaitCached(router, engine, 0);
        double before = blocks(engine);
        fill(engine, 'a');
        awaitCached(router, engine, blocks(engine) - before);
    }

    @Test
    void forgetsWhatAnEngineHadThatWasStartedAgain() throws Exception {
        var endpoint = endpoint();
        var a = opened(new Publishing("tcp://127.0.0.1:*", "tcp://127.0.0.1:*"));
        var b = opened(new Publishing(endpoint, ""));
        var router = router(a, b);
        fillUntilHeard(router, b);
        b.publisher.close();
        awaitCached(router, b, 0);
        ask(router, prompt('a', 0)); // still answered, by the hash of its beginning
        opened(new KvEventsProbe(endpoint));
        fill(a, 'x');
        awaitCached(router, a, blocks(a));
        double promptsOfA = a.prompts();
        for (int i = 0; i < PROMPTS; i++) {
            ask(router, prompt('x', i));
        }
        assertThat(a.prompts() - promptsOfA).isEqualTo(PROMPTS);
        assertThat(cached(router, b)).isZero();
    }

    /// A publisher at the same address that has nothing to say.
    private static final class KvEventsProbe implements AutoCloseable {
        private final KvEventPublisher publisher;

        KvEventsProbe(String endpoint) {
            publisher =
                    KvEventPublisher.open(
                            KvEventsConfig.of(
                                            Map.of(
                                                    "enable_kv_cache_events",
                                                    true,
                                                    "endpoint",
                                                    endpoint))
                                    .orElseThrow());
        }

        @Override
        public void close() {
            publisher.close();
        }
    }

    @Test
    void routesWithoutTokensWhereAnEngineDoesNotTokenize() throws Exception {
        var a = opened(new Publishing("tcp://127.0.0.1:*", ""));
        var router = router(a);
        ask(router, List.of("two", "prompts"));
        ask(router, "one");
        assertThat(a.prompts()).isEqualTo(3);
    }

    @Test
    void policyAndEndpointsNeedEachOther() {
        var url = URI.create("http://127.0.0.1:1");
        var settings = RouterSettings.of(HandOff.CONTENT, List.of(url), List.of(url), List.of());
        assertThatThrownBy(() -> settings.withKvEvents(Map.of()))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BAD_CONFIG));
        var source =
                new KvEventSubscriber.Source(
                        new ZmqAddress("tcp://127.0.0.1:2"), Optional.empty(), "");
        assertThatThrownBy(() ->
                        settings.withKvEvents(Map.of(URI.create("http://127.0.0.1:3"), source)))
                .hasMessageContaining("127.0.0.1:3");
        var other = URI.create("http://127.0.0.1:4");
        var two = RouterSettings.of(HandOff.CONTENT, List.of(url), List.of(other), List.of());
        assertThatThrownBy(() -> two.withKvEvents(Map.of(url, source, other, source)))
                .hasMessageContaining("tcp://127.0.0.1:2")
                .hasMessageContaining("its own");
    }
}
