// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.telemetry.StatsTotals;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.observe.Stats;
import io.kvferry.tck.faults.ScriptedConnector;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// A child that had a defect is off, says so, and is opened again, as an engine does with its own
/// connectors.
class ChildRecoveryTest {
    private static final String AT_ONCE = "\"reopen_pause\": 0,";

    private final LeasingConnector leasing = new LeasingConnector("L");
    private final ScriptedConnector scripted =
            new ScriptedConnector("S", ConnectorCapabilities.of(Feature.ASYNC_LOAD));
    private final Rig.Request request = new Rig.Request("r", 40);
    private final StatsTotals totals = new StatsTotals();
    private Stats stats = Stats.EMPTY;

    private Rig rig(String options) {
        return new Rig(2, Rig.multi(options, "L", "S"), leasing, scripted);
    }

    private static String degraded(Rig rig) {
        return ((SchedulerHalf.Composite) rig.scheduler).degraded();
    }

    private void step(Rig rig) {
        rig.step();
        totals.add(StatsTotals.SCHEDULER, rig.scheduler.drainStats());
        stats = totals.sum();
    }

    private void await(Rig rig, BooleanSupplier done) {
        var limit = Deadline.in(Duration.ofSeconds(30));
        while (!done.getAsBoolean() && !limit.passed()) {
            step(rig);
            LockSupport.parkNanos(100_000);
        }
        assertThat(done.getAsBoolean()).as("%s; %s", degraded(rig), leasing.calls).isTrue();
    }

    private void awaitOn(Rig rig) {
        await(rig, () -> degraded(rig).isEmpty());
    }

    private long calls(String call) {
        return leasing.calls.stream().filter(each -> each.equals(call)).count();
    }

    private void breakOnce(Rig rig, String call) {
        leasing.brokenCall = call;
        await(rig, () -> !degraded(rig).isEmpty());
        leasing.brokenCall = "";
    }

    @Test
    void opensAChildAgainWhoseWorkerHalfThrew() {
        var pool = new TestPool();
        try (var rig = rig(AT_ONCE)) {
            rig.scheduler.bindBlockPool(pool);
            rig.scheduler.onRequest(request);
            var lease = TransferId.save("r", 1);
            leasing.lease(lease, 3);
            breakOnce(rig, "endStep");
            assertThat(degraded(rig)).contains("MultiConnector/L", "injected into endStep");

            awaitOn(rig);
            assertThat(pool.leased()).as("nobody else would close it").isEmpty();
            assertThat(calls("openScheduler")).isEqualTo(2);
            assertThat(calls("openWorker")).isEqualTo(4);
            assertThat(calls("onRequest r")).isEqualTo(2);
            assertThat(calls("onHandshakes L1")).isEqualTo(2);
            leasing.calls.clear();
            rig.scheduled.add(request.scheduled(0, 8));
            step(rig);
            rig.scheduled.add(request.scheduled(8, 8));
            step(rig);
            assertThat(calls("onAllocated")).as("of blocks that it had before").isEqualTo(1);

            leasing.lease(lease, 3);
            step(rig);
            rig.revoke(lease.forChild("L#2"));
            assertThat(rig.step().completions())
                    .as("the same id anew")
                    .containsExactly(
                            new Completion(
                                    lease.forChild("L#2"),
                                    Completion.ALL_RANKS,
                                    new Completion.Revoked()));
            assertThat(stats.counters().getOrDefault("L/multi_broken", 0L)).isEqualTo(1);
            assertThat(stats.counters().getOrDefault("L/multi_reopened", 0L)).isEqualTo(1);
            assertThat(stats.gauges().getOrDefault("L/multi_off", 0L)).isZero();
        }
        assertThat(calls("close scheduler")).isEqualTo(1);
        assertThat(calls("close worker")).isEqualTo(2);
    }

    @ParameterizedTest
    @ValueSource(strings = {"openScheduler", "openWorker", "registerRegions", "onHandshakes"})
    void triesAgainUntilTheChildCanBeOpened(String method) {
        try (var rig = rig(AT_ONCE)) {
            breakOnce(rig, "beginStep");
            leasing.calls.clear();
            leasing.brokenCall = method;
            await(
                    rig,
                    () ->
                            leasing.calls.stream().filter(each -> each.startsWith(method)).count()
                                    > 6);
            assertThat(degraded(rig)).contains("MultiConnector/L");
            leasing.brokenCall = "";
            awaitOn(rig);
            assertThat(stats.counters().getOrDefault("L/multi_broken", 0L)).isEqualTo(1);
            assertThat(stats.counters().getOrDefault("L/multi_reopened", 0L)).isEqualTo(1);
        }
    }

    @Test
    void givesUpASchedulerHalfThatThrowsAgainAndAgain() {
        try (var rig = rig(AT_ONCE)) {
            breakOnce(rig, "buildPlan");
            assertThat(degraded(rig)).contains("too many defects", "injected into buildPlan");
            awaitOn(rig);
            assertThat(calls("openScheduler")).isEqualTo(2);
        }
    }

    /// The completions in the report are lost; nothing repeats them.
    @Test
    void givesUpACompositeThatCouldNotSettleAReport() {
        var settles = new AtomicInteger();
        var provider = composite(() -> settles.incrementAndGet() == 3);
        try (var rig = new Rig(2, Rig.multi(AT_ONCE, "L", "S"), provider, scripted)) {
            await(rig, () -> !degraded(rig).isEmpty());
            assertThat(settles).hasValue(3);
            assertThat(degraded(rig)).contains("could not be settled");
            awaitOn(rig);
            assertThat(calls("openScheduler")).isEqualTo(2);
        }
    }

    /// The leasing connector as one that consists of others.
    private KvConnectorProvider composite(BooleanSupplier fails) {
        return (KvConnectorProvider)
                Proxy.newProxyInstance(
                        getClass().getClassLoader(),
                        new Class<?>[] {KvConnectorProvider.class},
                        (_, method, arguments) -> {
                            var result = method.invoke(leasing, arguments);
                            return result instanceof SchedulerConnector half
                                    ? composite(half, fails)
                                    : result;
                        });
    }

    private static Object composite(SchedulerConnector half, BooleanSupplier fails) {
        return Proxy.newProxyInstance(
                ChildRecoveryTest.class.getClassLoader(),
                new Class<?>[] {SchedulerConnector.class, SchedulerHalf.Composite.class},
                (_, method, arguments) ->
                        switch (method.getName()) {
                            case "settle" -> {
                                if (fails.getAsBoolean()) {
                                    throw new OutOfMemoryError("says the test");
                                }
                                yield arguments[0];
                            }
                            case "degraded" -> "";
                            case "delivered" -> List.of();
                            default -> method.invoke(half, arguments);
                        });
    }

    @Test
    void doesNotCallAChildThatIsOff() {
        try (var rig = rig("\"reopen_pause\": 60,")) {
            breakOnce(rig, "endStep");
            step(rig);
            leasing.calls.clear();
            rig.admit(request, 0);
            step(rig);
            assertThat(leasing.calls).isEmpty();
            assertThat(stats.gauges().getOrDefault("L/multi_off", 0L)).isEqualTo(1);
        }
        assertThat(leasing.calls).isEmpty();
    }

    @Test
    void opensTheChildOfAChildAgain() {
        var inner =
                """
                {"kv_connector": "MultiConnector", "name": "inner", "kv_connector_extra_config":
                 {"reopen_pause": 0, "connectors": [{"kv_connector": "L"}]}}\
                """;
        try (var rig = new Rig(2, Rig.multi("", inner, "S"), leasing, scripted)) {
            breakOnce(rig, "endStep");
            assertThat(degraded(rig)).contains("MultiConnector/inner/L").doesNotContain("S is off");
            awaitOn(rig);
            assertThat(calls("openScheduler")).isEqualTo(2);
            assertThat(stats.counters().getOrDefault("inner/L/multi_reopened", 0L)).isEqualTo(1);
        }
    }

    /// The ranks and the siblings step on. What the child has open has not ended until it is
    /// closed, since its threads may touch the blocks.
    @Test
    void stepsOnWhileAChildHangsInItsClose() {
        var pool = new TestPool();
        leasing.closing = new CountDownLatch(1);
        try (var rig = rig(AT_ONCE + "\"close_grace\": \"5ms\",")) {
            rig.scheduler.bindBlockPool(pool);
            rig.scheduler.onRequest(request);
            var lease = TransferId.save("r", 1);
            leasing.lease(lease, 3);
            step(rig);
            breakOnce(rig, "endStep");
            await(rig, () -> degraded(rig).contains("still being closed on ranks 0, 1"));
            rig.revoke(lease.forChild("L"));
            for (int i = 0; i < 20; i++) {
                assertThat(rig.step().completions()).isEmpty();
            }
            assertThat(pool.leased()).isNotEmpty();
            assertThat(calls("openScheduler")).isEqualTo(1);
            assertThat(stats.counters().getOrDefault("L/multi_unclosed", 0L)).isEqualTo(1);
            assertThat(degraded(rig)).contains("MultiConnector/L", "injected into endStep");

            leasing.closing.countDown();
            awaitOn(rig);
            assertThat(pool.leased()).isEmpty();
            assertThat(calls("openScheduler")).isEqualTo(2);
        } finally {
            leasing.closing.countDown();
        }
        assertThat(calls("close worker")).isEqualTo(4);
    }

    /// A composite that is closed itself says that it has not finished, and is closed again until
    /// it has.
    @Test
    void stepsOnWhileTheChildOfAChildHangsInItsClose() {
        leasing.closing = new CountDownLatch(1);
        var inner =
                """
                {"kv_connector": "MultiConnector", "name": "inner", "kv_connector_extra_config":
                 {"reopen_pause": 0, "close_grace": "5ms", "connectors": [{"kv_connector": "L"}]}}\
                """;
        try (var rig = new Rig(2, Rig.multi("", inner, "S"), leasing, scripted)) {
            breakOnce(rig, "beginStep");
            await(rig, () -> degraded(rig).contains("still being closed on ranks 0, 1"));
            assertThat(degraded(rig)).contains("MultiConnector/inner/L");
            leasing.closing.countDown();
            awaitOn(rig);
        } finally {
            leasing.closing.countDown();
        }
    }

    /// The ranks step on meanwhile. What is opened too late is closed again, before another
    /// attempt.
    @Test
    void doesNotWaitForARankThatDoesNotGetItOpen() {
        try (var rig = rig(AT_ONCE + "\"reopen_limit\": \"20ms\",")) {
            leasing.gate = new CountDownLatch(1);
            breakOnce(rig, "endStep");
            await(rig, () -> degraded(rig).contains("not every rank has opened its half"));
            await(rig, () -> calls("interrupted") == 2);
            leasing.gate.countDown();
            awaitOn(rig);
        }
        assertThat(calls("openScheduler")).isEqualTo(calls("close scheduler"));
        assertThat(calls("openWorker")).isEqualTo(calls("close worker"));
    }
}
