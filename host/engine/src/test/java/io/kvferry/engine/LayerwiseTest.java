// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.config;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.model.LayerHooks;
import io.kvferry.engine.testkit.AlteredModel;
import io.kvferry.engine.testkit.LayerwiseKv;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.config.LoadFailurePolicy;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/// Loads and saves by layers: the model checks each loaded byte when its layer begins, and the
/// connector has nothing in place, and stores nothing, that the engine did not ask for.
class LayerwiseTest {
    private static final int GROUPS = 2;
    private static final int LAYERS = 6;
    private static final Map<String, Object> MODEL =
            Map.of("verify", "all", "layers", LAYERS / GROUPS, "groups", GROUPS);
    private final LayerwiseKv kv = new LayerwiseKv();

    private Engine open(LoadFailurePolicy policy) {
        return Engine.open(
                config(MODEL).worldSize(2).blockCount(128).kvConnector(kv, kv.config(policy)));
    }

    private static int[] expected(int seed, int tokens) {
        try (var engine = Engine.open(config(MODEL).blockCount(1024))) {
            return run(engine, request(prompt(seed, 23), tokens)).tokens();
        }
    }

    private static void assertEmpty(Engine engine) {
        engine.step();
        engine.checkInvariants();
        assertThat(engine.stats().freeBlocks()).isEqualTo(engine.stats().totalBlocks());
    }

    /// Computes a prompt in an engine of its own, and leaves it in the store.
    private void store(int seed) {
        try (var engine = open(LoadFailurePolicy.FAIL)) {
            run(engine, request(prompt(seed, 23), 1));
        }
        kv.calls.clear();
    }

    @Test
    void savesEveryLayerAndLoadsItBeforeItIsComputed() {
        store(1);
        assertThat(kv.store).hasSize(5 * LAYERS * 2);
        try (var engine = open(LoadFailurePolicy.FAIL)) {
            var outcome = run(engine, request(prompt(1, 23), 10));
            assertThat(outcome.tokens()).isEqualTo(expected(1, 10));
            assertThat(outcome.usage().external())
                    .singleElement()
                    .satisfies(share -> assertThat(share.tokens()).isEqualTo(20));
            assertThat(engine.stats().counters().getOrDefault("connector_defects", 0L)).isZero();
            assertEmpty(engine);
        }
    }

    private static List<String> stepCalls() {
        var calls = new ArrayList<String>();
        calls.add("beginStep");
        for (int layer = 0; layer < LAYERS; layer++) {
            calls.add("awaitLayer " + layer);
            calls.add("saveLayer " + layer);
        }
        calls.add("endStep");
        return calls;
    }

    @Test
    void callsTheLayersInModelOrderAndOnlyInAForwardPass() {
        store(1);
        try (var engine = open(LoadFailurePolicy.FAIL)) {
            run(engine, request(prompt(1, 23), 1));
            assertThat(kv.calls).isEqualTo(stepCalls());
            kv.calls.clear();
            engine.step(); // tells the halves that the request ended; nothing is computed
            assertThat(kv.calls).containsExactly("beginStep", "endStep");
        }
    }

    @Test
    void makesUpForHooksThatARunnerLeavesOut() {
        var hookless =
                AlteredModel.withSteps((runner, batch, output, _) ->
                        runner.execute(batch, output, LayerHooks.NONE));
        try (var engine =
                Engine.open(
                        EngineConfig.of(hookless, Path.of(""), Map.of())
                                .blockTokens(4)
                                .blockCount(64)
                                .kvConnector(kv, kv.config(LoadFailurePolicy.FAIL)))) {
            run(engine, request(prompt(7, 23), 1));
            assertThat(kv.calls)
                    .startsWith("beginStep")
                    .endsWith("endStep")
                    .containsOnlyOnce("awaitLayer 0", "awaitLayer 3", "saveLayer 0", "saveLayer 3");
        }
    }

    @Test
    void savesNoLayerThatAFailedForwardPassDidNotCompute() {
        var failing =
                AlteredModel.withSteps((_, _, _, hooks) -> {
                    hooks.beforeLayer(0);
                    throw new IllegalStateException("scripted");
                });
        try (var engine =
                Engine.open(
                        EngineConfig.of(failing, Path.of(""), Map.of())
                                .blockTokens(4)
                                .blockCount(64)
                                .kvConnector(kv, kv.config(LoadFailurePolicy.FAIL)))) {
            var handle = engine.submit(request(prompt(7, 23), 1));
            engine.step();
            assertThat(handle.await(Deadline.in(Duration.ZERO)).orElseThrow())
                    .isInstanceOf(Outcome.Failed.class);
            assertThat(kv.calls)
                    .containsOnlyOnce("awaitLayer 0", "awaitLayer 3")
                    .noneMatch(call -> call.startsWith("saveLayer"));
            assertThat(kv.store).isEmpty();
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 2, LAYERS - 1})
    void recomputesWhenALayerIsNotDelivered(int layer) {
        store(1);
        kv.failingLayer = layer;
        try (var engine = open(LoadFailurePolicy.RECOMPUTE)) {
            var outcome = run(engine, request(prompt(1, 23), 10));
            assertThat(outcome.tokens()).isEqualTo(expected(1, 10));
            assertThat(outcome.usage().external()).isEmpty();
            assertEmpty(engine);
        }
    }

    @Test
    void failsTheRequestWhenALayerIsNotDeliveredAndThePolicySaysSo() {
        store(1);
        kv.failingLayer = 3;
        try (var engine = open(LoadFailurePolicy.FAIL)) {
            var handle = engine.submit(request(prompt(1, 23), 10));
            engine.step();
            assertThat(handle.await(Deadline.in(Duration.ZERO)).orElseThrow())
                    .isInstanceOfSatisfying(
                            Outcome.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.STORAGE_IO));
            assertEmpty(engine);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"awaitLayer 0", "awaitLayer 4", "saveLayer 0", "saveLayer 5"})
    void goesOnWithoutAConnectorThatThrowsInALayer(String call) {
        store(1);
        kv.throwIn = call;
        try (var engine = open(LoadFailurePolicy.RECOMPUTE)) {
            assertThat(run(engine, request(prompt(1, 23), 10)).tokens()).isEqualTo(expected(1, 10));
            assertThat(run(engine, request(prompt(2, 23), 10)).tokens()).isEqualTo(expected(2, 10));
            assertThat(engine.stats().counters().getOrDefault("connector_defects", 0L))
                    .isEqualTo(1);
            assertEmpty(engine);
        }
    }

    @Test
    void doesNotCallLayersThatAreNotClaimed() {
        kv.claimed = false;
        try (var engine = open(LoadFailurePolicy.FAIL)) {
            run(engine, request(prompt(1, 23), 3));
            assertThat(kv.calls).containsOnly("beginStep", "endStep");
        }
    }
}
