// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.config;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.reference;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.testkit.ScriptedKv;
import io.kvferry.engine.testkit.TestWorkerHost;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.observe.TraceEvent;

import org.junit.jupiter.api.Test;

import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Worker ranks in child JVMs.
class ChildProcessTest {
    /// For one wait on a busy machine.
    private static Deadline soon() {
        return Deadline.in(Duration.ofSeconds(50));
    }

    private static Workers children(String hostConfig) {
        return new Workers.ChildProcesses(
                List.of("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"), hostConfig);
    }

    private static List<ProcessHandle> childJvms() {
        return ProcessHandle.current().children().filter(ProcessHandle::isAlive).toList();
    }

    @Test
    void computesLoadsAndSavesLikeInOneProcess() {
        var kv = new ScriptedKv();
        kv.announced = true; // the bytes are in the children
        try (var engine =
                Engine.open(
                        config(Map.of("verify", "all", "groups", 2))
                                .blockCount(128)
                                .worldSize(2)
                                .workers(children(""))
                                .kvConnector(kv, kv.config(LoadFailurePolicy.FAIL)))) {
            assertThat(kv.handshakes)
                    .extracting(payload -> payload.reader().i32())
                    .containsExactly(0, 1);
            assertThat(run(engine, request(prompt(1, 23), 10)).tokens())
                    .isEqualTo(reference(prompt(1, 23), 10));
            assertThat(engine.resetCaches(soon())).isTrue();
            var again = run(engine, request(prompt(1, 23), 10));
            assertThat(again.tokens()).isEqualTo(reference(prompt(1, 23), 10));
            assertThat(again.usage().external())
                    .singleElement()
                    .satisfies(share -> assertThat(share.tokens()).isEqualTo(20));
            assertThat(childJvms()).hasSize(2);
        }
        assertThat(childJvms()).isEmpty();
    }

    /// It says so on its standard output, which is the link to its engine.
    @Test
    void aWorkerStartsWhoseJvmWarnsOfAnAotCacheThatDoesNotFit() throws Exception {
        var cache = Files.createTempFile("kvferry", ".aot");
        var workers = new Workers.ChildProcesses(List.of("-Xmx128m", "-XX:AOTCache=" + cache), "");
        try (var engine = Engine.open(config(Map.of()).workers(workers))) {
            assertThat(run(engine, request(prompt(1, 23), 10)).tokens())
                    .isEqualTo(reference(prompt(1, 23), 10));
        } finally {
            Files.delete(cache);
        }
    }

    @Test
    void eventsOfWorkerHalvesReachTheEnginesSink() throws InterruptedException {
        var events = new LinkedBlockingQueue<TraceEvent>();
        var kv = new ScriptedKv();
        var host = HostServices.NONE.with(events::add, () -> {});
        try (var engine =
                Engine.open(
                        config(Map.of())
                                .worldSize(2)
                                .host(host)
                                .workers(children(TestWorkerHost.EVENTFUL))
                                .kvConnector(kv, kv.config(LoadFailurePolicy.FAIL)))) {
            var wanted = new ArrayList<>(TestWorkerHost.eventsBy("rank 0"));
            wanted.addAll(TestWorkerHost.eventsBy("rank 1"));
            var limit = soon();
            while (!wanted.isEmpty()) {
                var event = events.poll(limit.remainingNanos(), TimeUnit.NANOSECONDS);
                assertThat(event).as("still wanted: " + wanted).isNotNull();
                wanted.remove(event);
            }
            assertThat(engine.stats().health()).isEmpty();
        }
    }

    /// JSON null as well: in a recipe for MultiConnector, `"kv_port": null` is a way to write the
    /// default.
    @Test
    void aWorkerIsConfiguredLikeItsEngine() throws InterruptedException {
        var child = new LinkedHashMap<String, Object>();
        child.put("kv_connector", "A");
        child.put("kv_port", null);
        var nested = Arrays.asList(child, null, 1L, true, "x");
        var kv = new ScriptedKv();
        kv.options = TestWorkerHost.NESTED;
        var config =
                ConnectorConfig.of(kv.name(), KvRole.BOTH, "engine-1", Map.of("nested", nested));
        var events = new LinkedBlockingQueue<TraceEvent>();
        try (var engine =
                Engine.open(
                        config(Map.of())
                                .host(HostServices.NONE.with(events::add, () -> {}))
                                .workers(children(TestWorkerHost.CONFIGURED))
                                .kvConnector(kv, config))) {
            assertThat(events.poll(soon().remainingNanos(), TimeUnit.NANOSECONDS))
                    .isEqualTo(TestWorkerHost.configured(config));
            assertThat(run(engine, request(prompt(1, 9), 2)).tokens()).hasSize(2);
        }
    }

    @Test
    void failsEveryRequestWhenAWorkerDies() {
        try (var engine =
                Engine.open(
                                config(Map.of("step_time", "20ms"))
                                        .worldSize(2)
                                        .workers(children(""))
                                        .workerRestarts(0, Duration.ofMinutes(1)))
                        .start()) {
            var first = engine.submit(request(prompt(1, 23), 200));
            var second = engine.submit(request(prompt(2, 23), 200));
            assertThat(first.next(soon())).isPresent();
            childJvms().getFirst().destroyForcibly();

            for (var handle : List.of(first, second)) {
                assertThat(handle.await(soon()).orElseThrow())
                        .isInstanceOfSatisfying(
                                Outcome.Failed.class,
                                failed ->
                                        assertThat(failed.failure().code())
                                                .isEqualTo(ErrorCode.PEER_LOST));
            }
            assertThat(engine.stats().health()).contains("PEER_LOST");
            assertThatThrownBy(() -> engine.submit(request(prompt(1, 5), 1)))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.UNAVAILABLE));
        }
        assertThat(childJvms()).isEmpty();
    }

    /// kill -9 of one of two ranks, twice, in the middle of everything.
    private static long restarts(Engine engine) {
        return engine.stats().counters().getOrDefault("worker_restarts", 0L);
    }

    private static String troubles(Engine engine) {
        return engine.stats().health() + engine.stats().degraded();
    }

    @Test
    void startsWorkersAgainAndGeneratesTheSameTokens() {
        var kv = new ScriptedKv();
        kv.announced = true; // the bytes are in the children, and lost with them
        try (var engine =
                Engine.open(
                                config(Map.of("verify", "all", "step_time", "5ms"))
                                        .worldSize(2)
                                        .workers(children(""))
                                        .kvConnector(kv, kv.config(LoadFailurePolicy.RECOMPUTE)))
                        .start()) {
            for (int lost = 1; lost <= 2; lost++) {
                var first = engine.submit(request(prompt(1, 23), 60));
                var second = engine.submit(request(prompt(2, 23), 60));
                assertThat(first.next(soon())).isPresent();
                var before = childJvms();
                before.get(lost % 2).destroyForcibly();

                for (var each : Map.of(1, first, 2, second).entrySet()) {
                    assertThat(each.getValue().await(soon()).orElseThrow())
                            .isInstanceOfSatisfying(
                                    Outcome.Finished.class,
                                    finished ->
                                            assertThat(finished.tokens())
                                                    .isEqualTo(
                                                            reference(
                                                                    prompt(each.getKey(), 23),
                                                                    60)));
                }
                // Both may have ended before the worker did.
                var limit = soon();
                while (restarts(engine) < lost || !troubles(engine).isEmpty()) {
                    assertThat(limit.passed())
                            .as("%d restarts, %s", restarts(engine), troubles(engine))
                            .isFalse();
                    LockSupport.parkNanos(1_000_000);
                }
                assertThat(restarts(engine)).isEqualTo(lost);
                assertThat(childJvms()).hasSize(2).doesNotContainAnyElementsOf(before);
            }
        }
        assertThat(childJvms()).isEmpty();
    }

    /// Whatever state a request is in, and whatever its connector had open: a load, a hold, a
    /// lease.
    @Test
    void leavesNothingOpenWhenAWorkerDies() {
        var kv = new ScriptedKv();
        kv.announced = true;
        kv.lease = true;
        kv.holdFor = Duration.ofMinutes(10);
        try (var engine =
                Engine.open(
                        config(Map.of())
                                .worldSize(2)
                                .workers(children(TestWorkerHost.SILENT))
                                .workerRestarts(0, Duration.ofMinutes(1))
                                .kvConnector(kv, kv.config(LoadFailurePolicy.FAIL)))) {
            run(engine, request(prompt(1, 23), 1));
            kv.lease = false;
            kv.hold = true;
            run(engine, request(prompt(2, 23), 1));
            assertThat(engine.resetCaches(soon())).isTrue();
            var loading = engine.submit(request(prompt(1, 23), 5));
            var aborted = engine.submit(request(prompt(2, 23), 5));
            engine.step();
            aborted.abort(); // its load goes on: the blocks wait for the answer
            var running = engine.submit(request(prompt(3, 23), 5));
            engine.step();
            assertThat(engine.stats().leasedBlocks()).isPositive();
            assertThat(engine.stats().held()).isPositive();
            assertThat(engine.stats().loading()).isEqualTo(1);
            assertThat(engine.stats().running()).isEqualTo(1);

            childJvms().getFirst().destroyForcibly();
            var waiting = engine.submit(request(prompt(4, 23), 5));
            var limit = Deadline.in(Duration.ofSeconds(30));
            while (engine.stats().health().isEmpty() && !limit.passed()) {
                engine.step();
            }

            for (var handle : List.of(loading, running, waiting)) {
                assertThat(handle.await(Deadline.in(Duration.ZERO)).orElseThrow())
                        .isInstanceOfSatisfying(
                                Outcome.Failed.class,
                                failed ->
                                        assertThat(failed.failure().code())
                                                .isEqualTo(ErrorCode.PEER_LOST));
            }
            var stats = engine.stats();
            assertThat(stats.health()).contains("PEER_LOST").contains("worker process of rank");
            assertThat(stats.freeBlocks()).isEqualTo(stats.totalBlocks());
            assertThat(stats.leasedBlocks() + stats.held() + stats.quarantinedBlocks()).isZero();
            engine.checkInvariants();
            assertThat(childJvms()).as("the other rank").isEmpty();
        }
    }

    @Test
    void killsAWorkerThatHangs() {
        try (var engine =
                Engine.open(
                                config(Map.of("step_time", "30s"))
                                        .workers(children(""))
                                        .workerRestarts(0, Duration.ofMinutes(1))
                                        .stepLimit(Duration.ofSeconds(3)))
                        .start()) {
            var outcome = engine.submit(request(prompt(1, 23), 5)).await(soon()).orElseThrow();
            assertThat(outcome)
                    .isInstanceOfSatisfying(
                            Outcome.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.TIMEOUT));
            assertThat(engine.stats().health()).contains("TIMEOUT").contains("killed");
        }
    }

    @Test
    void failsToOpenWithTheWorkersOwnReason() {
        var kv = new ScriptedKv();
        assertThatThrownBy(() ->
                        Engine.open(
                                config(Map.of())
                                        .workers(children("registerRegions"))
                                        .kvConnector(kv, kv.config(LoadFailurePolicy.FAIL))))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("scripted: registerRegions");
        assertThat(childJvms()).isEmpty();
    }

    @Test
    void goesOnWithoutAConnectorThatThrowsInAWorker() {
        var kv = new ScriptedKv();
        try (var engine =
                Engine.open(
                        config(Map.of())
                                .workers(children("endStep"))
                                .kvConnector(kv, kv.config(LoadFailurePolicy.FAIL)))) {
            assertThat(run(engine, request(prompt(1, 23), 5)).tokens())
                    .isEqualTo(reference(prompt(1, 23), 5));
            assertThat(engine.stats().counters().getOrDefault("connector_defects", 0L))
                    .isEqualTo(1);
        }
    }
}
