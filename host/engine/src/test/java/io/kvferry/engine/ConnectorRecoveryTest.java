// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.config;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.reference;
import static io.kvferry.engine.EngineTest.request;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.testkit.KvWorkerHost;
import io.kvferry.engine.testkit.ScriptedEc;
import io.kvferry.engine.testkit.ScriptedKv;
import io.kvferry.engine.worker.process.ThreadWorkers;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.observe.TraceEvent;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// A connector with a defect is off, and on again after a while; with ranks in the engine's process
/// and behind the transport of worker processes.
class ConnectorRecoveryTest {
    private static final int BLOCKS = 64;
    private final ScriptedKv kv = new ScriptedKv();
    private final ScriptedEc ec = new ScriptedEc(new ConcurrentHashMap<>());
    private final ThreadWorkers threads = new ThreadWorkers(_ -> new KvWorkerHost(kv, ec));
    private final List<TraceEvent> events = new CopyOnWriteArrayList<>();

    private EngineConfig with(LoadFailurePolicy policy, boolean processes) {
        return config(Map.of("verify", "all", "embedding_width", 16))
                .blockCount(BLOCKS)
                .worldSize(2)
                .connectorPause(Duration.ofMillis(20))
                .host(HostServices.NONE.with(events::add, () -> {}))
                .workers(processes ? new Workers.Launched(threads, "") : new Workers.InProcess())
                .kvConnector(kv, kv.config(policy))
                .ecConnector(ec, ec.config());
    }

    private static void await(Engine engine, BooleanSupplier condition) {
        var limit = Deadline.in(Duration.ofSeconds(40));
        while (!condition.getAsBoolean() && !limit.passed()) {
            if (!engine.step()) {
                LockSupport.parkNanos(100_000);
            }
        }
        assertThat(condition.getAsBoolean()).as("%s", engine.stats()).isTrue();
    }

    private static Outcome.Finished finished(Engine engine, RequestHandle handle) {
        await(engine, () -> handle.await(Deadline.in(Duration.ZERO)).isPresent());
        var outcome = handle.await(Deadline.in(Duration.ZERO)).orElseThrow();
        assertThat(outcome).isInstanceOf(Outcome.Finished.class);
        return (Outcome.Finished) outcome;
    }

    private static Outcome.Finished run(Engine engine, GenerationRequest request) {
        return finished(engine, engine.submit(request));
    }

    private void assertWhole(Engine engine) {
        await(engine, () -> engine.stats().held() == 0);
        engine.checkInvariants();
        var stats = engine.stats();
        assertThat(stats.freeBlocks()).as("%s", stats).isEqualTo(BLOCKS);
        assertThat(stats.leasedBlocks() + stats.quarantinedBlocks()).isZero();
        assertThat(stats.health() + stats.degraded()).isEmpty();
    }

    private long incidents(String kind) {
        return events.stream()
                .filter(event ->
                        event instanceof TraceEvent.Incident incident
                                && incident.kind().equals(kind))
                .count();
    }

    private long calls(String call) {
        return kv.calls.stream().filter(each -> each.equals(call)).count();
    }

    /// A load, the load of a request that is gone, a hold and a lease are open when an Error comes
    /// out of one rank's half.
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void opensAKvConnectorAgainAfterAnError(boolean processes) {
        kv.thrown = OutOfMemoryError::new;
        try (var engine = Engine.open(with(LoadFailurePolicy.RECOMPUTE, processes))) {
            kv.lease = true;
            kv.holdSteps = -1;
            run(engine, request(prompt(1, 23), 1));
            kv.lease = false;
            kv.hold = true;
            run(engine, request(prompt(2, 23), 1));
            kv.hold = false;
            engine.resetCaches(Deadline.in(Duration.ofSeconds(60)));
            kv.onLoad = ScriptedKv.OnLoad.NEVER;
            kv.answerRevocations = false;
            var loading = engine.submit(request(prompt(1, 23), 5));
            var aborted = engine.submit(request(prompt(2, 23), 5));
            engine.step();
            aborted.abort();
            engine.step();
            assertThat(engine.stats().leasedBlocks()).isPositive();
            assertThat(engine.stats().held()).isPositive();
            assertThat(engine.stats().loading()).isEqualTo(1);
            var running = engine.submit(request(prompt(3, 23), 400 / 23));
            kv.throwIn = "endStep";
            await(engine, () -> !engine.stats().degraded().isEmpty());
            assertThat(engine.stats().degraded()).contains("scripted", "OutOfMemoryError");
            assertThat(engine.stats().health()).isEmpty();
            kv.onLoad = ScriptedKv.OnLoad.COMPLETE;
            assertThat(finished(engine, loading).tokens()).isEqualTo(reference(prompt(1, 23), 5));

            await(engine, () -> engine.stats().degraded().isEmpty());
            assertThat(finished(engine, running).tokens())
                    .isEqualTo(reference(prompt(3, 23), 400 / 23));
            engine.resetCaches(Deadline.in(Duration.ofSeconds(60)));
            var again = run(engine, request(prompt(1, 23), 5));
            assertThat(again.tokens()).isEqualTo(reference(prompt(1, 23), 5));
            assertThat(again.usage().external()).as("loads again").isNotEmpty();
            kv.hold = true; // under the ids of a connector that begins anew
            kv.holdSteps = 1;
            run(engine, request(prompt(4, 23), 2));
            assertWhole(engine);
            var stats = engine.stats();
            assertThat(stats.counters().getOrDefault("connectors_given_up", 0L)).isEqualTo(1);
            assertThat(stats.counters().getOrDefault("connectors_reopened", 0L)).isEqualTo(1);
            assertThat(incidents("connector-defect")).isEqualTo(1);
        }
        assertThat(calls("openScheduler")).isEqualTo(2).isEqualTo(calls("closeScheduler"));
        for (int rank = 0; rank < 2; rank++) {
            assertThat(calls("openWorker " + rank))
                    .isEqualTo(2)
                    .isEqualTo(calls("closeWorker " + rank));
        }
    }

    /// Each attempt comes later than the one before; only the defect itself is told.
    @ParameterizedTest
    @ValueSource(strings = {"openScheduler", "openWorker", "registerRegions", "onHandshakes"})
    void triesAgainUntilItCanBeOpened(String method) {
        for (boolean processes : new boolean[] {false, true}) {
            events.clear();
            kv.calls.clear();
            try (var engine = Engine.open(with(LoadFailurePolicy.FAIL, processes))) {
                run(engine, request(prompt(1, 23), 1));
                kv.throwIn = "report";
                await(engine, () -> !engine.stats().degraded().isEmpty());
                kv.throwsLeft.set(3);
                kv.throwIn = method;
                assertThat(run(engine, request(prompt(2, 23), 5)).tokens())
                        .isEqualTo(reference(prompt(2, 23), 5));
                await(engine, () -> kv.throwIn.isEmpty());
                await(engine, () -> engine.stats().degraded().isEmpty());
                engine.resetCaches(Deadline.in(Duration.ofSeconds(60)));
                assertThat(run(engine, request(prompt(1, 23), 5)).usage().external()).isNotEmpty();
                assertThat(incidents("connector-defect")).isEqualTo(1);
                assertThat(engine.stats().counters().getOrDefault("connectors_reopened", 0L))
                        .isEqualTo(1);
                assertWhole(engine);
            }
            assertThat(calls("openScheduler") - (method.equals("openScheduler") ? 3 : 0))
                    .isEqualTo(calls("closeScheduler"));
        }
    }

    /// One rank does not get its half open. The others step on, and what is opened too late is
    /// closed again.
    @Test
    void doesNotWaitForARankThatDoesNotGetItOpen() {
        var gate = new CountDownLatch(1);
        try (var engine =
                Engine.open(
                        with(LoadFailurePolicy.FAIL, false).startLimit(Duration.ofMillis(20)))) {
            run(engine, request(prompt(1, 23), 1));
            kv.onOpenWorker =
                    context -> {
                        boolean open = context.rank().rank() == 0;
                        while (!open) {
                            try {
                                open = gate.await(60, TimeUnit.SECONDS);
                            } catch (InterruptedException e) {
                                kv.calls.add("interrupted");
                            }
                        }
                    };
            kv.throwIn = "report";
            await(engine, () -> engine.stats().degraded().contains("not every rank has opened"));
            await(engine, () -> kv.calls.contains("interrupted"));
            assertThat(run(engine, request(prompt(2, 23), 5)).tokens())
                    .isEqualTo(reference(prompt(2, 23), 5));
            gate.countDown();
            await(engine, () -> engine.stats().degraded().isEmpty());
            assertWhole(engine);
        }
        for (int rank = 0; rank < 2; rank++) {
            assertThat(calls("openWorker " + rank)).isEqualTo(calls("closeWorker " + rank));
        }
    }

    /// Steps go on while a half that was given up hangs in its close. Blocks of what it has open
    /// stay out of use until it is closed, and only then is it opened again.
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void stepsOnWhileAHalfHangsInItsClose(boolean processes) {
        var gate = new CountDownLatch(1);
        var config =
                with(LoadFailurePolicy.RECOMPUTE, processes)
                        .loadLimit(Duration.ofMillis(50))
                        .revokeLimit(Duration.ofMillis(50));
        try (var engine = Engine.open(config)) {
            run(engine, request(prompt(1, 23), 1));
            engine.resetCaches(Deadline.in(Duration.ofSeconds(60)));
            kv.onLoad = ScriptedKv.OnLoad.NEVER;
            kv.answerRevocations = false;
            kv.onCloseWorker = () -> awaitAMinute(gate);
            var loading = engine.submit(request(prompt(1, 23), 5));
            engine.step();
            kv.throwIn = "endStep";
            await(engine, () -> engine.stats().degraded().contains("still being closed"));
            assertThat(finished(engine, loading).tokens()).isEqualTo(reference(prompt(1, 23), 5));
            assertThat(run(engine, request(prompt(2, 23), 5)).tokens())
                    .isEqualTo(reference(prompt(2, 23), 5));
            assertThat(engine.stats().quarantinedBlocks()).isPositive();
            assertThat(engine.stats().degraded()).contains("still being closed");
            assertThat(engine.stats().health()).isEmpty();
            assertThat(calls("openScheduler")).isEqualTo(1);
            assertThat(engine.stats().counters().getOrDefault("connectors_unclosed", 0L))
                    .isEqualTo(1);

            gate.countDown();
            await(engine, () -> engine.stats().degraded().isEmpty());
            assertWhole(engine);
        } finally {
            gate.countDown();
        }
    }

    private static void awaitAMinute(CountDownLatch gate) {
        try {
            gate.await(1, TimeUnit.MINUTES);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /// A scheduler half that throws whenever it is called.
    @ParameterizedTest
    @ValueSource(strings = {"lookup", "buildPlan", "onReport"})
    void givesUpASchedulerHalfThatDoesNotWork(String method) {
        kv.thrown = StackOverflowError::new;
        try (var engine = Engine.open(with(LoadFailurePolicy.RECOMPUTE, false))) {
            kv.throwsLeft.set(Integer.MAX_VALUE);
            kv.throwIn = method;
            for (int i = 0; engine.stats().degraded().isEmpty() && i < 200; i++) {
                assertThat(run(engine, request(prompt(i, 23), 2)).tokens())
                        .isEqualTo(reference(prompt(i, 23), 2));
            }
            assertThat(engine.stats().degraded()).contains("too many defects");
            assertThat(incidents("connector-defect")).isLessThan(30);
            kv.throwIn = "";
            await(engine, () -> engine.stats().degraded().isEmpty());
            run(engine, request(prompt(1, 23), 1));
            assertWhole(engine);
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void opensAnEncoderCacheConnectorAgain(boolean processes) {
        try (var engine = Engine.open(with(LoadFailurePolicy.FAIL, processes).encoder(100, 100))) {
            run(engine, request(prompt(1, 40), 1).withItems(List.of(item("a"))));
            engine.resetCaches(Deadline.in(Duration.ofSeconds(60)));
            ec.silent = true;
            ec.mode = LoadMode.ASYNC;
            var loading = engine.submit(request(prompt(2, 40), 5).withItems(List.of(item("a"))));
            engine.step();
            engine.step();
            ec.error.set(new InternalError("scripted: a mapped file was cut"));
            await(engine, () -> !engine.stats().degraded().isEmpty());
            ec.silent = false;
            finished(engine, loading);
            assertThat(engine.stats().counters().getOrDefault("items_encoded", 0L)).isEqualTo(2);

            await(engine, () -> engine.stats().degraded().isEmpty());
            engine.resetCaches(Deadline.in(Duration.ofSeconds(60)));
            run(engine, request(prompt(3, 40), 5).withItems(List.of(item("a"))));
            assertThat(engine.stats().counters().getOrDefault("items_loaded", 0L)).isEqualTo(1);
            assertThat(engine.stats().encoderFree()).isEqualTo(100);
            assertThat(ec.calls.stream().filter("openScheduler"::equals)).hasSize(2);
            assertThat(incidents("connector-defect")).isEqualTo(1);
            assertWhole(engine);
        }
    }

    private static EncoderInput item(String hash) {
        return new EncoderInput(hash, "image", 2, 10, hash.getBytes(StandardCharsets.UTF_8));
    }

    /// Without a request, and while the scheduler thread rests.
    @Test
    void opensItAgainWithoutARequest() {
        try (var engine = Engine.open(with(LoadFailurePolicy.FAIL, true)).start()) {
            kv.throwIn = "beginStep";
            assertThat(
                            engine.submit(request(prompt(1, 23), 5))
                                    .await(Deadline.in(Duration.ofSeconds(40)))
                                    .orElseThrow())
                    .isInstanceOf(Outcome.Finished.class);
            var limit = Deadline.in(Duration.ofSeconds(40));
            while (engine.stats().counters().getOrDefault("connectors_reopened", 0L) == 0
                    || !engine.stats().degraded().isEmpty()) {
                assertThat(limit.passed()).as("%s", engine.stats()).isFalse();
                LockSupport.parkNanos(1_000_000);
            }
        }
    }

    /// The restart opens everything; what the recovery had begun is closed.
    @Test
    void aLostWorkerWhileAConnectorIsOffStartsEverythingAgain() {
        for (int steps = 0; steps < 6; steps++) {
            kv.calls.clear();
            try (var engine = Engine.open(with(LoadFailurePolicy.RECOMPUTE, true))) {
                run(engine, request(prompt(1, 23), 1));
                kv.throwIn = "beginStep";
                var running = engine.submit(request(prompt(1, 23), 15));
                await(engine, () -> !engine.stats().degraded().isEmpty());
                for (int i = 0; i < steps; i++) {
                    engine.step();
                    LockSupport.parkNanos(5_000_000); // so that it is in another state each time
                }
                threads.running().get(1).kill();
                assertThat(finished(engine, running).tokens())
                        .isEqualTo(reference(prompt(1, 23), 15));
                await(
                        engine,
                        () -> engine.stats().counters().getOrDefault("worker_restarts", 0L) == 1);
                await(engine, () -> engine.stats().degraded().isEmpty());
                assertThat(run(engine, request(prompt(1, 23), 5)).tokens())
                        .isEqualTo(reference(prompt(1, 23), 5));
                assertWhole(engine);
            }
            assertThat(calls("openScheduler")).isEqualTo(calls("closeScheduler"));
            assertThat(threads.running()).isEmpty();
        }
    }

    @Test
    void closesWhileAConnectorIsOff() {
        for (int steps = 0; steps < 6; steps++) {
            kv.calls.clear();
            try (var engine =
                    Engine.open(
                            with(LoadFailurePolicy.FAIL, false)
                                    .connectorPause(Duration.ofNanos(1)))) {
                run(engine, request(prompt(1, 23), 1));
                kv.throwIn = "beginStep";
                await(engine, () -> !engine.stats().degraded().isEmpty());
                for (int i = 0; i < steps; i++) {
                    engine.step();
                }
            }
            assertThat(calls("openScheduler")).isEqualTo(calls("closeScheduler"));
            for (int rank = 0; rank < 2; rank++) {
                assertThat(calls("openWorker " + rank)).isEqualTo(calls("closeWorker " + rank));
            }
        }
    }
}
