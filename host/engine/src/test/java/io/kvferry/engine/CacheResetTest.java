// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EncoderTest.encoding;
import static io.kvferry.engine.EncoderTest.item;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.reference;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.testkit.ScriptedEc;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;

/// A cache is reset because what was computed or stored before is wrong from now on, for example
/// after new weights: nothing of it may be found afterwards, also not what was on its way.
class CacheResetTest extends ConnectedEngine {
    private static void reset(Engine engine) {
        assertThat(engine.resetCaches(Deadline.in(Duration.ofSeconds(30)), false)).isTrue();
    }

    private static int found(Engine engine, int[] prompt) {
        return run(engine, request(prompt, 1)).usage().localTokens();
    }

    @Test
    void whatWasOnItsWayIsNotCachedAfterwards() {
        store(prompt(1, 23));
        kv.delay = 5;
        kv.save = false;
        try (var engine = open()) {
            var loading = engine.submit(request(prompt(1, 23), 5));
            engine.step();
            engine.step();
            assertThat(engine.stats().loading()).isEqualTo(1);
            reset(engine);
            var outcome = (Outcome.Finished) outcome(engine, loading);
            assertThat(outcome.tokens()).isEqualTo(reference(prompt(1, 23), 5));
            kv.load = false;
            assertThat(found(engine, prompt(1, 23))).isZero();
            assertThat(found(engine, prompt(1, 23))).isEqualTo(20);
            assertEmpty(engine);
        }
    }

    @Test
    void whatARunningRequestComputesIsNotCachedAfterwards() {
        kv.save = false;
        try (var engine = open()) {
            var running = engine.submit(request(prompt(1, 23), 30));
            engine.step();
            engine.step();
            assertThat(engine.stats().running()).isEqualTo(1);
            reset(engine);
            var tokens = ((Outcome.Finished) outcome(engine, running)).tokens();
            assertThat(found(engine, prompt(1, 23))).isZero();
            var whole = Arrays.copyOf(prompt(1, 23), 53);
            System.arraycopy(tokens, 0, whole, 23, 30);
            // so far that what the first published after the reset would follow
            assertThat(found(engine, Arrays.copyOf(whole, 29))).isEqualTo(20);
            assertThat(found(engine, whole)).as("without what it published").isEqualTo(28);
            assertEmpty(engine);
        }
    }

    @Test
    void aRequestThatStartsOverAfterwardsIsCachedAgain() {
        kv.save = false;
        try (var engine = open()) {
            var first = engine.submit(request(prompt(1, 100), 40).withPriority(1));
            engine.step();
            reset(engine);
            var second = engine.submit(request(prompt(2, 100), 40)); // needs what the first has
            assertThat(outcome(engine, second)).isInstanceOf(Outcome.Finished.class);
            var outcome = (Outcome.Finished) outcome(engine, first);
            assertThat(outcome.tokens()).isEqualTo(reference(prompt(1, 100), 40));
            assertThat(outcome.usage().preemptions()).isPositive();
            assertThat(found(engine, prompt(1, 100))).isEqualTo(96);
            assertEmpty(engine);
        }
    }

    private static void resetAll(Engine engine) {
        assertThat(engine.resetCaches(Deadline.in(Duration.ofSeconds(30)), true)).isTrue();
    }

    /// Else the connector would go on to store what was computed before.
    @Test
    void requestsThatRunStartOverWhenTheConnectorIsReset() {
        kv.resettable = true;
        try (var engine = open()) {
            var running = engine.submit(request(prompt(1, 23), 30));
            engine.step();
            engine.step();
            assertThat(engine.stats().running()).isEqualTo(1);
            kv.load = false;
            resetAll(engine);
            var outcome = (Outcome.Finished) outcome(engine, running);
            assertThat(outcome.tokens()).isEqualTo(reference(prompt(1, 23), 30));
            assertThat(outcome.usage().preemptions()).isEqualTo(1);
            assertThat(found(engine, prompt(1, 23))).as("computed since").isEqualTo(20);
            assertEmpty(engine);
        }
    }

    @Test
    void aRequestThatLoadsDuringAResetOfTheConnectorComputesAnew() {
        store(prompt(1, 23));
        kv.resettable = true;
        kv.delay = 5;
        kv.save = false;
        try (var engine = open()) {
            var loading = engine.submit(request(prompt(1, 23), 5));
            engine.step();
            engine.step();
            assertThat(engine.stats().loading()).isEqualTo(1);
            kv.load = false;
            resetAll(engine);
            var outcome = (Outcome.Finished) outcome(engine, loading);
            assertThat(outcome.tokens()).isEqualTo(reference(prompt(1, 23), 5));
            assertThat(outcome.usage().external()).isEmpty();
            assertEmpty(engine);
        }
    }

    @Test
    void anItemUnderAHoldKeepsItsRowsAndNobodyWaitsForThem() {
        var ec = new ScriptedEc(new ConcurrentHashMap<>());
        ec.hold = true;
        ec.holdTime = Duration.ofHours(1);
        try (var engine =
                Engine.open(
                        encoding(100)
                                .encodeOnly(true)
                                .holdLimit(Duration.ofHours(1))
                                .revokeLimit(Duration.ofMillis(50))
                                .closeLimit(Duration.ofMillis(50))
                                .ecConnector(ec, ec.config()))) {
            var items = request(prompt(1, 40), 5).withItems(List.of(item("a", 2, 10)));
            run(engine, items);
            assertThat(engine.stats().held()).isEqualTo(1);
            int free = engine.stats().encoderFree();
            reset(engine);
            ec.store.clear();
            run(engine, items);
            engine.checkInvariants();
            assertThat(engine.stats().counters()).containsEntry("items_encoded", 2L);
            assertThat(engine.stats().held()).isEqualTo(2);
            assertThat(engine.stats().encoderFree()).isEqualTo(free - 10);
        }
    }

    @Test
    void anItemInUseIsDroppedWithItsLastReference() {
        var ec = new ScriptedEc(new ConcurrentHashMap<>());
        ec.hold = true; // for ten milliseconds: see ScriptedEc
        try (var engine =
                Engine.open(encoding(100).encodeOnly(true).ecConnector(ec, ec.config()))) {
            var items = request(prompt(1, 40), 5).withItems(List.of(item("a", 2, 10)));
            run(engine, items);
            assertThat(engine.stats().held()).isEqualTo(1);
            reset(engine);
            ec.store.clear();
            run(engine, items);
            assertThat(engine.stats().counters()).containsEntry("items_encoded", 2L);
        }
    }

    /// The calling thread steps until the connector has saved what was on its way.
    @Test
    void stepsItselfWhereNoSchedulerThreadDoes() {
        kv.resettable = true;
        kv.resetReports = 3;
        try (var engine = open()) {
            run(engine, request(prompt(1, 23), 1));
            assertThat(engine.resetCaches(Deadline.in(Duration.ofSeconds(30)), true)).isTrue();
            kv.resetReports = Integer.MAX_VALUE;
            assertThat(engine.resetCaches(Deadline.in(Duration.ofMillis(20)), true))
                    .as("at the deadline")
                    .isFalse();
            assertEmpty(engine);
        }
    }
}
