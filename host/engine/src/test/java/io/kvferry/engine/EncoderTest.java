// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.config;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.testkit.ScriptedEc;
import io.kvferry.engine.testkit.ScriptedKv;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.LookupResult.LoadMode;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;

/// Multimodal items: the encoder cache, encoding, and the encoder-cache connector.
class EncoderTest {
    private final ScriptedEc ec = new ScriptedEc(new ConcurrentHashMap<>());

    static EncoderInput item(String hash, int position, int rows) {
        return new EncoderInput(
                hash, "image", position, rows, hash.getBytes(StandardCharsets.UTF_8));
    }

    private static GenerationRequest withItems(int seed, EncoderInput... items) {
        return request(prompt(seed, 40), 5).withItems(List.of(items));
    }

    static EngineConfig encoding(int slots) {
        return config(Map.of("embedding_width", 16)).encoder(slots, slots);
    }

    static Outcome outcome(Engine engine, RequestHandle handle) {
        var limit = Deadline.in(Duration.ofSeconds(60));
        while (handle.await(Deadline.in(Duration.ZERO)).isEmpty() && !limit.passed()) {
            engine.step();
        }
        return handle.await(Deadline.in(Duration.ZERO)).orElseThrow();
    }

    @Test
    void encodesEachItemOnceAndKeepsIt() {
        try (var engine = Engine.open(encoding(100))) {
            run(engine, withItems(1, item("a", 2, 10), item("b", 20, 10)));
            assertThat(engine.stats().counters().getOrDefault("items_encoded", 0L)).isEqualTo(2);
            run(engine, withItems(2, item("a", 0, 10)));
            assertThat(engine.stats().counters().getOrDefault("items_encoded", 0L)).isEqualTo(2);
            assertThat(engine.stats().encoderFree()).isEqualTo(100);
        }
    }

    @Test
    void dropsTheOldestItemsWhenRowsRunShort() {
        try (var engine = Engine.open(encoding(20).ecConnector(ec, ec.config()))) {
            run(engine, withItems(1, item("a", 2, 10)));
            run(engine, withItems(2, item("b", 2, 10)));
            run(engine, withItems(3, item("c", 2, 10)));
            assertThat(ec.calls).contains("onFreed a").doesNotContain("onFreed b");
            assertThat(ec.store.keySet()).containsExactlyInAnyOrder("a", "b", "c");
        }
    }

    @Test
    void hashesItemsIntoTheBlocks() {
        try (var engine = Engine.open(encoding(100))) {
            run(engine, withItems(1, item("a", 8, 10)));
            assertThat(run(engine, withItems(1, item("b", 8, 10))).usage().localTokens())
                    .isEqualTo(8);
            assertThat(run(engine, withItems(1, item("a", 8, 10))).usage().localTokens())
                    .isEqualTo(36);
        }
    }

    @ParameterizedTest
    @EnumSource(LoadMode.class)
    void loadsWhatAnEncodeEngineSaved(LoadMode mode) {
        try (var encoder =
                Engine.open(encoding(100).encodeOnly(true).ecConnector(ec, ec.config()))) {
            var outcome = run(encoder, withItems(1, item("a", 2, 10), item("b", 20, 10)));
            assertThat(outcome.tokens()).isEmpty();
            assertThat(outcome.ecParams().string("ec")).contains("r1");
        }
        ec.mode = mode;
        ec.delay = 3;
        try (var engine = Engine.open(encoding(100).ecConnector(ec, ec.config()).worldSize(2))) {
            var a = engine.submit(withItems(1, item("a", 2, 10), item("b", 20, 10)));
            var b = engine.submit(withItems(2, item("a", 2, 10)));
            assertThat(((Outcome.Finished) outcome(engine, a)).tokens()).hasSize(5);
            assertThat(((Outcome.Finished) outcome(engine, b)).tokens()).hasSize(5);
            assertThat(engine.stats().counters().getOrDefault("items_loaded", 0L)).isEqualTo(2);
            assertThat(engine.stats().counters().getOrDefault("items_encoded", 0L)).isZero();
            assertThat(engine.stats().encoderFree()).isEqualTo(100);
        }
    }

    @ParameterizedTest
    @EnumSource(LoadMode.class)
    void encodesWhatCouldNotBeLoaded(LoadMode mode) {
        ec.store.put("a", new byte[320]);
        ec.mode = mode;
        ec.fail = true;
        try (var engine = Engine.open(encoding(100).ecConnector(ec, ec.config()))) {
            assertThat(run(engine, withItems(1, item("a", 2, 10))).tokens()).hasSize(5);
            assertThat(engine.stats().counters().getOrDefault("item_loads_failed", 0L))
                    .isEqualTo(1);
            assertThat(engine.stats().counters().getOrDefault("items_encoded", 0L)).isEqualTo(1);
        }
    }

    @ParameterizedTest
    @EnumSource(LoadMode.class)
    void takesAHitOfAModeThatIsNotClaimedAsAMiss(LoadMode mode) {
        ec.store.put("a", encoded("a", 10));
        ec.mode = mode;
        ec.unclaimed.add(mode == LoadMode.SYNC ? Feature.SYNC_LOAD : Feature.ASYNC_LOAD);
        try (var engine = Engine.open(encoding(100).ecConnector(ec, ec.config()))) {
            assertThat(run(engine, withItems(1, item("a", 2, 10))).tokens()).hasSize(5);
            var counters = engine.stats().counters();
            assertThat(counters).containsEntry("items_loaded", 0L);
            assertThat(counters).containsEntry("items_encoded", 1L);
            assertThat(counters).containsEntry("connector_defects", 1L);
            assertThat(ec.calls).contains("onAllocated a encode");
        }
    }

    @Test
    void takesAHoldThatIsNotClaimedAsARelease() {
        ec.hold = true;
        ec.unclaimed.add(Feature.HOLD);
        try (var engine =
                Engine.open(encoding(100).encodeOnly(true).ecConnector(ec, ec.config()))) {
            run(engine, withItems(1, item("a", 2, 10)));
            assertThat(engine.stats().held()).isZero();
            assertThat(engine.stats().encoderFree()).isEqualTo(100);
            assertThat(engine.stats().counters()).containsEntry("connector_defects", 1L);
        }
    }

    @Test
    void failsRequestsWhoseItemsNobodyHas() {
        try (var engine = Engine.open(config(Map.of()).ecConnector(ec, ec.config()))) {
            assertThat(outcome(engine, engine.submit(withItems(1, item("a", 2, 10)))))
                    .isInstanceOfSatisfying(
                            Outcome.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code()).isEqualTo(ErrorCode.MISS));
            assertThat(engine.stats().freeBlocks()).isEqualTo(64);
        }
    }

    @Test
    void findsAnEncoderOutputThatIsNotWhole() {
        var bytes = new byte[320];
        bytes[100] = 1;
        ec.store.put("a", bytes);
        try (var engine = Engine.open(encoding(100).ecConnector(ec, ec.config()))) {
            assertThat(outcome(engine, engine.submit(withItems(1, item("a", 2, 10)))))
                    .isInstanceOfSatisfying(
                            Outcome.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.CORRUPT));
        }
    }

    @Test
    void keepsItemsOfTenantsApart() {
        try (var engine = Engine.open(encoding(100))) {
            run(engine, withItems(1, item("a", 2, 10)).withCacheSalt("x"));
            run(engine, withItems(1, item("a", 2, 10)).withCacheSalt("y"));
            assertThat(engine.stats().counters().getOrDefault("items_encoded", 0L)).isEqualTo(2);
        }
    }

    /// Hashes are the clients' to choose, so two tenants may use one for unlike items.
    @Test
    void aTenantsItemDoesNotFailAnotherTenantsRequest() {
        try (var engine = Engine.open(encoding(100))) {
            var one = engine.submit(withItems(1, item("a", 2, 10)).withCacheSalt("x"));
            var other = engine.submit(withItems(1, item("a", 2, 12)).withCacheSalt("y"));
            assertThat(outcome(engine, one)).isInstanceOf(Outcome.Finished.class);
            assertThat(outcome(engine, other)).isInstanceOf(Outcome.Finished.class);
            assertThat(engine.stats().counters().getOrDefault("items_encoded", 0L)).isEqualTo(2);
        }
    }

    @Test
    void keepsHeldItemsUntilTheDeadline() {
        ec.hold = true;
        try (var engine =
                Engine.open(encoding(100).encodeOnly(true).ecConnector(ec, ec.config()))) {
            run(engine, withItems(1, item("a", 2, 10)));
            assertThat(engine.stats().encoderFree()).isEqualTo(90);
            var limit = Deadline.in(Duration.ofSeconds(10));
            while (engine.stats().encoderFree() < 100 && !limit.passed()) {
                engine.step();
            }
            assertThat(engine.stats().encoderFree()).isEqualTo(100);
        }
    }

    @Test
    void abortsWhileItemsLoad() {
        ec.store.put("a", new byte[320]);
        ec.delay = 1000;
        try (var engine = Engine.open(encoding(100).ecConnector(ec, ec.config()))) {
            var handle = engine.submit(withItems(1, item("a", 2, 10)));
            engine.step();
            engine.step();
            handle.abort();
            for (int i = 0; i < 5; i++) {
                engine.step();
            }
            assertThat(handle.await(Deadline.in(Duration.ZERO))).isPresent();
            assertThat(engine.stats().encoderFree()).isEqualTo(100);
            assertThat(engine.stats().freeBlocks()).isEqualTo(64);
        }
    }

    /// The request runs up to the item's position and then has nothing to compute: the end of the
    /// load, in a step without a forward pass, must set it going again.
    @Test
    void goesOnWhenAnItemArrivesWhileNothingElseRuns() {
        ec.store.put("a", encoded("a", 10));
        ec.delay = 4;
        try (var engine = Engine.open(encoding(100).ecConnector(ec, ec.config())).start()) {
            assertThat(engine.submit(withItems(1, item("a", 8, 10))).await(soon()))
                    .hasValueSatisfying(o -> assertThat(o).isInstanceOf(Outcome.Finished.class));
            assertThat(engine.stats().counters().getOrDefault("items_loaded", 0L)).isEqualTo(1);
        }
    }

    @Test
    void looksThePrefixUpNowAndThenOnlyWhileAnItemIsAwaited() {
        ec.store.put("a", encoded("a", 10));
        ec.silent = true;
        var kv = new ScriptedKv();
        try (var engine =
                Engine.open(
                        encoding(100)
                                .ecConnector(ec, ec.config())
                                .kvConnector(kv, kv.config(LoadFailurePolicy.RECOMPUTE)))) {
            var handle = engine.submit(withItems(1, item("a", 0, 10)));
            long begun = System.nanoTime();
            for (int i = 0; i < 500; i++) {
                engine.step();
            }
            long retries = (System.nanoTime() - begun) / 10_000_000; // see PrefixLookup
            assertThat(engine.stats().counters().get("lookups")).isBetween(1L, 2 + retries);
            ec.silent = false;
            assertThat(outcome(engine, handle)).isInstanceOf(Outcome.Finished.class);
        }
    }

    @Test
    void asksAgainForAnItemWhileNothingElseRuns() {
        ec.store.put("a", encoded("a", 10));
        ec.pendingLookups = 3;
        try (var engine = Engine.open(encoding(100).ecConnector(ec, ec.config())).start()) {
            assertThat(engine.submit(withItems(1, item("a", 8, 10))).await(soon()))
                    .hasValueSatisfying(o -> assertThat(o).isInstanceOf(Outcome.Finished.class));
            assertThat(engine.stats().counters().getOrDefault("items_loaded", 0L)).isEqualTo(1);
        }
    }

    /// What an engine saves for an item.
    static byte[] encoded(String hash, int rows) {
        var other = new ScriptedEc(new ConcurrentHashMap<>());
        try (var engine = Engine.open(encoding(100).ecConnector(other, other.config()))) {
            run(engine, withItems(1, item(hash, 8, rows)));
            return Objects.requireNonNull(other.store.get(hash));
        }
    }

    /// From the call on: a constant would age while other tests run.
    private static Deadline soon() {
        return Deadline.in(Duration.ofSeconds(30));
    }
}
