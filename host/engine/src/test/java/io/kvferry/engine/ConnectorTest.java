// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.config;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.reference;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.core.EngineCore;
import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.testkit.AlteredModel;
import io.kvferry.engine.testkit.ScriptedEc;
import io.kvferry.engine.testkit.ScriptedKv;
import io.kvferry.engine.testkit.ScriptedKv.OnLoad;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.observe.TraceEvent;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;

/// Every state a request can be in with a connector, on a synthetic model that checks each loaded
/// byte.
class ConnectorTest extends ConnectedEngine {
    @ParameterizedTest
    @EnumSource(LoadMode.class)
    void loadsWhatAnotherEngineStored(LoadMode mode) {
        store(prompt(1, 23));
        kv.mode = mode;
        try (var engine = open()) {
            var outcome = run(engine, request(prompt(1, 23), 10));
            assertThat(outcome.tokens()).isEqualTo(reference(prompt(1, 23), 10));
            assertThat(outcome.usage().external())
                    .singleElement()
                    .satisfies(share -> {
                        assertThat(share.tokens()).isEqualTo(20);
                        assertThat(share.source()).isEqualTo("scripted");
                    });
            assertThat(outcome.usage().computedTokens()).isEqualTo(3);
            assertThat(outcome.kvParams().flag("done")).isTrue();
            assertEmpty(engine);
        }
    }

    /// The id crosses to the workers and back. Half an emoji, which is what is left of one where
    /// the id is cut, must not keep a load from being recognised.
    @Test
    void loadsUnderWhateverIdTheClientGave() {
        store(prompt(1, 23));
        var ids =
                List.of(
                        "",
                        "gr\u00fc\u00df",
                        "x".repeat(63) + "\ud83d\ude00",
                        "a\udc00b",
                        "y".repeat(1000));
        for (var id : ids) {
            var reader = new ScriptedKv(kv.store);
            try (var engine = Engine.open(with(reader, LoadFailurePolicy.FAIL))) {
                var outcome = run(engine, request(prompt(1, 23), 3).withExternalId(id));
                assertThat(outcome.usage().external()).hasSize(1);
                assertThat(engine.stats().counters()).containsEntry("loads_completed", 1L);
                assertThat(engine.stats().counters().getOrDefault("completions_unmatched", 0L))
                        .isZero();
                assertEmpty(engine);
            }
        }
    }

    @Test
    void recomputesTheLastTokenOfAFullAsyncHit() {
        store(prompt(1, 20));
        try (var engine = open()) {
            var outcome = run(engine, request(prompt(1, 20), 10));
            assertThat(outcome.tokens()).isEqualTo(reference(prompt(1, 20), 10));
            assertThat(outcome.usage().computedTokens()).isEqualTo(1);
            assertThat(calls("onAllocated"))
                    .containsExactly("onAllocated r1 0 20", "onAllocated r1 0 0");
        }
    }

    @Test
    void capsSyncHitsAtOneTokenLess() {
        store(prompt(1, 20));
        kv.mode = LoadMode.SYNC;
        try (var engine = open()) {
            assertThat(run(engine, request(prompt(1, 20), 10)).tokens())
                    .isEqualTo(reference(prompt(1, 20), 10));
            assertThat(calls("onAllocated")).containsExactly("onAllocated r1 0 19");
        }
    }

    @Test
    void addsAnExternalHitToALocalOne() {
        try (var engine = open()) {
            kv.save = false;
            run(engine, request(prompt(1, 9), 1));
            store(prompt(1, 23));
            var outcome = run(engine, request(prompt(1, 23), 4));
            assertThat(outcome.usage().localTokens()).isEqualTo(8);
            assertThat(outcome.usage().external())
                    .singleElement()
                    .satisfies(share -> assertThat(share.tokens()).isEqualTo(12));
            assertThat(outcome.tokens()).isEqualTo(reference(prompt(1, 23), 4));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"openScheduler", "openWorker"})
    void saysWhichPluginMissesAClass(String where) {
        var incomplete =
                (KvConnectorProvider)
                        Proxy.newProxyInstance(
                                getClass().getClassLoader(),
                                new Class<?>[] {KvConnectorProvider.class},
                                (_, method, arguments) -> {
                                    if (method.getName().equals(where)) {
                                        throw new NoClassDefFoundError("org/example/Codec");
                                    }
                                    return method.invoke(kv, arguments);
                                });

        assertThatThrownBy(() ->
                        Engine.open(
                                with(kv, LoadFailurePolicy.FAIL)
                                        .kvConnector(
                                                incomplete, kv.config(LoadFailurePolicy.FAIL))))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INCOMPATIBLE))
                .hasMessageContaining(ConnectorTest.class.getName())
                .hasMessageContaining("org/example/Codec")
                .hasMessageContaining("beside its jar");
    }

    @Test
    void closesWhatItHasOpenedWhenAnErrorStopsIt() {
        kv.throwIn = "openWorker";
        kv.thrown = OutOfMemoryError::new;
        assertThatThrownBy(this::open).isInstanceOf(OutOfMemoryError.class);
        assertThat(calls("closeScheduler")).hasSize(1);
    }

    @Test
    void asksAgainWhileALookupIsPending() {
        store(prompt(1, 23));
        kv.pendingLookups = 5;
        try (var engine = open()) {
            var outcome = run(engine, request(prompt(1, 23), 3));
            assertThat(outcome.usage().external()).hasSize(1);
            assertThat(calls("lookup")).hasSizeGreaterThanOrEqualTo(6);
        }
    }

    @Test
    void takesALookupThatStaysPendingAsAMiss() {
        store(prompt(1, 23));
        kv.pendingLookups = Integer.MAX_VALUE;
        try (var engine =
                Engine.open(
                        with(kv, LoadFailurePolicy.FAIL)
                                .pendingLookupLimit(Duration.ofMillis(20)))) {
            assertThat(run(engine, request(prompt(1, 23), 3)).usage().external()).isEmpty();
            assertThat(engine.stats().counters().getOrDefault("lookups_pending_timeout", 0L))
                    .isEqualTo(1);
        }
    }

    @ParameterizedTest
    @EnumSource(LoadMode.class)
    void takesAnIllegalHitAsAMiss(LoadMode mode) {
        store(prompt(1, 23));
        kv.mode = mode;
        kv.excess = 100;
        try (var engine = open()) {
            var outcome = run(engine, request(prompt(1, 23), 3));
            assertThat(outcome.usage().external()).isEmpty();
            assertThat(outcome.tokens()).isEqualTo(reference(prompt(1, 23), 3));
            assertThat(events)
                    .anyMatch(e ->
                            e instanceof TraceEvent.Incident incident
                                    && incident.details().toString().contains("illegal hit"));
        }
    }

    @ParameterizedTest
    @EnumSource(OnLoad.class)
    void recomputesWhatAnAsyncLoadDidNotDeliver(OnLoad what) {
        recomputes(LoadMode.ASYNC, what);
    }

    @ParameterizedTest
    @EnumSource(OnLoad.class)
    void recomputesWhatASyncLoadDidNotDeliver(OnLoad what) {
        recomputes(LoadMode.SYNC, what);
    }

    private void recomputes(LoadMode mode, OnLoad what) {
        store(prompt(1, 23));
        kv.mode = mode;
        kv.onLoad = what;
        var limit = what == OnLoad.NEVER ? Duration.ofMillis(20) : Duration.ofSeconds(60);
        try (var engine = Engine.open(with(kv, LoadFailurePolicy.RECOMPUTE).loadLimit(limit))) {
            var outcome = run(engine, request(prompt(1, 23), 10));
            assertThat(outcome.tokens()).isEqualTo(reference(prompt(1, 23), 10));
            int delivered =
                    switch (what) {
                        case COMPLETE -> 20;
                        case FAIL_LAST_BLOCK -> 16;
                        case FAIL_ALL, FAIL_FIRST_BLOCK, NEVER -> 0;
                    };
            assertThat(outcome.usage().external().stream().mapToInt(share -> share.tokens()).sum())
                    .isEqualTo(delivered);
            assertThat(outcome.usage().cachedTokens() + outcome.usage().computedTokens())
                    .isEqualTo(23);
            assertThat(engine.stats().counters().getOrDefault("loads_started", 0L)).isEqualTo(1);
            assertThat(events)
                    .filteredOn(TraceEvent.Delivery.class::isInstance)
                    .singleElement()
                    .satisfies(e -> {
                        assertThat(((TraceEvent.Delivery) e).promised()).isEqualTo(20);
                        assertThat(((TraceEvent.Delivery) e).delivered()).isEqualTo(delivered);
                    });
            assertEmpty(engine);
        }
    }

    @ParameterizedTest
    @EnumSource(LoadMode.class)
    void failsTheRequestWhenThePolicySaysSo(LoadMode mode) {
        store(prompt(1, 23));
        kv.mode = mode;
        kv.onLoad = OnLoad.FAIL_LAST_BLOCK;
        try (var engine = Engine.open(with(kv, LoadFailurePolicy.FAIL))) {
            var outcome = outcome(engine, engine.submit(request(prompt(1, 23), 10)));
            assertThat(outcome)
                    .isInstanceOfSatisfying(
                            Outcome.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.STORAGE_IO));
            assertThat(calls("finish")).singleElement().asString().contains("ERROR");
            assertEmpty(engine);
        }
    }

    @ParameterizedTest
    @EnumSource(LoadMode.class)
    void findsACorruptBlockBeforeAnyWrongToken(LoadMode mode) {
        store(prompt(1, 23));
        kv.mode = mode;
        kv.corrupt = true;
        try (var engine = open()) {
            var outcome = outcome(engine, engine.submit(request(prompt(1, 23), 10)));
            assertThat(outcome)
                    .isInstanceOfSatisfying(
                            Outcome.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.CORRUPT));
            assertEmpty(engine);
        }
    }

    @Test
    void mergesTheReportsOfRanksThatFinishAtDifferentTimes() {
        var producer = new ScriptedKv(kv.store);
        try (var engine = Engine.open(with(producer, LoadFailurePolicy.FAIL).worldSize(2))) {
            run(engine, request(prompt(1, 23), 1));
        }
        kv.delayPerRank = 3;
        kv.reportTwice = true;
        try (var engine = Engine.open(with(kv, LoadFailurePolicy.FAIL).worldSize(2))) {
            assertThat(run(engine, request(prompt(1, 23), 10)).tokens())
                    .isEqualTo(reference(prompt(1, 23), 10));
            assertThat(engine.stats().counters().getOrDefault("loads_completed", 0L)).isEqualTo(1);
            assertThat(engine.stats().kvConnector().counters().getOrDefault("scripted_reports", 0L))
                    .isEqualTo(2 * engine.stats().steps());
            assertThat(kv.handshakes)
                    .extracting(payload -> payload.reader().i32())
                    .containsExactly(0, 1);
            assertEmpty(engine);
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "onRequest",
                "lookup",
                "onAllocated",
                "buildPlan",
                "onReport",
                "finish",
                "beginStep",
                "endStep",
                "report"
            })
    void survivesAnExceptionOrErrorOutOfAnyMethod(String method) {
        for (var mode : LoadMode.values()) {
            kv.thrown =
                    mode == LoadMode.SYNC ? NoClassDefFoundError::new : IllegalStateException::new;
            store(prompt(1, 23));
            kv.mode = mode;
            kv.calls.clear();
            kv.throwIn = method;
            try (var engine =
                    Engine.open(
                            with(kv, LoadFailurePolicy.RECOMPUTE)
                                    .loadLimit(Duration.ofMillis(50)))) {
                assertThat(run(engine, request(prompt(1, 23), 10)).tokens())
                        .as(mode + " " + method)
                        .isEqualTo(reference(prompt(1, 23), 10));
                assertThat(run(engine, request(prompt(2, 23), 10)).tokens())
                        .isEqualTo(reference(prompt(2, 23), 10));
                assertThat(engine.stats().counters().getOrDefault("connector_defects", 0L))
                        .isPositive();
                boolean worker = List.of("beginStep", "endStep", "report").contains(method);
                assertThat(engine.stats().counters().getOrDefault("connectors_given_up", 0L))
                        .as("connectors that are off, visible in /health")
                        .isEqualTo(worker ? 1 : 0);
                assertEmpty(engine);
            }
        }
    }

    @Test
    void storesNothingOfAStepInWhichTheModelFailed() {
        var failing =
                AlteredModel.withSteps((runner, batch, output, hooks) -> {
                    throw new IllegalStateException("scripted: the model failed");
                });
        try (var engine =
                Engine.open(
                        EngineConfig.of(failing, Path.of(""), Map.of())
                                .blockTokens(4)
                                .blockCount(BLOCKS)
                                .kvConnector(kv, kv.config(LoadFailurePolicy.FAIL)))) {
            assertThat(outcome(engine, engine.submit(request(prompt(1, 23), 1))))
                    .isInstanceOf(Outcome.Failed.class);
            assertThat(kv.calls).contains("endStep 0 1");
            assertThat(kv.store).isEmpty();
            assertEmpty(engine);
        }
    }

    /// An item that is not there leaves its request out of the forward pass, although the plan was
    /// made for it.
    @Test
    void storesNothingOfARequestThatWasLeftOutOfTheStep() {
        var ec = new ScriptedEc(new ConcurrentHashMap<>());
        ec.store.put("a", new byte[320]);
        ec.mode = LoadMode.SYNC;
        ec.fail = true;
        var item = new EncoderInput("a", "image", 2, 10, "a".getBytes(StandardCharsets.UTF_8));
        try (var engine =
                Engine.open(
                        config(Map.of("verify", "all", "embedding_width", 16))
                                .encoder(100, 100)
                                .ecConnector(ec, ec.config())
                                .kvConnector(kv, kv.config(LoadFailurePolicy.FAIL)))) {
            var handle = engine.submit(request(prompt(1, 40), 5).withItems(List.of(item)));
            engine.submit(request(prompt(2, 12), 5));
            engine.step();
            assertThat(engine.stats().counters().getOrDefault("item_loads_failed", 0L))
                    .isEqualTo(1);
            assertThat(kv.calls).contains("endStep 0 1");
            assertThat(kv.store.keySet().stream().map(key -> key.split("/")[0]).distinct())
                    .as("blocks of the request that was computed, and of no other")
                    .hasSize(3);
            assertThat(outcome(engine, handle)).isInstanceOf(Outcome.Finished.class);
        }
    }

    @Test
    void callsTheHalvesInTheOrderOfTheContract() {
        try (var engine = open()) {
            run(engine, request(prompt(1, 7), 1));
            engine.step();
        }
        assertThat(kv.calls)
                .containsExactly(
                        "openScheduler",
                        "openWorker 0",
                        "registerRegions 0",
                        "bindBlockPool",
                        "onHandshakes 1",
                        "onRequest r1",
                        "lookup r1 0",
                        "onAllocated r1 0 0",
                        "buildPlan 1",
                        "beginStep 0 1",
                        "endStep 0 1",
                        "report 0 1",
                        "onReport 1 0",
                        "finish r1 LENGTH 2",
                        "buildPlan 2",
                        "beginStep 0 2",
                        "endStep 0 2",
                        "report 0 2",
                        "onReport 2 0",
                        "closeWorker 0",
                        "closeScheduler");
    }

    @Test
    void parksWhenIdleAndWakesForRequests() {
        store(prompt(1, 23));
        kv.delay = 5;
        try (var engine = open().start()) {
            var outcome =
                    engine.submit(request(prompt(1, 23), 5))
                            .await(Deadline.in(Duration.ofSeconds(20)))
                            .orElseThrow();
            assertThat(((Outcome.Finished) outcome).usage().external()).hasSize(1);
            awaitParked();
            assertThat(engine.stats().freeBlocks()).isEqualTo(BLOCKS);
            assertThat(
                            engine.submit(request(prompt(1, 23), 5))
                                    .await(Deadline.in(Duration.ofSeconds(20))))
                    .containsInstanceOf(Outcome.Finished.class);
        }
    }

    /// Until the scheduler thread waits for nothing but a wake-up, which no clock ends.
    private static void awaitParked() {
        var scheduler =
                Thread.getAllStackTraces().keySet().stream()
                        .filter(thread -> thread.getName().equals("kvferry-scheduler"))
                        .toList();
        assertThat(scheduler).hasSize(1);
        var limit = Deadline.in(Duration.ofSeconds(20));
        while (scheduler.getFirst().getState() != Thread.State.WAITING
                || !(LockSupport.getBlocker(scheduler.getFirst()) instanceof EngineCore)) {
            assertThat(limit.passed()).as("still looks for something to do").isFalse();
            Thread.onSpinWait();
        }
    }

    @Test
    void aWarmUpLeavesNothingBehind() {
        try (var engine = open().start()) {
            assertThat(engine.warmUp(Deadline.in(Duration.ofSeconds(30)))).isTrue();
            assertThat(kv.store).isEmpty();
            assertThat(engine.stats().cachedBlocks()).isZero();
            var handle = engine.submit(request(prompt(1, 19), 5));
            assertThat(handle.await(Deadline.in(Duration.ofSeconds(30))))
                    .containsInstanceOf(Outcome.Finished.class);
        }
    }

    @Test
    void aWarmUpNeedsBlocksOfThreeTokens() {
        try (var engine =
                Engine.open(with(kv, LoadFailurePolicy.RECOMPUTE).blockTokens(2)).start()) {
            assertThat(engine.warmUp(Deadline.in(Duration.ofSeconds(30)))).isFalse();
        }
    }
}
