// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.Outcomes.assertFailed;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.SOON;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.testkit.FakeRequest;
import io.kvferry.backend.mooncake.p2p.testkit.Heard;
import io.kvferry.backend.mooncake.p2p.testkit.Stranger;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.locks.LockSupport;

/// Prefiller and decoder in one JVM, over the real transfer engine.
class HandOverTest {
    private static TestEngine prefiller(Shape shape, Map<String, Object> options) {
        return new TestEngine(shape, KvRole.PRODUCER, "p", options);
    }

    private static TestEngine decoder(Shape shape, Map<String, Object> options) {
        return new TestEngine(shape, KvRole.CONSUMER, "d", options);
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void handsAPromptOverInEitherOrder(boolean prefillFirst) {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var source = p.request("p-1", 70, 5, decodeElsewhere("x"));
            var target = d.request("d-1", 70, 20, prefillAt(p.bootstrap, "p", "x"));
            TransferId load;
            TransferId hold;
            if (prefillFirst) {
                hold = p.prefill(source, 3);
                load = d.beginDecode(target, 0);
            } else {
                load = d.beginDecode(target, 0);
                hold = p.prefill(source, 3);
            }
            assertThat(d.await(load)).isEqualTo(new Completion.Completed(5L * 3 * 1024));
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 3);
            assertThat(p.stats.counters().getOrDefault("mooncake_num_successful_transfers", 0L))
                    .isEqualTo(1);
            assertThat(
                            Objects.requireNonNull(
                                            p.stats.distributions().get("mooncake_num_descriptors"))
                                    .sum())
                    .as("adjacent blocks travel together")
                    .isEqualTo(3);
        }
    }

    @Test
    void fetchesOnlyWhatTheDecoderLacks() {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var hold = p.prefill(p.request("p-1", 70, 5, decodeElsewhere("x")), 3);
            var target = d.request("d-1", 70, 20, prefillAt(p.bootstrap, "p", "x"));
            assertThat(d.await(d.beginDecode(target, 32)))
                    .isEqualTo(new Completion.Completed(3L * 3 * 1024));
            d.assertHolds(target, 2, 3);
            d.assertUntouched(d.request("local", 32, 20, Map.of()));
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
        }
    }

    @Test
    void aFullLocalHitFreesThePrefiller() {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var hold = p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 3);
            d.beginDecode(d.request("d-1", 64, 20, prefillAt(p.bootstrap, "p", "x")), 64);
            assertThat(p.await(hold)).isEqualTo(new Completion.Completed(0));
            assertThat(d.results).isEmpty();
        }
    }

    /// A composite asks for a piece in the middle where another connector left a gap.
    @Test
    void aLoadThatIsNotTheEndOfThePromptFailsAndFreesThePrefiller() {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var hold = p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 3);
            var target = d.request("d-1", 64, 20, prefillAt(p.bootstrap, "p", "x"));
            d.scheduler.onRequest(target);
            assertThat(d.scheduler.lookup(target, 16)).isInstanceOf(LookupResult.Hit.class);
            var gap = new LoadAssignment(TransferId.load(target.id(), 0), 16, 32, LoadMode.ASYNC);
            d.scheduler.onAllocated(target, target.table(), gap);
            d.step();
            assertThat(d.await(gap.id())).isNotInstanceOf(Completion.Completed.class);
            assertThat(p.await(hold)).isEqualTo(new Completion.Completed(0));
            d.assertUntouched(target);
        }
    }

    @Test
    void anAbortBeforeSchedulingFreesThePrefiller() {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var target = d.request("d-1", 64, 20, prefillAt(p.bootstrap, "p", "x"));
            d.scheduler.onRequest(target);
            assertThat(d.finish(target, BlockTable.EMPTY, FinishReason.ABORT))
                    .isEqualTo(FinishDecision.RELEASE);
            assertThat(p.await(p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 3)))
                    .isEqualTo(new Completion.Completed(0));
        }
    }

    /// A client that gives up and asks again under the same name: the first prefill is let go of,
    /// and the second is fetched.
    @Test
    void twoPullsOfOneNameInAStepAreTwo() {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var first = p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x1")), 3);
            var second = p.prefill(p.request("p-2", 64, 12, decodeElsewhere("x2")), 4);
            var given = d.request("d", 64, 20, prefillAt(p.bootstrap, "p", "x1"));
            d.scheduler.onRequest(given);
            d.scheduler.finish(given, BlockTable.EMPTY, FinishReason.ABORT);
            var target = d.request("d", 64, 30, prefillAt(p.bootstrap, "p", "x2"));
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 4);
            assertThat(p.await(second)).isInstanceOf(Completion.Completed.class);
            assertThat(p.await(first)).isEqualTo(new Completion.Completed(0));
        }
    }

    @Test
    void anEndTokenOnTheFirstStepStillHandsThePromptOver() {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var target = d.request("d-1", 64, 20, prefillAt(p.bootstrap, "p", "x"));
            var load = d.beginDecode(target, 0);
            var source = p.request("p-1", 64, 5, decodeElsewhere("x"));
            p.beginPrefill(source);
            p.compute(source, 9);
            var hold = p.endPrefill(source, FinishReason.STOP);
            assertThat(d.await(load)).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 9);
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void anAbortedPrefillFailsTheDecoderAtOnce(boolean decoderFirst) {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var target = d.request("d-1", 64, 20, prefillAt(p.bootstrap, "p", "x"));
            var source = p.request("p-1", 64, 5, decodeElsewhere("x"));
            var load = decoderFirst ? d.beginDecode(target, 0) : TransferId.load("d-1", 0);
            p.beginPrefill(source);
            assertThat(p.finish(source, source.table(), FinishReason.ABORT))
                    .isEqualTo(FinishDecision.RELEASE);
            if (!decoderFirst) {
                d.beginDecode(target, 0);
            }
            assertFailed(d.await(load), ErrorCode.PEER_REFUSED, "ABORT");
            d.assertUntouched(target);
        }
    }

    @Test
    void aRevokedLoadIsNeverWrittenLater() {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var target = d.request("d-1", 64, 20, prefillAt(p.bootstrap, "p", "x"));
            // One message asks for both: it has come when the other one is served.
            var load = d.admitDecode(target, 0);
            d.await(
                    d.beginDecode(d.request("d-2", 64, 40, prefillAt(p.bootstrap, "p", "y")), 0),
                    p,
                    "y");
            d.revoke(load);
            assertThat(d.await(load)).isEqualTo(new Completion.Revoked());
            var hold = p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 3);
            assertThat(p.await(hold))
                    .as("freed, though the write was refused")
                    .isInstanceOf(Completion.Failed.class);
            d.assertUntouched(target);
        }
    }

    @Test
    void anExpiredHoldIsRefusedAtOnce() {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var hold = p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 3);
            p.revoke(hold);
            assertThat(p.await(hold)).isEqualTo(new Completion.Revoked());
            var target = d.request("d-1", 64, 20, prefillAt(p.bootstrap, "p", "x"));
            assertFailed(
                    d.await(d.beginDecode(target, 0)), ErrorCode.PEER_REFUSED, "no longer holds");
            d.assertUntouched(target);
        }
    }

    @Test
    void anUnclaimedRequestExpiresOnBothSides() {
        try (var p = prefiller(Shape.SMALL, Map.of("abort_request_timeout", "300ms"));
                var d = decoder(Shape.SMALL, Map.of())) {
            var target = d.request("d-1", 64, 20, prefillAt(p.bootstrap, "p", "never"));
            assertFailed(
                    d.await(d.beginDecode(target, 0)),
                    ErrorCode.PEER_REFUSED,
                    "Timeout waiting for P side ready.");
        }
    }

    @ParameterizedTest
    @CsvSource({
        "2,2,2", "1,2,2", "2,1,2", "4,2,2", "4,1,2", "2,4,2", "8,4,2", "4,8,2", "4,2,4", "1,4,8",
        "3,3,3"
    })
    void splitsAndJoinsHeadsAcrossTensorParallelSizes(int prefillTp, int decodeTp, int heads) {
        var shape = new Shape(1, heads, 2, 1, 48, 256, false);
        try (var p = prefiller(shape.withTp(prefillTp), Map.of());
                var d = decoder(shape.withTp(decodeTp), Map.of())) {
            var target = d.request("d-1", 100, 30, prefillAt(p.bootstrap, "p", "x"));
            var load = d.beginDecode(target, 16);
            var hold = p.prefill(p.request("p-1", 100, 3, decodeElsewhere("x")), 77);
            assertThat(d.await(load)).isInstanceOf(Completion.Completed.class);
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 1, 77);
        }
    }

    @ParameterizedTest
    @CsvSource({
        "1,1,4", "1,2,4", "2,1,4", "2,4,4", "4,2,4", "1,4,4", "4,1,4", "4,2,2", "2,4,2", "8,1,4",
        "1,8,4"
    })
    void splitsAndJoinsHeadsThatLieTogetherWithinATokenToo(int prefillTp, int decodeTp, int heads) {
        var shape = new Shape(1, heads, 4, 2, 48, 256, false).withLayout(KvLayout.LBNHC);
        try (var p = prefiller(shape.withTp(prefillTp), Map.of());
                var d = decoder(shape.withTp(decodeTp), Map.of())) {
            var target = d.request("d-1", 100, 30, prefillAt(p.bootstrap, "p", "x"));
            var load = d.beginDecode(target, 16);
            var hold = p.prefill(p.request("p-1", 100, 3, decodeElsewhere("x")), 77);
            assertThat(d.await(load)).isInstanceOf(Completion.Completed.class);
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 1, 77);
            d.assertUntouched(d.request("before", 16, 29, Map.of()));
            d.assertUntouched(d.request("after", 16, 37, Map.of()));
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void blocksOfAnotherLayoutFailWithTheReason(int decodeTp) {
        var shape = new Shape(1, 2, 2, 1, 48, 256, false);
        try (var p = prefiller(shape, Map.of());
                var d = decoder(shape.withLayout(KvLayout.LBNHC).withTp(decodeTp), Map.of())) {
            p.prefill(p.request("p-1", 100, 3, decodeElsewhere("x")), 77);
            var target = d.request("d-1", 100, 30, prefillAt(p.bootstrap, "p", "x"));
            assertFailed(
                    d.await(d.beginDecode(target, 0)),
                    ErrorCode.PEER_REFUSED,
                    "laid out as LBHNC-1 on P and as LBNHC-1 on D");
            d.assertUntouched(target);
        }
    }

    @ParameterizedTest
    @CsvSource({"1,2", "2,1", "2,2", "1,4", "4,1", "2,4"})
    void layersFindEachOtherAcrossPipelineStages(int prefillPp, int decodePp) {
        var shape = new Shape(2, 2, 4, 1, 48, 256, false);
        try (var p = prefiller(shape.withPp(prefillPp), Map.of());
                var d = decoder(shape.withTp(1).withPp(decodePp), Map.of())) {
            var target = d.request("d-1", 100, 30, prefillAt(p.bootstrap, "p", "x"));
            var load = d.beginDecode(target, 16);
            var hold = p.prefill(p.request("p-1", 100, 3, decodeElsewhere("x")), 77);
            assertThat(d.await(load)).isInstanceOf(Completion.Completed.class);
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 1, 77);
        }
    }

    @Test
    void aDecoderThatCannotTellItsPipelineStagesIsRefused() {
        var shape = new Shape(1, 2, 4, 1, 48, 256, false);
        try (var p = prefiller(shape, Map.of());
                var d = decoder(shape.withPp(2), Map.of("wire_generation", "G5"))) {
            p.prefill(p.request("p-1", 100, 3, decodeElsewhere("x")), 77);
            var target = d.request("d-1", 100, 30, prefillAt(p.bootstrap, "p", "x"));
            assertFailed(
                    d.await(d.beginDecode(target, 0)),
                    ErrorCode.PEER_REFUSED,
                    "no region for layer");
            d.assertUntouched(target);
        }
    }

    @Test
    void sizesThatDoNotDivideFailWithTheReason() {
        var shape = new Shape(1, 6, 2, 1, 48, 256, false);
        try (var p = prefiller(shape.withTp(2), Map.of());
                var d = decoder(shape.withTp(3), Map.of())) {
            p.prefill(p.request("p-1", 100, 3, decodeElsewhere("x")), 77);
            var target = d.request("d-1", 100, 30, prefillAt(p.bootstrap, "p", "x"));
            assertFailed(d.await(d.beginDecode(target, 0)), ErrorCode.INCOMPATIBLE, "must divide");
        }
    }

    @Test
    void layoutsThatDoNotFitFailWithTheReason() {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(new Shape(1, 2, 3, 1, 64, 256, false), Map.of());
                var deeper = decoder(new Shape(1, 2, 2, 1, 64, 512, false), Map.of())) {
            p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 3);
            var target = d.request("d-1", 64, 20, prefillAt(p.bootstrap, "p", "x"));
            assertFailed(
                    d.await(d.beginDecode(target, 0)), ErrorCode.PEER_REFUSED, "KV block length");
            var other = deeper.request("d-2", 64, 20, prefillAt(p.bootstrap, "p", "x"));
            assertFailed(
                    deeper.await(deeper.beginDecode(other, 0)),
                    ErrorCode.PEER_REFUSED,
                    "no region for layer");
        }
    }

    @Test
    void severalGroupsAndInterleavedLayersKeepTheirBytes() {
        var shape = new Shape(1, 2, 4, 2, 32, 512, true);
        try (var p = prefiller(shape, Map.of());
                var d = decoder(shape.withGroups(2), Map.of())) {
            var hold = p.prefill(p.request("p-1", 100, 3, decodeElsewhere("x")), 8);
            var target = d.request("d-1", 100, 10, prefillAt(p.bootstrap, "p", "x"));
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 8);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"G2", "G3", "G3B", "G4", "G5", "G6", "G7"})
    void everyGenerationMovesTheSameBytes(String generation) {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of("wire_generation", generation))) {
            for (int i = 0; i < 3; i++) { // the second and third use the short form in G7
                var hold = p.prefill(p.request("p-" + i, 64, 5 * i, decodeElsewhere("x" + i)), i);
                var target =
                        d.request("d-" + i, 64, 20 + 5 * i, prefillAt(p.bootstrap, "p", "x" + i));
                assertThat(d.await(d.beginDecode(target, 0)))
                        .isInstanceOf(Completion.Completed.class);
                assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
                d.assertHolds(target, 0, i);
            }
        }
    }

    @Test
    void manyRequestsOfOneStepTravelTogether() {
        var shape = new Shape(1, 2, 3, 1, 2048, 128, false);
        try (var p = prefiller(shape, Map.of("num_workers", 4));
                var d = decoder(shape, Map.of())) {
            var loads = new ArrayList<TransferId>();
            var targets = new ArrayList<FakeRequest>();
            for (int i = 0; i < 200; i++) {
                var target = d.request("d-" + i, 64, 4 * i, prefillAt(p.bootstrap, "p", "x" + i));
                targets.add(target);
                loads.add(d.beginDecode(target, 0));
            }
            var holds = new ArrayList<TransferId>();
            for (int i = 199; i >= 0; i--) {
                holds.add(p.prefill(p.request("p-" + i, 64, 4 * i, decodeElsewhere("x" + i)), i));
            }
            loads.forEach(
                    load -> assertThat(d.await(load)).isInstanceOf(Completion.Completed.class));
            holds.forEach(
                    hold -> assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class));
            for (int i = 0; i < 200; i++) {
                d.assertHolds(targets.get(i), 0, i);
            }
        }
    }

    @Test
    void aPrefillerThatDiesIsNoticedAtOnceAndItsSuccessorIsFound() {
        try (var d = decoder(Shape.SMALL, Map.of())) {
            int port;
            var waiting = d.request("d-1", 64, 0, Map.of());
            TransferId load;
            try (var p = prefiller(Shape.SMALL, Map.of())) {
                port = Integer.parseInt(p.bootstrap.substring(p.bootstrap.lastIndexOf(':') + 1));
                waiting = d.request("d-1", 64, 0, prefillAt(p.bootstrap, "p", "x"));
                load = d.admitDecode(waiting, 0); // in one message with what follows
                d.await(
                        d.beginDecode(
                                d.request("d-2", 64, 40, prefillAt(p.bootstrap, "p", "y")), 0),
                        p,
                        "y");
            }
            assertFailed(d.await(load), ErrorCode.PEER_LOST, "prefiller at");
            d.assertUntouched(waiting);
            try (var again = prefiller(Shape.SMALL, Map.of("bootstrap_port", port))) {
                again.prefill(again.request("p-3", 64, 5, decodeElsewhere("z")), 5);
                var target = d.request("d-3", 64, 20, prefillAt(again.bootstrap, "p", "z"));
                assertThat(d.await(d.beginDecode(target, 0)))
                        .isInstanceOf(Completion.Completed.class);
                d.assertHolds(target, 0, 5);
            }
        }
    }

    @Test
    void aRestartedDecoderIsServed() {
        try (var p = prefiller(Shape.SMALL, Map.of())) {
            for (int start = 0; start < 3; start++) {
                try (var d = decoder(Shape.SMALL, Map.of())) {
                    var hold =
                            p.prefill(
                                    p.request("p-" + start, 64, 5, decodeElsewhere("x" + start)),
                                    start);
                    var target = d.request("d", 64, 20, prefillAt(p.bootstrap, "p", "x" + start));
                    assertThat(d.await(d.beginDecode(target, 0)))
                            .isInstanceOf(Completion.Completed.class);
                    assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
                    d.assertHolds(target, 0, start);
                }
            }
        }
    }

    @Test
    void aDecoderThatDiedFreesThePrefiller() {
        try (var p = prefiller(Shape.SMALL, Map.of())) {
            try (var d = decoder(Shape.SMALL, Map.of())) {
                // In one message with what follows.
                d.admitDecode(d.request("d-1", 64, 20, prefillAt(p.bootstrap, "p", "x")), 0);
                d.await(
                        d.beginDecode(
                                d.request("d-2", 64, 40, prefillAt(p.bootstrap, "p", "y")), 0),
                        p,
                        "y");
            }
            var hold = p.prefill(p.request("p-1", 64, 5, decodeElsewhere("x")), 3);
            assertThat(p.await(hold)).isInstanceOf(Completion.Failed.class);
        }
    }

    /// A decoder without capabilities asks and dies, and another one gets its port and addresses.
    /// Here it has the same memory, whose blocks belong to another request by then.
    @Test
    void whatADeadDecoderAskedForIsNotWrittenIntoItsSuccessor() throws Exception {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var dead = new Stranger(Generation.G7, 3, 80, 1024)) {
            var address = Stranger.sideChannel(p);
            var channel = new SideChannel("dies");
            // One message asks for both: it has come when the other one is served.
            var heard = new Heard();
            var both = dead.request(Map.of("x", 20, "y", 40), 4);
            channel.exchange(address, both, SOON, SOON, heard);
            p.beginPrefill(p.request("p-1", 64, 5, decodeElsewhere("x")));
            p.prefill(p.request("p-0", 64, 9, decodeElsewhere("y")), 2);
            assertThat(heard.next(SOON).okReqs()).containsExactly("d-y");
            channel.close();
            var limit = Deadline.in(SOON);
            while (p.stats.counters().getOrDefault("mooncake_num_abandoned_reqs", 0L) == 0) {
                assertThat(limit.passed()).as("noticed").isFalse();
                p.step();
                LockSupport.parkNanos(1_000_000);
            }
            var source = p.request("p-1", 64, 5, decodeElsewhere("x"));
            p.compute(source, 3);
            var hold = p.endPrefill(source, FinishReason.LENGTH);
            assertFailed(p.await(hold), ErrorCode.PEER_LOST, "has gone since it asked");
            p.prefill(p.request("p-2", 64, 15, decodeElsewhere("z")), 4);
            assertThat(dead.pull(p, "z", 60, 4).okReqs()).containsExactly("d-z");
            for (int block = 20; block < 24; block++) {
                assertThat(dead.block(0, block).mismatch(MemorySegment.ofArray(new byte[1024])))
                        .isEqualTo(-1);
            }
        }
    }

    @Test
    void unreachableOrUnknownPrefillersFailTheLoad() {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var nowhere = d.request("d-1", 64, 20, prefillAt("http://127.0.0.1:1", "p", "x"));
            assertFailed(d.await(d.beginDecode(nowhere, 0)), ErrorCode.PEER_LOST, "not reachable");
            var malformed = d.request("d-2", 64, 20, prefillAt("nonsense", "p", "x"));
            assertFailed(
                    d.await(d.beginDecode(malformed, 0)),
                    ErrorCode.INVALID_REQUEST,
                    "bootstrap address");
            var unknown = d.request("d-3", 64, 20, prefillAt(p.bootstrap, "someone-else", "x"));
            assertFailed(d.await(d.beginDecode(unknown, 0)), ErrorCode.NOT_FOUND, "not registered");
        }
    }

    @Test
    void incompleteOrMisplacedParamsMeanAMissAndNoWait() {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var incomplete =
                    d.request("d-1", 64, 20, Map.of("do_remote_prefill", true, "transfer_id", "x"));
            d.scheduler.onRequest(incomplete);
            assertThat(d.scheduler.lookup(incomplete, 0)).isEqualTo(LookupResult.MISS);
            var misplaced = p.request("p-1", 64, 20, prefillAt(p.bootstrap, "p", "x"));
            p.scheduler.onRequest(misplaced);
            assertThat(p.scheduler.lookup(misplaced, 0)).isEqualTo(LookupResult.MISS);
            var consumer = d.request("d-2", 64, 20, decodeElsewhere("x"));
            d.scheduler.onRequest(consumer);
            assertThat(d.finish(consumer, consumer.table(), FinishReason.LENGTH))
                    .isEqualTo(FinishDecision.RELEASE);
        }
    }

    @Test
    void aLoadIsPromisedOnce() {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var target = d.request("d-1", 64, 20, prefillAt("http://127.0.0.1:1", "p", "x"));
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Failed.class);
            assertThat(d.scheduler.lookup(target, 0)).isEqualTo(LookupResult.MISS);
            assertThat(p.bootstrap).startsWith("http://127.0.0.1:");
        }
    }

    @Test
    void tellsARouterThatWorksInSequenceWhereTheKvIs() {
        try (var p = prefiller(Shape.SMALL, Map.of());
                var d = decoder(Shape.SMALL, Map.of())) {
            var source =
                    p.request(
                            "p-1",
                            64,
                            5,
                            Map.of("do_remote_decode", true)); // no transfer id: one is drawn
            p.beginPrefill(source);
            p.compute(source, 4);
            var hold = (FinishDecision.Hold) p.finish(source, source.table(), FinishReason.LENGTH);
            var target = d.request("d-1", 64, 20, hold.params().values());
            assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
            d.assertHolds(target, 0, 4);
        }
    }

    @Test
    void oneEngineCanBeBoth() {
        try (var a = new TestEngine(Shape.SMALL, KvRole.BOTH, "a", Map.of());
                var b = new TestEngine(Shape.SMALL, KvRole.BOTH, "b", Map.of())) {
            for (var pair : List.of(List.of(a, b), List.of(b, a))) {
                var from = pair.getFirst();
                var to = pair.getLast();
                from.prefill(from.request("p", 64, 5, decodeElsewhere("x")), 6);
                var target =
                        to.request(
                                "d",
                                64,
                                20,
                                prefillAt(from.bootstrap, from.equals(a) ? "a" : "b", "x"));
                assertThat(to.await(to.beginDecode(target, 0)))
                        .isInstanceOf(Completion.Completed.class);
                to.assertHolds(target, 0, 6);
            }
        }
    }
}
