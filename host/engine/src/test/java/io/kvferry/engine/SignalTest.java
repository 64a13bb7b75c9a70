// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.config;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.request;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.testkit.LateKv;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.List;
import java.util.Map;

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
}
