// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import static io.kvferry.engine.EncoderTest.encoding;
import static io.kvferry.engine.EncoderTest.item;
import static io.kvferry.engine.EncoderTest.outcome;
import static io.kvferry.engine.EngineTest.config;
import static io.kvferry.engine.EngineTest.prompt;
import static io.kvferry.engine.EngineTest.request;
import static io.kvferry.engine.EngineTest.run;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.engine.model.EncoderInput;
import io.kvferry.engine.testkit.ScriptedEc;
import io.kvferry.engine.testkit.ScriptedKv;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

/// Room in the encoder cache: requests that cannot have any fail, the others get theirs in the end.
class EncoderRoomTest {
    private final ScriptedEc ec = new ScriptedEc(new ConcurrentHashMap<>());

    private static GenerationRequest withItems(int seed, EncoderInput... items) {
        return request(prompt(seed, 40), 5).withItems(List.of(items));
    }

    private static void assertFailed(Outcome outcome, ErrorCode code) {
        assertThat(outcome)
                .isInstanceOfSatisfying(
                        Outcome.Failed.class,
                        failed -> assertThat(failed.failure().code()).isEqualTo(code));
    }

    @Test
    void failsOnlyTheRequestWhoseItemNobodyHas() {
        var missing = new EncoderInput("a", "image", 20, 10, new byte[0]);
        try (var engine = Engine.open(encoding(100))) {
            var text = engine.submit(request(prompt(1, 40), 5));
            var broken = engine.submit(withItems(2, missing));
            var other = engine.submit(withItems(3, item("b", 2, 10)));
            assertFailed(outcome(engine, broken), ErrorCode.MISS);
            assertThat(outcome(engine, text)).isInstanceOf(Outcome.Finished.class);
            assertThat(outcome(engine, other)).isInstanceOf(Outcome.Finished.class);
            engine.checkInvariants();
            assertThat(engine.stats().freeBlocks()).isEqualTo(64);
        }
    }

    @Test
    void refusesAtOnceWhatCanNeverFit() {
        try (var engine = Engine.open(encoding(10))) {
            assertThatThrownBy(() -> engine.submit(withItems(1, item("a", 2, 11))))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST))
                    .hasMessageContaining("11 rows");
            assertThatThrownBy(() -> engine.submit(withItems(1, item("a", 2, 4), item("a", 20, 5))))
                    .hasMessageContaining("4 rows at one position and 5 at another");
        }
        try (var engine = Engine.open(encoding(20).encodeOnly(true))) {
            assertThatThrownBy(
                            () -> engine.submit(withItems(1, item("a", 2, 11), item("b", 20, 10))))
                    .hasMessageContaining("21 rows");
            run(engine, withItems(1, item("a", 2, 11), item("b", 20, 9)));
            run(engine, withItems(1, item("a", 2, 11), item("a", 20, 11)));
        }
    }

    /// What a KV connector brings needs no item; what it does not bring fails with a code.
    @Test
    void leavesItToTheSchedulerWhereKvMayBeLoaded() {
        var kv = new ScriptedKv();
        try (var engine =
                Engine.open(encoding(10).kvConnector(kv, kv.config(LoadFailurePolicy.FAIL)))) {
            assertFailed(
                    outcome(engine, engine.submit(withItems(1, item("a", 2, 11)))),
                    ErrorCode.INVALID_REQUEST);
        }
    }

    /// One request has an item and waits for an answer on the other one. Another that took the rest
    /// of the room would then wait for the first, and the first for it.
    @Test
    void reservesRoomForAllItemsOfAnEncodeRequestOrForNone() {
        ec.pending.add("a2");
        try (var engine =
                Engine.open(
                        encoding(100)
                                .encodeOnly(true)
                                .pendingLookupLimit(Duration.ofSeconds(60))
                                .ecConnector(ec, ec.config()))) {
            var a = engine.submit(encode(item("a1", 0, 40), item("a2", 40, 40)));
            var b = engine.submit(encode(item("b1", 0, 40), item("b2", 40, 40)));
            for (int i = 0; i < 10; i++) {
                engine.step();
            }
            ec.pending.clear();
            assertThat(outcome(engine, a)).isInstanceOf(Outcome.Finished.class);
            assertThat(outcome(engine, b)).isInstanceOf(Outcome.Finished.class);
            assertThat(engine.stats().encoderFree()).isEqualTo(100);
        }
    }

    /// What is cached lies in the middle, and leaves no room for the other item on either side.
    @Test
    void anItemThatIsCachedIsMovedWhereItLeavesRoomForTheOthers() {
        try (var engine = Engine.open(encoding(10).encodeOnly(true))) {
            run(engine, encode(item("a", 0, 3), item("b", 10, 5)));
            var next = engine.submit(encode(item("b", 0, 5), item("c", 10, 5)));
            assertThat(outcome(engine, next)).isInstanceOf(Outcome.Finished.class);
            assertThat(engine.stats().encoderFree()).isEqualTo(10);
        }
    }

    /// Each item would have room without the other, of which one is cached.
    @Test
    void anEncodeRequestWhoseItemsNeverHaveRoomTogetherFails() {
        try (var engine = Engine.open(silent().encodeOnly(true))) {
            assertFailed(
                    outcome(engine, engine.submit(encode(item("a", 0, 10)))), ErrorCode.TIMEOUT);
            run(engine, encode(item("b", 0, 6)));
            var never = engine.submit(encode(item("b", 0, 6), item("c", 10, 6)));
            assertFailed(outcome(engine, never), ErrorCode.TIMEOUT);
            run(engine, encode(item("b", 0, 6), item("d", 10, 4)));
        }
    }

    /// The missing one fits where another's item lies, though not beside the cached one if that
    /// were laid out anew.
    @Test
    void anEncodeRequestThatFitsBesideItsCachedItemWaitsForTheEndOfAnother() {
        ec.silent = true;
        try (var engine =
                Engine.open(
                        encoding(11)
                                .encodeOnly(true)
                                .loadLimit(Duration.ofMillis(5))
                                .revokeLimit(Duration.ofMillis(5))
                                .closeLimit(Duration.ofMillis(5))
                                .pendingLookupLimit(Duration.ofSeconds(60))
                                .ecConnector(ec, ec.config()))) {
            run(engine, encode(item("b", 0, 6)));
            ec.store.put("a", new byte[32]);
            assertFailed( // row 6 is out of use
                    outcome(engine, engine.submit(encode(item("a", 0, 1)))), ErrorCode.TIMEOUT);
            ec.pending.add("x");
            var other = engine.submit(encode(item("x", 0, 4)));
            var next = engine.submit(encode(item("b", 0, 6), item("c", 10, 4)));
            for (int i = 0; i < 5; i++) {
                engine.step();
            }
            ec.pending.clear();
            assertThat(outcome(engine, other)).isInstanceOf(Outcome.Finished.class);
            assertThat(outcome(engine, next)).isInstanceOf(Outcome.Finished.class);
        }
    }

    /// It could not be filled again: nobody has its content any more.
    @Test
    void anItemThatIsCachedStaysWhereOthersWillLeaveRoom() {
        try (var engine =
                Engine.open(
                        encoding(12)
                                .encodeOnly(true)
                                .pendingLookupLimit(Duration.ofSeconds(60))
                                .ecConnector(ec, ec.config()))) {
            run(engine, encode(item("a", 0, 3)));
            run(engine, encode(item("b", 0, 2)));
            run(engine, encode(item("e", 0, 3)));
            ec.pending.add("d");
            var other = engine.submit(encode(item("d", 0, 4)));
            for (int i = 0; i < 5; i++) {
                engine.step();
            }
            ec.store.clear();
            var cached = new EncoderInput("b", "image", 0, 2, new byte[0]);
            var next = engine.submit(encode(cached, item("c", 10, 5)));
            for (int i = 0; i < 5; i++) {
                engine.step();
            }
            ec.pending.clear();
            assertThat(outcome(engine, other)).isInstanceOf(Outcome.Finished.class);
            assertThat(outcome(engine, next)).isInstanceOf(Outcome.Finished.class);
        }
    }

    /// Only one of both can be filled again, and moving that is enough.
    @Test
    void anItemWithContentIsMovedBeforeOneWithout() {
        try (var engine = Engine.open(encoding(12).encodeOnly(true).ecConnector(ec, ec.config()))) {
            run(engine, encode(item("a", 0, 2)));
            run(engine, encode(item("b", 0, 4)));
            run(engine, encode(item("c", 0, 2)));
            ec.store.clear();
            var fixed = new EncoderInput("a", "image", 0, 2, new byte[0]); // rows 0 to 1
            var next = // 2 and 4 rows are left beside both
                    engine.submit(encode(fixed, item("c", 5, 2), item("d", 10, 8)));
            assertThat(outcome(engine, next)).isInstanceOf(Outcome.Finished.class);
        }
    }

    private static GenerationRequest encode(EncoderInput... items) {
        return request(prompt(1, 80), 1).withItems(List.of(items));
    }

    /// The preempted request has one item and needs the other one first again; both do not fit.
    @Test
    void givesReferencesBackAtPreemption() {
        try (var engine =
                Engine.open(encoding(15).prefixCache(false).blockCount(15).stepTokens(6))) {
            var first = engine.submit(request(prompt(1, 4), 40));
            var second =
                    engine.submit(
                            request(prompt(2, 40), 4)
                                    .withItems(List.of(item("a", 2, 10), item("b", 20, 15))));
            var other =
                    engine.submit(
                            request(prompt(3, 40), 4)
                                    .withItems(List.of(item("c", 2, 10), item("d", 20, 15))));
            for (var handle : List.of(first, second, other)) {
                assertThat(outcome(engine, handle)).isInstanceOf(Outcome.Finished.class);
            }
            assertThat(engine.stats().counters().getOrDefault("preemptions", 0L)).isPositive();
            assertThat(engine.stats().encoderFree()).isEqualTo(15);
        }
    }

    /// A request gets rows while a more urgent one waits for an item to be loaded, and is preempted
    /// by it in the middle of its own item. A third request runs in its place, so that nobody looks
    /// at the preempted one; both that run need its rows.
    @Test
    void aPreemptedRequestKeepsNoRowsWhileOthersRunInItsPlace() {
        ec.store.put("x", EncoderTest.encoded("x", 5));
        try (var engine =
                Engine.open(
                        encoding(15)
                                .prefixCache(false)
                                .blockCount(15)
                                .stepTokens(24)
                                .maxRunning(2)
                                .ecConnector(ec, ec.config()))) {
            var first =
                    engine.submit(
                            request(prompt(2, 59), 1)
                                    .withItems(List.of(item("x", 4, 5), item("b", 44, 15))));
            var preempted =
                    engine.submit(
                            request(prompt(1, 52), 1)
                                    .withItems(List.of(item("a", 40, 10)))
                                    .withPriority(1));
            engine.step();
            var second =
                    engine.submit(request(prompt(3, 40), 1).withItems(List.of(item("c", 4, 15))));
            assertThat(outcome(engine, first)).isInstanceOf(Outcome.Finished.class);
            assertThat(outcome(engine, second)).isInstanceOf(Outcome.Finished.class);
            var last = outcome(engine, preempted);
            assertThat(last).isInstanceOf(Outcome.Finished.class);
            assertThat(last.usage().preemptions()).isPositive();
            assertThat(engine.stats().encoderFree()).isEqualTo(15);
        }
    }

    @Test
    void findsRoomBetweenTwoPositionsOfTheSameItem() {
        try (var engine = Engine.open(encoding(15))) {
            assertThat(
                            outcome(
                                    engine,
                                    engine.submit(
                                            withItems(
                                                    1,
                                                    item("a", 0, 8),
                                                    item("b", 10, 8),
                                                    item("a", 20, 8)))))
                    .isInstanceOf(Outcome.Finished.class);
        }
    }

    /// The item of a request that waits arrives while as many run as may; the running one must be
    /// able to take its rows.
    @Test
    void runningRequestsNeedNotWaitForItemsOfWaitingOnes() {
        ec.store.put("a", EncoderTest.encoded("a", 15));
        ec.delay = 3;
        try (var engine =
                Engine.open(
                        encoding(20).maxRunning(2).stepTokens(8).ecConnector(ec, ec.config()))) {
            var waits = engine.submit(withItems(1, item("a", 0, 15)));
            engine.step();
            var runs = engine.submit(withItems(2, item("b", 4, 15)));
            var runsToo = engine.submit(withItems(3, item("c", 4, 15)));
            for (var handle : List.of(runs, runsToo, waits)) {
                assertThat(outcome(engine, handle)).isInstanceOf(Outcome.Finished.class);
            }
        }
    }

    /// The KV load that an item's place in the prompt depended on fails in the very step in which a
    /// later item got its rows.
    @Test
    void givesLaterItemsBackWhenAnEarlierOneIsNeededAgain() {
        var kv = new ScriptedKv();
        var prompt = prompt(1, 40);
        try (var engine =
                Engine.open(
                        encoding(100).kvConnector(kv, kv.config(LoadFailurePolicy.RECOMPUTE)))) {
            run(engine, request(Arrays.copyOf(prompt, 9), 1).withItems(List.of(item("a", 2, 5))));
        }
        kv.mode = LoadMode.SYNC;
        kv.onLoad = ScriptedKv.OnLoad.FAIL_FIRST_BLOCK;
        try (var engine =
                Engine.open(encoding(8).kvConnector(kv, kv.config(LoadFailurePolicy.RECOMPUTE)))) {
            var request = request(prompt, 5).withItems(List.of(item("a", 2, 5), item("b", 9, 6)));
            assertThat(outcome(engine, engine.submit(request)))
                    .isInstanceOf(Outcome.Finished.class);
            assertThat(engine.stats().counters().getOrDefault("loads_failed", 0L)).isEqualTo(1);
        }
    }

    /// A request is preempted while its first item is loaded, and finds the KV behind that item
    /// when it comes back. The item arrives when the request runs and waits for rows for the next.
    @Test
    void givesBackAnItemThatItNeedsNoLonger() {
        var kv = new ScriptedKv();
        var prompt = prompt(2, 40);
        var first = item("a", 4, 15);
        try (var engine =
                Engine.open(
                        encoding(100).kvConnector(kv, kv.config(LoadFailurePolicy.RECOMPUTE)))) {
            run(engine, request(Arrays.copyOf(prompt, 25), 1).withItems(List.of(first)));
        }
        ec.store.put("a", EncoderTest.encoded("a", 15));
        ec.silent = true;
        kv.load = false;
        try (var engine =
                Engine.open(
                        encoding(20)
                                .prefixCache(false)
                                .blockCount(11)
                                .kvConnector(kv, kv.config(LoadFailurePolicy.RECOMPUTE))
                                .ecConnector(ec, ec.config()))) {
            var other = engine.submit(request(prompt(1, 4), 40));
            var preempted =
                    engine.submit(request(prompt, 4).withItems(List.of(first, item("b", 24, 15))));
            for (int i = 0;
                    i < 1000 && engine.stats().counters().getOrDefault("preemptions", 0L) == 0;
                    i++) {
                engine.step();
            }
            kv.load = true;
            assertThat(outcome(engine, other)).isInstanceOf(Outcome.Finished.class);
            for (int i = 0; i < 1000 && engine.stats().running() == 0; i++) {
                engine.step();
            }
            assertThat(engine.stats().counters().getOrDefault("loads_completed", 0L)).isEqualTo(1);
            ec.silent = false;
            assertThat(outcome(engine, preempted)).isInstanceOf(Outcome.Finished.class);
            assertThat(engine.stats().counters().getOrDefault("preemptions", 0L)).isEqualTo(1);
        }
    }

    @Test
    void anEncodeRequestWhoseLoadFailsInItsStepIsEncoded() {
        ec.store.put("a", new byte[320]);
        ec.mode = LoadMode.SYNC;
        ec.fail = true;
        try (var engine =
                Engine.open(encoding(100).encodeOnly(true).ecConnector(ec, ec.config()))) {
            assertThat(run(engine, withItems(1, item("a", 2, 10))).reason())
                    .isEqualTo(FinishReason.STOP);
            assertThat(engine.stats().counters().getOrDefault("item_loads_failed", 0L))
                    .isEqualTo(1);
            assertThat(engine.stats().counters().getOrDefault("items_encoded", 0L)).isEqualTo(1);
            assertThat(ec.calls).contains("save a");
        }
    }

    @Test
    void anEncodeRequestWhoseLoadFailsWithoutAnEncoderFails() {
        ec.store.put("a", new byte[320]);
        ec.mode = LoadMode.SYNC;
        ec.fail = true;
        try (var engine =
                Engine.open(config(Map.of()).encodeOnly(true).ecConnector(ec, ec.config()))) {
            assertFailed(
                    outcome(engine, engine.submit(withItems(1, item("a", 2, 10)))), ErrorCode.MISS);
        }
    }

    private EngineConfig silent() {
        ec.store.put("a", new byte[320]);
        ec.silent = true;
        return encoding(20)
                .loadLimit(Duration.ofMillis(5))
                .revokeLimit(Duration.ofMillis(5))
                .closeLimit(Duration.ofMillis(5))
                .ecConnector(ec, ec.config());
    }

    private static void stepUntil(Engine engine, BooleanSupplier condition) {
        var limit = Deadline.in(Duration.ofSeconds(30));
        while (!condition.getAsBoolean() && !limit.passed()) {
            engine.step();
        }
        assertThat(condition.getAsBoolean()).as("%s", engine.describe()).isTrue();
        engine.checkInvariants();
    }

    /// The request that waited for the load is held, and the hold ends.
    @Test
    void rowsOfALoadThatIsNotAnsweredStayOutOfUseWhenAHoldOnThemEnds() {
        ec.hold = true;
        ec.answered.add(TransferId.Direction.SAVE);
        try (var engine = Engine.open(silent())) {
            assertFailed(
                    outcome(engine, engine.submit(withItems(1, item("a", 2, 10)))),
                    ErrorCode.TIMEOUT);
            assertThat(engine.stats().held()).isEqualTo(1);
            stepUntil(engine, () -> engine.stats().held() == 0);
            assertFailed(
                    outcome(engine, engine.submit(withItems(2, item("a", 2, 10)))),
                    ErrorCode.TIMEOUT);
            assertFailed(
                    outcome(engine, engine.submit(withItems(3, item("b", 2, 11)))),
                    ErrorCode.TIMEOUT);
        }
    }

    private static Stream<Completion.Result> answers() {
        return Stream.of(
                new Completion.Revoked(),
                new Completion.Completed(0),
                new Completion.Failed(new Failure(ErrorCode.STORAGE_IO, "scripted"), List.of()));
    }

    /// The load is answered while the hold is not: the connector may still read the rows.
    @ParameterizedTest
    @MethodSource("answers")
    void rowsUnderAHoldThatIsNotAnsweredStayOutOfUseWhenTheirLoadEnds(Completion.Result answer) {
        ec.hold = true;
        ec.answer = answer;
        try (var engine = Engine.open(silent())) {
            assertFailed(
                    outcome(engine, engine.submit(withItems(1, item("a", 2, 10)))),
                    ErrorCode.TIMEOUT);
            ec.answered.add(TransferId.Direction.LOAD);
            stepUntil(engine, () -> !engine.describe().contains("LOAD LOAD"));
            assertThat(engine.stats().encoderFree()).isEqualTo(10);
            ec.hold = false;
            stepUntil(engine, () -> engine.describe().contains("unanswered"));
            assertFailed(
                    outcome(engine, engine.submit(withItems(2, item("b", 2, 11)))),
                    ErrorCode.TIMEOUT);
            assertThat(run(engine, withItems(3, item("c", 2, 10))).tokens()).hasSize(5);
            ec.answered.add(TransferId.Direction.SAVE);
            stepUntil(engine, () -> engine.stats().encoderFree() == 20);
            assertThat(engine.stats().held()).isZero();
        }
    }

    @Test
    void failsRequestsWhoseRevokedLoadIsNeverAnswered() {
        ec.store.put("a", new byte[320]);
        ec.silent = true;
        try (var engine =
                Engine.open(
                        encoding(20)
                                .loadLimit(Duration.ofMillis(5))
                                .revokeLimit(Duration.ofMillis(5))
                                .closeLimit(Duration.ofMillis(5))
                                .ecConnector(ec, ec.config()))) {
            assertFailed(
                    outcome(engine, engine.submit(withItems(1, item("a", 2, 10)))),
                    ErrorCode.TIMEOUT);
            assertFailed(
                    outcome(engine, engine.submit(withItems(2, item("a", 2, 10)))),
                    ErrorCode.TIMEOUT);
            assertFailed(
                    outcome(engine, engine.submit(withItems(3, item("b", 2, 11)))),
                    ErrorCode.TIMEOUT);
            assertThat(run(engine, withItems(4, item("c", 2, 10))).tokens()).hasSize(5);
            ec.silent = false;
            for (int i = 0; i < 10 && engine.stats().encoderFree() < 20; i++) {
                engine.step();
            }
            assertThat(engine.stats().encoderFree()).isEqualTo(20);
            ec.store.put("a", EncoderTest.encoded("a", 10));
            assertThat(run(engine, withItems(5, item("a", 2, 10))).tokens()).hasSize(5);
        }
    }
}
