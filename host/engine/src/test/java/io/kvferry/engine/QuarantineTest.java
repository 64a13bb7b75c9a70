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
import io.kvferry.spi.config.LoadFailurePolicy;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;

/// Blocks of revoked transfers that no rank answers may never become free. Requests that need them
/// fail instead of waiting for ever; other requests do not.
@Timeout(120)
class QuarantineTest extends ConnectedEngine {
    private static final Duration SOON = Duration.ofMillis(1);

    /// 20 of 64 blocks; nothing is found again in the engine's own cache.
    private static final int LONG = 80;

    private Engine open(Duration patience) {
        return open(patience, SOON);
    }

    private Engine open(Duration patience, Duration loadLimit) {
        kv.answerRevocations = false;
        return Engine.open(
                with(kv, LoadFailurePolicy.RECOMPUTE)
                        .holdPatience(patience)
                        .loadLimit(loadLimit)
                        .revokeLimit(SOON)
                        .closeLimit(SOON)
                        .prefixCache(false)
                        .stepTokens(1000));
    }

    /// In steps enough for every limit to pass.
    private Outcome end(Engine engine, RequestHandle handle) {
        for (int i = 0; i < 200 && handle.await(Deadline.in(Duration.ZERO)).isEmpty(); i++) {
            LockSupport.parkNanos(1_000_000);
            engine.step();
        }
        assertThat(handle.await(Deadline.in(Duration.ZERO))).as(engine.describe()).isPresent();
        return handle.await(Deadline.in(Duration.ZERO)).orElseThrow();
    }

    private static void stepUntilQuarantined(Engine engine, int blocks) {
        for (int i = 0; i < 200 && engine.stats().quarantinedBlocks() < blocks; i++) {
            LockSupport.parkNanos(1_000_000);
            engine.step();
        }
        engine.checkInvariants();
        assertThat(engine.stats().quarantinedBlocks()).isEqualTo(blocks);
    }

    /// Prompts that another engine has computed are loaded, and the loads are aborted.
    private void quarantineLoads(Engine engine, int loads) {
        kv.onLoad = OnLoad.NEVER;
        for (int i = 0; i < loads; i++) {
            var handle = engine.submit(request(prompt(i, LONG), 1));
            engine.step();
            assertThat(engine.stats().loading()).isEqualTo(1);
            handle.abort();
            end(engine, handle);
        }
        stepUntilQuarantined(engine, loads * 20);
        kv.load = false;
    }

    private void storeAll(int prompts) {
        for (int i = 0; i < prompts; i++) {
            store(prompt(i, LONG));
        }
    }

    private static void assertTimedOut(Outcome outcome, int out) {
        assertThat(outcome)
                .isInstanceOfSatisfying(
                        Outcome.Failed.class,
                        failed -> {
                            assertThat(failed.failure().code()).isEqualTo(ErrorCode.TIMEOUT);
                            assertThat(failed.failure().message())
                                    .contains(out + " of 64 blocks are out of use");
                        });
    }

    @Test
    void failsWhoNeedsBlocksOfLoadsThatAreNotAnswered() {
        storeAll(3);
        try (var engine = open(SOON)) {
            quarantineLoads(engine, 3);
            var first = engine.submit(request(prompt(7, LONG), 5));
            var second = engine.submit(request(prompt(8, LONG), 5));
            var small = engine.submit(request(prompt(9, 6), 2));
            assertTimedOut(end(engine, first), 60);
            assertTimedOut(end(engine, second), 60);
            assertThat(((Outcome.Finished) end(engine, small)).tokens())
                    .isEqualTo(reference(prompt(9, 6), 2));
            assertThat(engine.stats().freeBlocks()).isEqualTo(4);
        }
    }

    /// It had its blocks, and may never have as many again.
    @Test
    void failsWhoHasTokensAndNeedsThemForTheNext() {
        storeAll(3);
        try (var engine = open(SOON)) {
            quarantineLoads(engine, 3);
            var grows =
                    engine.submit(request(prompt(7, 10), 20)); // 3 of the 4 blocks that are left
            var outcome = end(engine, grows);
            assertTimedOut(outcome, 60);
            assertThat(outcome.usage().generatedTokens()).isEqualTo(7);
            assertThat(engine.stats().freeBlocks()).isEqualTo(4);
        }
    }

    /// The load brings what it promised, and there is no block for what comes behind it.
    @Test
    void failsWhoseLoadIsDoneAndWhoNeedsThemForTheRest() {
        storeAll(2);
        store(prompt(7, 88));
        try (var engine = open(SOON)) {
            quarantineLoads(engine, 2); // 24 blocks are left
            kv.load = true;
            kv.onLoad = OnLoad.COMPLETE;
            var longer = Arrays.copyOf(prompt(7, 88), 100); // 22 blocks and 3 more
            var handle = engine.submit(request(longer, 1));
            assertTimedOut(end(engine, handle), 40);
            assertThat(calls("onAllocated " + handle.id() + " 0 88")).isNotEmpty();
            assertThat(engine.stats().freeBlocks()).isEqualTo(24);
        }
    }

    @Test
    void failsWhoNeedsBlocksOfAHoldThatIsNotAnswered() {
        kv.load = false;
        kv.save = false;
        kv.hold = true;
        kv.holdSteps = -1;
        kv.holdFor = SOON;
        try (var engine = open(SOON)) {
            for (int i = 0; i < 3; i++) {
                run(engine, request(prompt(i, LONG), 1));
            }
            stepUntilQuarantined(engine, 60);
            kv.hold = false;
            assertTimedOut(end(engine, engine.submit(request(prompt(7, LONG), 5))), 60);
        }
    }

    @Test
    void failsWhoNeedsBlocksOfALeaseThatIsNotAnswered() {
        kv.load = false;
        kv.save = false;
        kv.lease = true;
        kv.holdSteps = -1;
        kv.holdFor = SOON;
        try (var engine = open(SOON)) {
            for (int i = 0; i < 3; i++) {
                run(engine, request(prompt(i, LONG), 1));
            }
            stepUntilQuarantined(engine, 60);
            kv.lease = false;
            assertTimedOut(end(engine, engine.submit(request(prompt(7, LONG), 5))), 60);
        }
    }

    @Test
    void whoFitsOnceOthersHaveEndedWaitsForThem() {
        storeAll(1);
        try (var engine = open(SOON)) {
            quarantineLoads(engine, 1); // 44 blocks are left
            var runs = engine.submit(request(prompt(2, 100), 40)); // 25 to 35 blocks
            engine.step();
            var waits = engine.submit(request(prompt(3, 168), 2)); // 42 to 43 blocks
            assertThat(end(engine, runs)).isInstanceOf(Outcome.Finished.class);
            assertThat(((Outcome.Finished) end(engine, waits)).tokens())
                    .isEqualTo(reference(prompt(3, 168), 2));
        }
    }

    @Test
    void blocksThatSeveralTransfersHaveCountOnce() {
        kv.load = false;
        kv.save = false;
        kv.hold = true;
        kv.lease = true;
        kv.holdSteps = -1;
        kv.holdFor = SOON;
        try (var engine = open(SOON)) {
            run(engine, request(prompt(0, LONG), 1));
            stepUntilQuarantined(engine, 20);
            var limit = Deadline.in(Duration.ofMillis(100));
            while (!limit.passed()) {
                engine.step();
            }
            assertThat(engine.stats().quarantinedBlocks()).isEqualTo(20);
            kv.hold = false;
            kv.lease = false;
            var runs = engine.submit(request(prompt(2, 100), 40)); // 25 to 35 of 44 blocks
            engine.step();
            var waits = engine.submit(request(prompt(3, 168), 2)); // 42 to 43 blocks
            assertThat(end(engine, runs)).isInstanceOf(Outcome.Finished.class);
            assertThat(end(engine, waits)).isInstanceOf(Outcome.Finished.class);
        }
    }

    /// It was last looked up when blocks were left for the prompt of another, which has them now:
    /// no block became free since.
    @Test
    void whoLeavesBlocksForThePromptOfAnotherWaitsForItsEnd() {
        storeAll(1);
        store(prompt(3, 160));
        store(Arrays.copyOf(prompt(2, 120), 41));
        kv.save = false;
        try (var engine = open(SOON, Duration.ofSeconds(20))) {
            quarantineLoads(engine, 1); // 44 blocks are left
            kv.load = true;
            kv.onLoad = OnLoad.COMPLETE;
            kv.delay = 20;
            var runs = engine.submit(request(prompt(2, 120), 20)); // 10 blocks, then 30 to 35
            engine.step();
            var longer = Arrays.copyOf(prompt(3, 160), 161);
            var waits = engine.submit(request(longer, 2)); // 40 to 41 blocks, and 21 left
            assertThat(((Outcome.Finished) end(engine, waits)).tokens())
                    .isEqualTo(reference(longer, 2));
            assertThat(end(engine, runs)).isInstanceOf(Outcome.Finished.class);
        }
    }

    @Test
    void nobodyFailsBeforeThePatienceIsOver() {
        storeAll(3);
        try (var engine = open(Duration.ofHours(1))) {
            quarantineLoads(engine, 3);
            var waits = engine.submit(request(prompt(7, LONG), 5));
            var limit = Deadline.in(Duration.ofMillis(100));
            while (!limit.passed()) {
                engine.step();
            }
            assertThat(waits.await(Deadline.in(Duration.ZERO))).isEmpty();
        }
    }
}
