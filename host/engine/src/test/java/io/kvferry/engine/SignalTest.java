// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.config;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.request;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.testkit.LateKv;
import io.kvferry.engine.testkit.ScriptedKv;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.LoadFailurePolicy;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.locks.LockSupport;

/// An engine that rests while transfers are open is woken by the worker halves: left to its own
/// clock it would look again after longer than the tests wait.
class SignalTest {
    private static final Duration NEVER = Duration.ofMinutes(10);

    private static EngineConfig resting() {
        var kv = new LateKv();
        return config(Map.of("verify", "none"))
                .idleLimit(NEVER)
                .loadLimit(NEVER)
                .closeLimit(Duration.ZERO)
                .kvConnector(kv, kv.config());
    }

    private static void serve(EngineConfig config) {
        try (var engine = Engine.open(config).start()) {
            var outcome =
                    engine.submit(request(prompt(1, 23), 2))
                            .await(Deadline.in(Duration.ofSeconds(60)))
                            .orElseThrow();
            assertThat(outcome)
                    .isInstanceOfSatisfying(
                            Outcome.Finished.class,
                            finished ->
                                    assertThat(finished.usage().external())
                                            .singleElement()
                                            .satisfies(share ->
                                                    assertThat(share.source())
                                                            .isEqualTo(LateKv.NAME)));
            awaitNothingHeld(engine);
            assertThat(engine.stats().freeBlocks()).isEqualTo(engine.stats().totalBlocks());
        }
    }

    private static void awaitNothingHeld(Engine engine) {
        var limit = Deadline.in(Duration.ofSeconds(60));
        while (engine.stats().freeBlocks() < engine.stats().totalBlocks() && !limit.passed()) {
            Thread.onSpinWait();
        }
    }

    @Test
    void aFinishedLoadAndAnEndedHoldWakeTheEngine() {
        serve(resting());
    }

    @Test
    void everyRankWakesTheEngine() {
        serve(resting().worldSize(2));
    }

    @Test
    void workerProcessesWakeTheEngine() {
        serve(
                resting()
                        .worldSize(2)
                        .workers(
                                new Workers.ChildProcesses(
                                        List.of(
                                                "-Xmx128m",
                                                "-XX:+UseSerialGC",
                                                "-XX:TieredStopAtLevel=1"),
                                        "")));
    }

    /// Work of the scheduler half that is due later, such as a heartbeat, is no step now; a half
    /// that asks for a step gets one, and work that is due is stepped for until it is done.
    @Test
    void workThatIsDueLaterIsNoStepNow() {
        var kv = new ScriptedKv();
        kv.work = Optional.of(Deadline.in(NEVER));
        try (var engine =
                Engine.open(
                                config(Map.of("verify", "none"))
                                        .kvConnector(kv, kv.config(LoadFailurePolicy.FAIL)))
                        .start()) {
            kv.wake.run();
            awaitSteps(kv, 1);
            LockSupport.parkNanos(100_000_000); // stepping by the clock would be a hundred steps
            long asked = steps(kv);
            assertThat(asked).isLessThan(5);
            kv.wake.run();
            awaitSteps(kv, asked + 1);
            kv.work = Optional.of(Deadline.in(Duration.ZERO));
            kv.wake.run();
            awaitSteps(kv, asked + 10);
            kv.work = Optional.empty();
            assertThat(engine.stats().counters().getOrDefault("connector_defects", 0L)).isZero();
        }
    }

    private static long steps(ScriptedKv kv) {
        return kv.calls.stream().filter(call -> call.startsWith("buildPlan")).count();
    }

    private static void awaitSteps(ScriptedKv kv, long count) {
        var limit = Deadline.in(Duration.ofSeconds(60));
        while (steps(kv) < count) {
            assertThat(limit.passed()).as("no " + count + " steps in time").isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }
}
