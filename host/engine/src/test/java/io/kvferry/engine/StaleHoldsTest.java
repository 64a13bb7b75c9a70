// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.reference;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.observe.TraceEvent;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

/// Blocks of ended requests that are never fetched keep later requests from running: those requests
/// are refused in time, and only those.
@Timeout(120)
class StaleHoldsTest extends ConnectedEngine {
    private static final Duration SOON = Duration.ofMillis(1);
    private static final Duration NEVER = Duration.ofHours(1);

    /// 20 of 64 blocks.
    private static final int LONG = 78;

    private Engine open(Duration patience) {
        kv.load = false;
        kv.save = false;
        kv.hold = true;
        kv.holdSteps = -1;
        return Engine.open(
                with(kv, LoadFailurePolicy.RECOMPUTE)
                        .holdPatience(patience)
                        .prefixCache(true)
                        .stepTokens(1000));
    }

    /// Three requests whose blocks are held, 60 of 64.
    private static List<RequestHandle> fill(Engine engine) {
        var all = new ArrayList<RequestHandle>();
        for (int i = 0; i < 3; i++) {
            var handle = engine.submit(request(prompt(i, LONG), 1));
            outcome(engine, handle);
            all.add(handle);
        }
        assertThat(engine.stats().held()).isEqualTo(3);
        return all;
    }

    private static long refusals(Engine engine) {
        return engine.stats().counters().getOrDefault("requests_kept_out_by_holds", 0L);
    }

    private static boolean hasEnded(RequestHandle handle) {
        return handle.await(Deadline.in(Duration.ZERO)).isPresent();
    }

    private static void stepFor(Engine engine, Duration time) {
        var limit = Deadline.in(time);
        while (!limit.passed()) {
            engine.step();
        }
    }

    /// With time between the steps for the engine to look at the holds.
    private static void endSlowly(Engine engine, RequestHandle handle) {
        for (int i = 0; i < 1000 && !hasEnded(handle); i++) {
            LockSupport.parkNanos(11_000_000);
            engine.step();
        }
        assertThat(hasEnded(handle)).isTrue();
    }

    @Test
    void keepNobodyWaitingForLongerThanThePatience() {
        try (var engine = open(SOON)) {
            var held = fill(engine);
            kv.calls.clear();
            var first = engine.submit(request(prompt(7, LONG), 5));
            var second = engine.submit(request(prompt(8, LONG), 5));
            var small = engine.submit(request(prompt(9, 6), 2));
            for (var handle : List.of(first, second)) {
                var failure = ((Outcome.Failed) outcome(engine, handle)).failure();
                assertThat(failure.code()).isEqualTo(ErrorCode.BACKPRESSURE);
                assertThat(failure.message()).contains("60 of 64 blocks are held");
                assertThat(calls("finish " + handle.id()))
                        .containsExactly("finish " + handle.id() + " ERROR 0");
            }
            assertThat(((Outcome.Finished) outcome(engine, small)).tokens())
                    .isEqualTo(reference(prompt(9, 6), 2));
            assertThat(refusals(engine)).isEqualTo(2);
            assertThat(events)
                    .filteredOn(event ->
                            event instanceof TraceEvent.Incident incident
                                    && incident.kind().equals("refusal"))
                    .hasSize(1);
            held.forEach(RequestHandle::release);
            small.release();
            assertEmpty(engine);
            kv.hold = false;
            assertThat(run(engine, request(prompt(7, LONG), 5)).tokens())
                    .isEqualTo(reference(prompt(7, LONG), 5));
            assertEmpty(engine);
        }
    }

    @Test
    void youngHoldsAreWaitedFor() {
        try (var engine = open(NEVER)) {
            var held = fill(engine);
            var waits = engine.submit(request(prompt(7, LONG), 5));
            stepFor(engine, Duration.ofMillis(100));
            assertThat(hasEnded(waits)).isFalse();
            kv.hold = false;
            held.forEach(RequestHandle::release);
            assertThat(((Outcome.Finished) outcome(engine, waits)).tokens())
                    .isEqualTo(reference(prompt(7, LONG), 5));
            assertThat(refusals(engine)).isZero();
            assertEmpty(engine);
        }
    }

    /// What stale holds and running requests have together is not to be blamed on the holds.
    @Test
    void requestsThatWaitForRunningOnesAsWellAreNotRefused() {
        try (var engine = open(SOON)) {
            var held = engine.submit(request(prompt(1, LONG), 1));
            outcome(engine, held);
            kv.hold = false;
            var runs = engine.submit(request(prompt(2, 100), 40));
            engine.step();
            var waits = engine.submit(request(prompt(3, 168), 2)); // 42 blocks
            endSlowly(engine, runs);
            assertThat(((Outcome.Finished) outcome(engine, waits)).tokens())
                    .isEqualTo(reference(prompt(3, 168), 2));
            assertThat(refusals(engine)).isZero();
            held.release();
            assertEmpty(engine);
        }
    }

    /// Without the stale hold it could run at once, and with it when the running one has ended.
    @Test
    void requestsThatFitOnceARunningOneEndsAreNotRefused() {
        try (var engine = open(SOON)) {
            var held = engine.submit(request(prompt(1, LONG), 1));
            outcome(engine, held);
            kv.hold = false;
            var runs = engine.submit(request(prompt(2, 100), 40)); // 25 to 35 blocks
            engine.step();
            var waits = engine.submit(request(prompt(3, 119), 2)); // 30 blocks
            endSlowly(engine, runs);
            assertThat(((Outcome.Finished) outcome(engine, waits)).tokens())
                    .isEqualTo(reference(prompt(3, 119), 2));
            assertThat(refusals(engine)).isZero();
            held.release();
            assertEmpty(engine);
        }
    }

    /// Holds of requests that begin alike keep the same blocks, which count once, and not at all
    /// while a running request has them.
    @Test
    void sharedBlocksCountOnce() {
        try (var engine = open(SOON)) {
            var held = new ArrayList<RequestHandle>();
            for (int i = 0; i < 4; i++) {
                var handle = engine.submit(request(prompt(1, LONG), 1));
                outcome(engine, handle);
                held.add(handle);
            }
            kv.hold = false;
            var runs = engine.submit(request(prompt(2, 120), 20));
            engine.step();
            var waits = engine.submit(request(prompt(3, 150), 2));
            endSlowly(engine, runs);
            assertThat(((Outcome.Finished) outcome(engine, waits)).tokens())
                    .isEqualTo(reference(prompt(3, 150), 2));
            assertThat(refusals(engine)).isZero();
            held.forEach(RequestHandle::release);
            assertEmpty(engine);
        }
    }

    /// A prompt of several steps runs until it finds no more blocks.
    @Test
    void aPromptThatRunsOutOfBlocksInItsMiddleIsRefused() {
        kv.load = false;
        kv.save = false;
        kv.hold = true;
        kv.holdSteps = -1;
        try (var engine =
                Engine.open(
                        with(kv, LoadFailurePolicy.RECOMPUTE)
                                .holdPatience(SOON)
                                .prefixCache(false)
                                .stepTokens(64))) {
            var held = new ArrayList<RequestHandle>();
            for (int i = 0; i < 2; i++) {
                var handle = engine.submit(request(prompt(i, LONG), 1));
                outcome(engine, handle);
                held.add(handle);
            }
            var handle = engine.submit(request(prompt(7, 120), 1)); // 31 blocks; 24 are free
            var failure = ((Outcome.Failed) outcome(engine, handle)).failure();
            assertThat(failure.code()).isEqualTo(ErrorCode.BACKPRESSURE);
            assertThat(refusals(engine)).isEqualTo(1);
            handle.release(); // the connector holds what it computed
            held.forEach(RequestHandle::release);
            assertEmpty(engine);
        }
    }
}
