// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.ec;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.tck.faults.FaultPlan;
import io.kvferry.tck.faults.FaultPlan.Fault;
import io.kvferry.tck.faults.FaultyEcConnector;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// Those behaviours of [EcConnectorContract] that only show in an engine: the connector runs in
/// kvferry's own, under a model that verifies the encoder outputs that it is given.
abstract class EcEngineTests extends EcMemoryTests {
    private static final int ROWS = 6;
    private static final int TRIES = 200;

    private static EngineConfig bare() {
        return EngineConfig.of(
                        new SyntheticProvider(),
                        Path.of(""),
                        Map.of("verify", "all", "embedding_width", 24))
                .blockTokens(4)
                .blockCount(256)
                .prefixCache(false)
                .worldSize(2)
                .encoder(64, 64)
                .closeLimit(Duration.ofSeconds(1));
    }

    private Engine engine(EcConnectorProvider provider, KvRole role, String id) {
        return Engine.open(bare().ecConnector(provider, config(role, id)).host(host())).start();
    }

    private GenerationRequest request(String hash) {
        return request(hash, ROWS, hash);
    }

    private GenerationRequest request(String hash, int rows, String content) {
        var prompt = new int[20];
        for (int i = 0; i < prompt.length; i++) {
            prompt[i] = 300 + i;
        }
        var item =
                new EncoderInput(hash, "image", 4, rows, content.getBytes(StandardCharsets.UTF_8));
        return GenerationRequest.of(prompt, SamplingParams.greedy(5))
                .withItems(List.of(item))
                .withEcParams(producerParams());
    }

    private int[] tokens(Engine engine, String hash) {
        return tokens(engine, request(hash));
    }

    private int[] tokens(Engine engine, GenerationRequest request) {
        var outcome =
                engine.submit(request)
                        .await(Deadline.in(limit().plus(limit())))
                        .orElseThrow(() ->
                                new AssertionError(
                                        "no outcome within twice "
                                                + limit()
                                                + "; "
                                                + engine.stats()));
        assertThat(outcome).isInstanceOf(Outcome.Finished.class);
        return ((Outcome.Finished) outcome).tokens();
    }

    private int[] baseline() {
        try (var engine = Engine.open(bare()).start()) {
            return tokens(engine, "baseline");
        }
    }

    /// Items that one engine encoded are run on another until `done` says that what was to be seen
    /// has been seen.
    private void exchange(EcConnectorProvider ofConsumer, Seen done) {
        var expected = baseline();
        try (var producer = engine(provider(), KvRole.PRODUCER, "engine-e");
                var consumer = engine(ofConsumer, KvRole.CONSUMER, "engine-pd")) {
            for (int i = 0; i < TRIES; i++) {
                var hash = "in an engine " + i;
                assertThat(tokens(producer, hash)).isEqualTo(expected);
                assertThat(tokens(consumer, hash))
                        .as("tokens with a connector")
                        .isEqualTo(expected);
                assertThat(consumer.stats().health()).isEmpty();
                assertThat(consumer.stats().counters().getOrDefault("connector_defects", 0L))
                        .isZero();
                if (done.in(consumer)) {
                    return;
                }
                LockSupport.parkNanos(5_000_000); // a store may take a moment to make items known
            }
            throw new AssertionError(TRIES + " items did not show it: " + consumer.stats());
        }
    }

    @FunctionalInterface
    private interface Seen {
        boolean in(Engine consumer);
    }

    @Test
    @DisplayName(
            "E27 in an engine, an item that another engine encoded is loaded, and the tokens are right")
    void itemsOfOthersAreLoadedInAnEngine() {
        exchange(
                provider(),
                consumer -> consumer.stats().counters().getOrDefault("items_loaded", 0L) > 0);
    }

    @Test
    @DisplayName("E28 in an engine, an item whose load fails is encoded, and changes no token")
    void failedLoadsAreEncodedInAnEngine() {
        var plan = FaultPlan.seeded(5).with(Fault.FAIL, 1);
        exchange(
                FaultyEcConnector.wrap(provider(), plan),
                consumer ->
                        plan.struck(Fault.FAIL) > 0
                                && consumer.stats().counters().getOrDefault("item_loads_failed", 0L)
                                        > 0);
    }

    @Test
    @DisplayName("E60 in an engine, completions that come late or twice do no harm")
    void lateAndRepeatedCompletionsDoNoHarm() {
        var plan = FaultPlan.seeded(13).with(Fault.DELAY, 0.5).with(Fault.DUPLICATE, 0.5);
        exchange(
                FaultyEcConnector.wrap(provider(), plan),
                _ -> plan.struck(Fault.DELAY) > 0 && plan.struck(Fault.DUPLICATE) > 0);
    }

    @Test
    @DisplayName(
            "E18 in an engine, two tenants with one hash never share rows and never fail each other")
    void tenantsAreKeptApartInAnEngine() {
        var hash = "chosen by two clients";
        var one = request(hash, ROWS, "of one").withCacheSalt("one");
        var other = request(hash, ROWS + 2, "of the other").withCacheSalt("the other");
        try (var producer = engine(provider(), KvRole.PRODUCER, "engine-e");
                var consumer = engine(provider(), KvRole.CONSUMER, "engine-pd")) {
            tokens(producer, one);
            for (int i = 0;
                    consumer.stats().counters().getOrDefault("items_loaded", 0L) == 0;
                    i++) {
                assertThat(i)
                        .as("times that the tenant's own item was asked for")
                        .isLessThan(TRIES);
                tokens(consumer, one);
                assertThat(consumer.resetCaches(Deadline.in(limit()), false)).isTrue();
                LockSupport.parkNanos(5_000_000);
            }
            long encoded = consumer.stats().counters().getOrDefault("items_encoded", 0L);
            long loaded = consumer.stats().counters().getOrDefault("items_loaded", 0L);
            tokens(consumer, other);
            tokens(consumer, request(hash, ROWS + 1, "of nobody"));
            assertThat(consumer.stats().counters().getOrDefault("items_encoded", 0L))
                    .isEqualTo(encoded + 2);
            assertThat(consumer.stats().counters().getOrDefault("items_loaded", 0L))
                    .isEqualTo(loaded);
            assertThat(consumer.stats().counters().getOrDefault("connector_defects", 0L)).isZero();
        }
    }
}
