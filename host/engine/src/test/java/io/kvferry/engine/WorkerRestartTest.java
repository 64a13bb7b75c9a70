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
import io.kvferry.engine.worker.WorkerLauncher;
import io.kvferry.engine.worker.process.ThreadWorkers;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.TraceEvent;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// What becomes of an engine that loses workers; over the transport of worker processes, in
/// threads. [ChildProcessTest] does it with processes.
class WorkerRestartTest {
    private static final int BLOCKS = 64;
    private final ScriptedKv kv = new ScriptedKv();
    private final ScriptedEc ec = new ScriptedEc(new ConcurrentHashMap<>());
    private final ThreadWorkers workers = new ThreadWorkers(_ -> new KvWorkerHost(kv, ec));
    private final List<TraceEvent> events = new CopyOnWriteArrayList<>();

    private EngineConfig engineOf(int ranks, WorkerLauncher launcher) {
        return config(Map.of("verify", "all", "embedding_width", 16))
                .blockCount(BLOCKS)
                .worldSize(ranks)
                .host(HostServices.NONE.with(events::add, () -> {}))
                .workers(new Workers.Launched(launcher, ""));
    }

    private EngineConfig with(LoadFailurePolicy policy) {
        return engineOf(2, workers).kvConnector(kv, kv.config(policy));
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

    private static Outcome outcome(Engine engine, RequestHandle handle) {
        await(engine, () -> handle.await(Deadline.in(Duration.ZERO)).isPresent());
        return handle.await(Deadline.in(Duration.ZERO)).orElseThrow();
    }

    private static int[] tokens(Engine engine, RequestHandle handle) {
        var outcome = outcome(engine, handle);
        assertThat(outcome).isInstanceOf(Outcome.Finished.class);
        return ((Outcome.Finished) outcome).tokens();
    }

    private static void assertLost(Outcome outcome) {
        assertThat(outcome)
                .isInstanceOfSatisfying(
                        Outcome.Failed.class,
                        failed ->
                                assertThat(failed.failure().code()).isEqualTo(ErrorCode.PEER_LOST));
    }

    private void assertWhole(Engine engine) {
        engine.step();
        engine.checkInvariants();
        var stats = engine.stats();
        assertThat(stats.freeBlocks()).as("%s", stats).isEqualTo(stats.totalBlocks());
        assertThat(stats.leasedBlocks() + stats.held() + stats.quarantinedBlocks()).isZero();
        assertThat(stats.health()).isEmpty();
        assertThat(stats.degraded()).isEmpty();
        assertThat(workers.running()).hasSize(2);
    }

    private void kill(int rank) {
        workers.running().get(rank).kill();
    }

    @ParameterizedTest
    @EnumSource(LoadFailurePolicy.class)
    void recomputesOrFailsWhatTheWorkersHad(LoadFailurePolicy policy) {
        for (int rank = 0; rank < 2; rank++) {
            kv.calls.clear();
            try (var engine = Engine.open(with(policy).maxRunning(2))) {
                tokens(engine, engine.submit(request(prompt(1, 23), 1)));
                kv.store.clear(); // so that only the prefix cache could have these blocks
                var cleared = new ArrayList<CacheEvent>();
                engine.onCacheEvent(cleared::add);
                var running = engine.submit(request(prompt(1, 23), 12));
                var other = engine.submit(request(prompt(2, 23), 12));
                var waiting = engine.submit(request(prompt(3, 23), 12));
                for (int i = 0; i < 4; i++) {
                    engine.step();
                }
                kill(rank);
                await(engine, () -> !engine.stats().degraded().isEmpty());
                assertThat(engine.stats().health()).isEmpty();
                var submitted = engine.submit(request(prompt(4, 23), 12));
                await(engine, () -> engine.stats().degraded().isEmpty());

                if (policy == LoadFailurePolicy.RECOMPUTE) {
                    assertThat(tokens(engine, running)).isEqualTo(reference(prompt(1, 23), 12));
                    assertThat(tokens(engine, other)).isEqualTo(reference(prompt(2, 23), 12));
                } else {
                    assertLost(outcome(engine, running));
                    assertLost(outcome(engine, other));
                }
                assertThat(tokens(engine, waiting)).isEqualTo(reference(prompt(3, 23), 12));
                assertThat(tokens(engine, submitted)).isEqualTo(reference(prompt(4, 23), 12));
                assertThat(cleared).anyMatch(event -> event instanceof CacheEvent.Cleared);
                // wrong bytes of the new memory would fail it
                assertThat(tokens(engine, engine.submit(request(prompt(1, 23), 12))))
                        .isEqualTo(reference(prompt(1, 23), 12));
                assertThat(engine.stats().counters().getOrDefault("worker_restarts", 0L))
                        .isEqualTo(1);
                assertThat(kv.calls)
                        .filteredOn(call -> call.endsWith("Scheduler"))
                        .containsExactly("openScheduler", "closeScheduler", "openScheduler");
                assertWhole(engine);
            }
            assertThat(workers.running()).isEmpty();
        }
    }

    /// A load, the load of a request that is gone, a hold, a lease: nobody answers for them.
    @Test
    void endsWhatConnectorsHadOpen() {
        try (var engine = Engine.open(with(LoadFailurePolicy.RECOMPUTE))) {
            kv.lease = true;
            kv.holdSteps = -1;
            tokens(engine, engine.submit(request(prompt(1, 23), 1)));
            kv.lease = false;
            kv.hold = true;
            tokens(engine, engine.submit(request(prompt(2, 23), 1)));
            kv.hold = false;
            assertThat(engine.resetCaches(Deadline.in(Duration.ofSeconds(60)))).isTrue();
            kv.onLoad = ScriptedKv.OnLoad.NEVER;
            kv.answerRevocations = false;
            var loading = engine.submit(request(prompt(1, 23), 5));
            var aborted = engine.submit(request(prompt(2, 23), 5));
            engine.step();
            aborted.abort();
            engine.step();
            var stats = engine.stats();
            assertThat(stats.leasedBlocks()).isPositive();
            assertThat(stats.held()).isPositive();
            assertThat(stats.loading()).isEqualTo(1);
            kill(1);
            await(engine, () -> !engine.stats().degraded().isEmpty());
            kv.onLoad = ScriptedKv.OnLoad.COMPLETE;

            assertThat(tokens(engine, loading)).isEqualTo(reference(prompt(1, 23), 5));
            kv.holdSteps = 1; // the same ids as before, which must not count as ended
            kv.hold = true;
            tokens(engine, engine.submit(request(prompt(3, 23), 2)));
            await(engine, () -> engine.stats().held() == 0);
            assertWhole(engine);
        }
    }

    @Test
    void forgetsEncoderItemsAndEncodesThemAnew() {
        var item = new EncoderInput("a", "image", 2, 10, "a".getBytes(StandardCharsets.UTF_8));
        var wanted = request(prompt(1, 40), 20).withItems(List.of(item));
        int[] expected;
        try (var engine = Engine.open(engineOf(1, workers))) {
            expected = tokens(engine, engine.submit(wanted));
        }
        try (var engine =
                Engine.open(
                        with(LoadFailurePolicy.RECOMPUTE)
                                .stepTokens(6)
                                .encoder(20, 20)
                                .ecConnector(ec, ec.config()))) {
            ec.hold = true;
            ec.silent = true; // the hold never ends
            tokens(
                    engine,
                    engine.submit(
                            request(prompt(2, 40), 1)
                                    .withItems(
                                            List.of(
                                                    new EncoderInput(
                                                            "b",
                                                            "image",
                                                            2,
                                                            10,
                                                            new byte[] {1})))));
            ec.silent = false;
            ec.hold = false;
            ec.store.clear();
            var running = engine.submit(wanted);
            engine.step(); // computes a part of the item's rows
            engine.step();
            kill(0);
            assertThat(tokens(engine, running)).isEqualTo(expected);
            assertThat(engine.stats().counters().getOrDefault("worker_restarts", 0L)).isEqualTo(1);
            assertThat(engine.stats().encoderFree()).isEqualTo(20);
            assertWhole(engine);
        }
    }

    @Test
    void noticesALossWithoutARequest() {
        try (var engine = Engine.open(with(LoadFailurePolicy.FAIL)).start()) {
            kill(1);
            var limit = Deadline.in(Duration.ofSeconds(40));
            while (engine.stats().counters().getOrDefault("worker_restarts", 0L) == 0
                    && !limit.passed()) {
                LockSupport.parkNanos(1_000_000);
            }
            var handle = engine.submit(request(prompt(1, 23), 5));
            assertThat(handle.await(Deadline.in(Duration.ofSeconds(40))).orElseThrow())
                    .isInstanceOf(Outcome.Finished.class);
        }
    }

    /// Such a request may be what ends them.
    @Test
    void failsARequestThatRunsWhenWorkersAreLostForTheSecondTime() {
        try (var engine = Engine.open(with(LoadFailurePolicy.RECOMPUTE))) {
            var handle = engine.submit(request(prompt(1, 23), 50));
            for (int i = 1; i <= 2; i++) {
                int lost = i;
                await(engine, () -> engine.stats().running() == 1);
                kill(0);
                await(
                        engine,
                        () -> engine.stats().counters().getOrDefault("workers_lost", 0L) == lost);
                await(engine, () -> engine.stats().degraded().isEmpty());
            }
            assertLost(outcome(engine, handle));
            assertWhole(engine);
        }
    }

    @Test
    void givesUpWhenWorkersAreLostTooOften() {
        try (var engine =
                Engine.open(
                        with(LoadFailurePolicy.FAIL).workerRestarts(2, Duration.ofMinutes(10)))) {
            for (int i = 1; i <= 2; i++) {
                int restarts = i;
                kill(0);
                engine.submit(request(prompt(1, 23), 5));
                await(
                        engine,
                        () ->
                                engine.stats().counters().getOrDefault("worker_restarts", 0L)
                                        == restarts);
            }
            kill(0);
            var last = engine.submit(request(prompt(1, 23), 5));
            assertLost(outcome(engine, last));
            assertThat(engine.stats().health()).contains("PEER_LOST");
            assertThat(workers.running()).isEmpty();
        }
    }

    /// The next attempt comes after a pause.
    @Test
    void triesAgainWhenAWorkerDiesWhileItStarts() {
        var launches = new AtomicInteger();
        WorkerLauncher dying =
                rank -> {
                    int number = launches.incrementAndGet();
                    if (number == 5) {
                        throw new IOException("scripted: no room for another process");
                    }
                    var link = workers.launch(rank);
                    if (number == 4) {
                        link.kill(); // before it is ready
                    }
                    return link;
                };
        try (var engine =
                Engine.open(
                        engineOf(2, dying)
                                .kvConnector(kv, kv.config(LoadFailurePolicy.RECOMPUTE)))) {
            var handle = engine.submit(request(prompt(1, 23), 12));
            engine.step();
            kill(1);
            assertThat(tokens(engine, handle)).isEqualTo(reference(prompt(1, 23), 12));
            assertThat(engine.stats().counters().getOrDefault("workers_lost", 0L)).isEqualTo(3);
            assertThat(engine.stats().counters().getOrDefault("worker_restarts", 0L)).isEqualTo(1);
            assertWhole(engine);
        }
        assertThat(kv.calls.stream().filter(call -> call.equals("openScheduler")).count())
                .isEqualTo(kv.calls.stream().filter(call -> call.equals("closeScheduler")).count());
    }

    @Test
    void endsWithACodeWhenAConnectorCannotBeOpenedAgain() {
        try (var engine =
                Engine.open(
                        with(LoadFailurePolicy.FAIL).workerRestarts(1, Duration.ofMinutes(10)))) {
            kv.throwIn = "openScheduler";
            kill(0);
            var handle = engine.submit(request(prompt(1, 23), 5));
            assertThat(outcome(engine, handle)).isInstanceOf(Outcome.Failed.class);
            await(engine, () -> !engine.stats().health().isEmpty());
            assertThat(engine.stats().health()).contains("scripted: openScheduler");
        }
        assertThat(workers.running()).isEmpty();
    }

    /// Closing does not wait for workers that do not start.
    @Test
    void closesWhileWorkersStart() throws InterruptedException {
        var starting = new CountDownLatch(1);
        var launches = new AtomicInteger();
        WorkerLauncher slow =
                rank -> {
                    if (launches.incrementAndGet() > 2) {
                        starting.countDown();
                        try {
                            TimeUnit.SECONDS.sleep(60);
                        } catch (InterruptedException e) {
                            throw new IOException("interrupted", e);
                        }
                    }
                    return workers.launch(rank);
                };
        var engine =
                Engine.open(
                        engineOf(2, slow)
                                .closeLimit(Duration.ofMillis(100))
                                .kvConnector(kv, kv.config(LoadFailurePolicy.RECOMPUTE)));
        engine.start();
        var handle = engine.submit(request(prompt(1, 23), 2000 / 23));
        kill(0);
        assertThat(starting.await(40, TimeUnit.SECONDS)).isTrue();
        engine.close();
        assertThat(handle.await(Deadline.in(Duration.ofSeconds(60)))).isPresent();
        assertThat(launches).hasValue(3);
        assertThat(workers.running()).isEmpty();
        assertThat(kv.calls.stream().filter(call -> call.equals("openScheduler")).count())
                .isEqualTo(kv.calls.stream().filter(call -> call.equals("closeScheduler")).count());
    }
}
