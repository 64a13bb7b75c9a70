// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.reference;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.testkit.ScriptedKv.OnLoad;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.Objects;

/// What a connector may keep of the engine's blocks, and for how long: holds, leases, open loads.
class RightsTest extends ConnectedEngine {
    @Test
    void keepsTheBlocksOfAHeldRequestUntilItIsDelivered() {
        kv.hold = true;
        kv.holdSteps = 3;
        try (var engine = open()) {
            var outcome = run(engine, request(prompt(1, 23), 1));
            assertThat(outcome.kvParams().string("held")).contains("SAVE:r1/0");
            assertThat(engine.stats().held()).isEqualTo(1);
            assertThat(engine.stats().freeBlocks()).isEqualTo(BLOCKS - 6);
            for (int i = 0; i < 4; i++) {
                engine.step();
            }
            assertEmpty(engine);
            assertThat(engine.stats().counters().getOrDefault("holds_completed", 0L)).isEqualTo(1);
        }
    }

    @Test
    void reclaimsAHoldThatNobodyFetches() {
        kv.hold = true;
        kv.holdSteps = -1;
        kv.holdFor = Duration.ofMillis(10);
        try (var engine = open()) {
            run(engine, request(prompt(1, 23), 1));
            assertEmpty(engine);
            assertThat(engine.stats().counters().getOrDefault("holds_expired", 0L)).isEqualTo(1);
            assertThat(calls("onRevoked")).containsExactly("onRevoked SAVE:r1/0");
        }
    }

    @Test
    void prolongsAHoldWhoseConsumerIsKnownToCome() {
        kv.hold = true;
        kv.holdSteps = -1;
        kv.holdFor = Duration.ofSeconds(2);
        try (var engine = open()) {
            run(engine, request(prompt(1, 23), 1));
            var first = Deadline.in(kv.holdFor);
            var pool = Objects.requireNonNull(kv.boundPool);
            var id = TransferId.save("r1", 0);
            var renewed = pool.renewHold(id, Deadline.in(Duration.ofMinutes(5)));
            assertThat(renewed.orElseThrow().earlier(first)).isEqualTo(first);
            assertThat(pool.renewHold(id, Deadline.in(Duration.ZERO)))
                    .as("never shortened")
                    .isEqualTo(renewed);
            while (!first.passed()) {
                Thread.onSpinWait();
            }
            engine.step();
            assertThat(engine.stats().counters().getOrDefault("holds_expired", 0L)).isZero();
            assertThat(engine.stats().held()).isEqualTo(1);
            assertThat(pool.renewHold(TransferId.save("other", 0), first)).isEmpty();
        }
    }

    @Test
    void aLeaseAnswersTheDeadlineThatItWasGranted() {
        kv.hold = true;
        kv.holdSteps = -1;
        try (var engine = open()) {
            run(engine, request(prompt(1, 23), 1));
            var longest = Deadline.in(Duration.ofDays(1));
            var pool = Objects.requireNonNull(kv.boundPool);
            var id = new TransferId("r1", 0, TransferId.Direction.SAVE, 1, "");
            try (var lease = pool.lease(id, 0, new int[] {heldBlock(pool)}, longest)) {
                assertThat(lease.deadline()).as("bounded by the engine").isNotEqualTo(longest);
                assertThat(lease.deadline().earlier(longest)).isEqualTo(lease.deadline());
                var before = lease.deadline();
                assertThat(lease.renew(longest)).isTrue();
                assertThat(lease.deadline().earlier(before)).isEqualTo(before);
            }
        }
    }

    private static int heldBlock(BlockPool pool) {
        for (int block = 0; block < BLOCKS; block++) {
            try (var _ =
                    pool.lease(
                            TransferId.save("probe", block),
                            0,
                            new int[] {block},
                            Deadline.in(Duration.ofSeconds(1)))) {
                return block;
            } catch (KvFerryException e) {
                assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST);
            }
        }
        throw new AssertionError("no block is held");
    }

    @Test
    void givesAHoldBackWhenItsConsumerWillNotCome() {
        kv.hold = true;
        kv.holdSteps = -1;
        try (var engine = open()) {
            var handle = engine.submit(request(prompt(1, 23), 1));
            assertThat(((Outcome.Finished) outcome(engine, handle)).kvParams().string("held"))
                    .contains("SAVE:r1/0");
            assertThat(engine.stats().held()).isEqualTo(1);
            handle.release();
            assertEmpty(engine);
            assertThat(calls("onRevoked")).containsExactly("onRevoked SAVE:r1/0");
            assertThat(engine.stats().counters().getOrDefault("holds_expired", 0L)).isZero();
            handle.release();
            assertEmpty(engine);
        }
    }

    @Test
    void releasesARequestThatStillRuns() {
        kv.hold = true;
        kv.holdSteps = -1;
        try (var engine = open()) {
            var handle = engine.submit(request(prompt(1, 23), 50));
            for (int i = 0; i < 5; i++) {
                engine.step();
            }
            handle.release();
            assertThat(((Outcome.Finished) outcome(engine, handle)).reason())
                    .isEqualTo(FinishReason.ABORT);
            assertEmpty(engine);
        }
    }

    @Test
    void quarantinesBlocksWhoseRevocationIsNotAnswered() {
        kv.hold = true;
        kv.holdSteps = -1;
        kv.holdFor = Duration.ofMillis(5);
        kv.answerRevocations = false;
        try (var engine = open()) {
            run(engine, request(prompt(1, 23), 1));
            var limit = Deadline.in(Duration.ofSeconds(10));
            while (engine.stats().quarantinedBlocks() == 0 && !limit.passed()) {
                engine.step();
            }
            assertThat(engine.stats().quarantinedBlocks()).isEqualTo(6);
            assertThat(engine.stats().freeBlocks()).isEqualTo(BLOCKS - 6);
            assertThat(run(engine, request(prompt(2, 23), 5)).tokens())
                    .isEqualTo(reference(prompt(2, 23), 5));
        }
    }

    @Test
    void lendsBlocksForSavesThatOutliveTheRequest() {
        kv.lease = true;
        kv.holdSteps = 3;
        try (var engine = open()) {
            run(engine, request(prompt(1, 23), 1));
            assertThat(engine.stats().leasedBlocks()).isEqualTo(6);
            assertThat(engine.stats().freeBlocks()).isEqualTo(BLOCKS - 6);
            assertEmpty(engine);
            assertThat(engine.stats().counters().getOrDefault("completions_unmatched", 0L))
                    .isZero();
        }
    }

    @Test
    void endsALeaseAtItsDeadline() {
        kv.lease = true;
        kv.holdSteps = -1;
        kv.holdFor = Duration.ofMillis(10);
        try (var engine = open()) {
            run(engine, request(prompt(1, 23), 1));
            assertEmpty(engine);
            assertThat(engine.stats().counters().getOrDefault("leases_expired", 0L)).isEqualTo(1);
        }
    }

    @Test
    void abortsBeforeAnythingIsScheduled() {
        try (var engine = open()) {
            var handle = engine.submit(request(prompt(1, 23), 5));
            handle.abort();
            engine.step();
            assertThat(((Outcome.Finished) outcome(engine, handle)).reason())
                    .isEqualTo(FinishReason.ABORT);
            assertThat(kv.calls).containsSubsequence("onRequest r1", "finish r1 ABORT 0");
            assertEmpty(engine);
        }
    }

    @Test
    void keepsTheBlocksOfAnAbortedLoadUntilTheWorkersLetGo() {
        store(prompt(1, 23));
        kv.onLoad = OnLoad.NEVER;
        kv.answerRevocations = false;
        try (var engine = open()) {
            var handle = engine.submit(request(prompt(1, 23), 5));
            engine.step();
            assertThat(engine.stats().loading()).isEqualTo(1);
            handle.abort();
            engine.step();
            assertThat(((Outcome.Finished) outcome(engine, handle)).reason())
                    .isEqualTo(FinishReason.ABORT);
            assertThat(calls("finish")).hasSize(1);
            assertThat(calls("onRevoked")).containsExactly("onRevoked LOAD:r1/0");
            assertThat(engine.stats().freeBlocks()).isEqualTo(BLOCKS - 5);
        }
        kv.calls.clear();
        kv.answerRevocations = true;
        try (var engine = open()) {
            var handle = engine.submit(request(prompt(1, 23), 5));
            engine.step();
            handle.abort();
            engine.step();
            assertEmpty(engine);
        }
    }

    @Test
    void abortsARequestThatHoldsAfterwards() {
        kv.hold = true;
        kv.holdSteps = 2;
        try (var engine = open()) {
            var handle = engine.submit(request(prompt(1, 23), 50));
            for (int i = 0; i < 5; i++) {
                engine.step();
            }
            handle.abort();
            engine.step();
            assertThat(engine.stats().held()).isEqualTo(1);
            handle.abort();
            assertEmpty(engine);
        }
    }

    @Test
    void doesNotAdmitLoadsThatWouldStarveRunningPrefills() {
        store(prompt(1, 120));
        try (var engine = Engine.open(with(kv, LoadFailurePolicy.FAIL).stepTokens(8))) {
            kv.load = false;
            var long1 = engine.submit(request(prompt(7, 180), 4));
            engine.step();
            kv.load = true;
            var second = engine.submit(request(prompt(1, 120), 4));
            for (int i = 0; i < 10; i++) {
                engine.step();
                assertThat(engine.stats().loading()).isZero();
            }
            assertThat(outcome(engine, long1)).isInstanceOf(Outcome.Finished.class);
            assertThat(((Outcome.Finished) outcome(engine, second)).tokens())
                    .isEqualTo(reference(prompt(1, 120), 4));
        }
    }
}
