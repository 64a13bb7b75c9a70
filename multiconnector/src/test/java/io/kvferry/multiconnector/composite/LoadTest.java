// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.tck.faults.ScriptedConnector;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/// Who loads what, and what happens when a load fails.
class LoadTest {
    private final ScriptedConnector a = child("A", Feature.ASYNC_LOAD, Feature.SAVE);
    private final ScriptedConnector b = child("B", Feature.ASYNC_LOAD, Feature.SAVE);
    private final ScriptedConnector c = child("C", Feature.ASYNC_LOAD, Feature.SAVE);
    private final Rig.Request request = new Rig.Request("r", 40);

    private static ScriptedConnector child(String name, Feature... features) {
        return new ScriptedConnector(name, ConnectorCapabilities.of(features));
    }

    /// A child that has the tokens `from` to `to` of every request.
    private static void has(ScriptedConnector child, int from, int to) {
        has(child, from, to, LoadMode.ASYNC);
    }

    private static void has(ScriptedConnector child, int from, int to, LoadMode mode) {
        child.onLookup((_, local) ->
                local >= from && local < to
                        ? LookupResult.hit(to - local, mode, child.name(), Tier.DISK)
                        : LookupResult.MISS);
    }

    private static Completion.Result failed(int... positions) {
        return new Completion.Failed(
                new Failure(ErrorCode.STORAGE_IO, "disk gone"),
                List.of(new Completion.FailedBlocks(0, positions)));
    }

    private Rig rig(String policy) {
        return new Rig(
                1, Rig.multi("\"load_policy\": \"" + policy + "\",", "A", "B", "C"), a, b, c);
    }

    private static LoadAssignment lastLoad(ScriptedConnector child) {
        return child.allocations().getLast().load();
    }

    @Test
    void letsTheFirstChildWithAHitLoadAndTellsTheOthersThatThereIsNothing() {
        has(b, 0, 8);
        has(c, 0, 32);
        try (var rig = rig("first-hit")) {
            var load = rig.admit(request, 0);

            assertThat(load.tokens()).isEqualTo(8);
            assertThat(lastLoad(b)).isEqualTo(load);
            assertThat(lastLoad(a).isEmpty()).isTrue();
            assertThat(lastLoad(c).isEmpty()).isTrue();
            assertThat(a.allocations().getLast().blocks())
                    .as("losers see the real blocks")
                    .hasSize(10);

            assertThat(rig.step().completions())
                    .containsExactly(
                            new Completion(
                                    load.id(), Completion.ALL_RANKS, new Completion.Completed(0)));
        }
    }

    @Test
    void waitsForAnEarlierChildThatDoesNotKnowYet() {
        a.onLookup((_, _) -> new LookupResult.Pending(Duration.ofMillis(7)));
        has(b, 0, 8);
        try (var rig = rig("first-hit")) {
            rig.scheduler.onRequest(request);
            assertThat(rig.scheduler.lookup(request, 0))
                    .isEqualTo(new LookupResult.Pending(Duration.ofMillis(7)));

            a.onLookup((_, _) -> LookupResult.MISS);
            assertThat(rig.allocate(request, 0).tokens()).isEqualTo(8);
        }
    }

    @Test
    void doesNotWaitForAChildBehindTheWinner() {
        has(a, 0, 8);
        b.onLookup((_, _) -> new LookupResult.Pending(Duration.ofMillis(7)));
        try (var rig = rig("first-hit")) {
            assertThat(rig.admit(request, 0).tokens()).isEqualTo(8);
        }
    }

    @Test
    void picksTheLongestHitWhenAskedTo() {
        has(a, 0, 8);
        has(b, 0, 24);
        has(c, 0, 24);
        try (var rig = rig("longest-hit")) {
            assertThat(rig.admit(request, 0).tokens()).isEqualTo(24);
            assertThat(lastLoad(b).tokens()).isEqualTo(24);
            assertThat(lastLoad(c).isEmpty()).isTrue();
        }
    }

    @Test
    void composesAPrefixOfOneChildWithTheRestOfOthers() {
        has(a, 8, 16);
        has(b, 0, 8);
        has(c, 16, 40);
        try (var rig = rig("compose")) {
            rig.scheduler.onRequest(request);
            var found = (LookupResult.Hit) rig.scheduler.lookup(request, 0);
            assertThat(found.shares())
                    .containsExactly(
                            new LookupResult.Share("B", Tier.DISK, 8),
                            new LookupResult.Share("A", Tier.DISK, 8),
                            new LookupResult.Share("C", Tier.DISK, 24));

            var load = rig.allocate(request, 0);
            assertThat(load.tokens()).isEqualTo(40);
            assertThat(lastLoad(b)).isEqualTo(new LoadAssignment(load.id(), 0, 8, LoadMode.ASYNC));
            assertThat(lastLoad(a)).isEqualTo(new LoadAssignment(load.id(), 8, 16, LoadMode.ASYNC));
            assertThat(lastLoad(c))
                    .isEqualTo(new LoadAssignment(load.id(), 16, 40, LoadMode.ASYNC));
            assertThat(rig.step().completions())
                    .singleElement()
                    .extracting(Completion::id)
                    .isEqualTo(load.id());
        }
    }

    @Test
    void composesFromBlockToBlockWhenAHitEndsWithinOne() {
        has(a, 0, 39); // all but the last token, which is the only legal end within a block
        has(b, 36, 40);
        try (var rig = rig("compose")) {
            var load = rig.admit(request, 0);

            assertThat(load.tokens()).isEqualTo(40);
            assertThat(lastLoad(a).toToken()).isEqualTo(36);
            assertThat(lastLoad(b).fromToken()).isEqualTo(36);
        }
    }

    @Test
    void keepsTheTailOfAHitThatNobodyExtends() {
        has(a, 0, 39);
        has(b, 36, 39);
        try (var rig = rig("compose")) {
            assertThat(rig.admit(request, 0).tokens()).isEqualTo(39);
            assertThat(lastLoad(a).toToken()).isEqualTo(39);
            assertThat(lastLoad(b).isEmpty()).isTrue();
        }
    }

    @Test
    void waitsForAllPartsBeforeTheEngineHearsOfTheLoad() {
        has(a, 0, 8);
        has(b, 8, 16);
        var ready = new AtomicBoolean();
        b.loadReady((_, _) -> ready.get());
        try (var rig = rig("compose")) {
            var load = rig.admit(request, 0);
            assertThat(rig.step().completions()).isEmpty();

            ready.set(true);
            assertThat(rig.step().completions())
                    .extracting(Completion::id)
                    .containsExactly(load.id());
            assertThat(rig.step().completions()).isEmpty();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"first-hit", "longest-hit", "compose"})
    void triesTheNextChildForTheBlocksThatOneFailed(String policy) {
        has(a, 0, 32);
        has(b, 0, 32);
        a.onLoad((_, _) -> failed(3, 5));
        try (var rig = rig(policy)) {
            var load = rig.admit(request, 0);

            assertThat(rig.step().completions()).as("held back").isEmpty();
            var retry = lastLoad(b);
            assertThat(retry.fromToken()).isEqualTo(12);
            assertThat(retry.toToken()).isEqualTo(24);
            assertThat(rig.step().completions())
                    .containsExactly(
                            new Completion(
                                    load.id(), Completion.ALL_RANKS, new Completion.Completed(0)));
            assertThat(stats(rig, "multi_failovers")).isEqualTo(1);
        }
    }

    @Test
    void fillsTheGapOfAComposedLoadWhenItsSecondChildFails() {
        has(a, 0, 8);
        has(b, 8, 24);
        has(c, 8, 16);
        b.onLoad((_, _) ->
                new Completion.Failed(new Failure(ErrorCode.PEER_LOST, "gone"), List.of()));
        try (var rig = rig("compose")) {
            var load = rig.admit(request, 0);
            assertThat(load.tokens()).isEqualTo(24);

            assertThat(rig.step().completions()).isEmpty();
            assertThat(lastLoad(c).fromToken()).isEqualTo(8);
            assertThat(lastLoad(c).toToken()).isEqualTo(16);
            var end = rig.step().completions();

            assertThat(end)
                    .singleElement()
                    .satisfies(completion -> {
                        assertThat(completion.id()).isEqualTo(load.id());
                        assertThat(completion.result())
                                .isInstanceOfSatisfying(
                                        Completion.Failed.class,
                                        result -> {
                                            assertThat(result.failure().code())
                                                    .isEqualTo(ErrorCode.PEER_LOST);
                                            assertThat(result.blocks())
                                                    .singleElement()
                                                    .satisfies(blocks -> {
                                                        assertThat(blocks.group()).isZero();
                                                        assertThat(blocks.positions())
                                                                .containsExactly(4, 5);
                                                    });
                                        });
                    });
        }
    }

    @Test
    void namesExactlyTheBlocksThatNobodyCouldLoad() {
        has(a, 0, 32);
        a.onLoad((_, _) -> failed(2));
        try (var rig = rig("first-hit")) {
            rig.admit(request, 0);

            var result = (Completion.Failed) rig.step().completions().getFirst().result();
            assertThat(result.blocks().getFirst().positions()).containsExactly(2);
            assertThat(result.failure().message()).contains("disk gone");
            assertThat(stats(rig, "multi_lost_tokens")).isEqualTo(4);
        }
    }

    @Test
    void doesNotAskAChildAgainForARequestThatItFailed() {
        has(a, 0, 32);
        a.onLoad((_, _) -> failed(2));
        try (var rig = rig("first-hit")) {
            rig.admit(request, 0);
            rig.step();

            assertThat(rig.scheduler.lookup(request, 0)).isEqualTo(LookupResult.MISS);
            assertThat(rig.scheduler.lookup(new Rig.Request("other", 40), 0))
                    .isInstanceOf(LookupResult.Hit.class);
        }
    }

    @Test
    void waitsForASubstituteThatDoesNotKnowYet() {
        has(a, 0, 32);
        a.onLoad((_, _) -> failed(0));
        b.onLookup((_, _) -> new LookupResult.Pending(Duration.ZERO));
        try (var rig = rig("first-hit")) {
            var load = rig.admit(request, 0);
            assertThat(rig.step().completions()).isEmpty();
            assertThat(rig.step().completions()).isEmpty();

            has(b, 0, 32);
            assertThat(rig.step().completions()).isEmpty(); // assigned with this step's report
            assertThat(rig.step().completions())
                    .extracting(Completion::id)
                    .containsExactly(load.id());
        }
    }

    @Test
    void givesUpWaitingForASubstituteAfterItsTime() {
        has(a, 0, 32);
        a.onLoad((_, _) -> failed(0));
        b.onLookup((_, _) -> new LookupResult.Pending(Duration.ZERO));
        try (var rig = new Rig(1, Rig.multi("\"failover_wait\": 0,", "A", "B"), a, b)) {
            rig.admit(request, 0);

            assertThat(rig.step().completions().getFirst().result())
                    .isInstanceOf(Completion.Failed.class);
        }
    }

    @Test
    void makesASyncHitWaitWhenAnotherChildSaves() {
        var sync = child("S", Feature.SYNC_LOAD, Feature.SAVE);
        has(sync, 0, 32, LoadMode.SYNC);
        try (var rig = new Rig(1, Rig.multi("", "S", "B"), sync, b)) {
            var load = rig.admit(request, 0);

            assertThat(load.mode()).isEqualTo(LoadMode.ASYNC);
            assertThat(lastLoad(sync).mode()).isEqualTo(LoadMode.SYNC);
            assertThat(rig.selected.capabilities().features())
                    .contains(Feature.ASYNC_LOAD)
                    .doesNotContain(Feature.SYNC_LOAD);
        }
    }

    @Test
    void leavesASyncHitAloneWhenNobodyElseSaves() {
        var sync = child("S", Feature.SYNC_LOAD, Feature.SAVE);
        var reader = child("R", Feature.ASYNC_LOAD);
        has(sync, 0, 32, LoadMode.SYNC);
        sync.onLoad((_, _) -> failed(1));
        has(reader, 0, 32);
        try (var rig = new Rig(1, Rig.multi("", "S", "R"), sync, reader)) {
            assertThat(rig.admit(request, 0).mode()).isEqualTo(LoadMode.SYNC);
            // The request ran in this step: its failure cannot be held back.
            assertThat(rig.step().completions().getFirst().result())
                    .isInstanceOf(Completion.Failed.class);
        }
    }

    @Test
    void refusesALeaseOfBlocksThatAreStillBeingLoaded() {
        has(a, 0, 16);
        var pool = new TestPool();
        var leasing = new LeasingConnector("L");
        var ready = new AtomicBoolean();
        a.loadReady((_, _) -> ready.get());
        try (var rig = new Rig(1, Rig.multi("", "A", "L"), a, leasing)) {
            rig.scheduler.bindBlockPool(pool);
            rig.admit(request, 0);

            assertThatThrownBy(() -> leasing.lease(TransferId.save("r", 0), 103))
                    .isInstanceOf(KvFerryException.class)
                    .hasMessageContaining("still being loaded");
            try (var _ = leasing.lease(TransferId.save("r", 0), 104)) {
                assertThat(pool.leased()).containsExactly(TransferId.save("r", 0).forChild("L"));
            }

            ready.set(true);
            rig.step();
            BlockPool.Lease afterwards = leasing.lease(TransferId.save("r", 1), 103);
            afterwards.close();
        }
    }

    @Test
    void keepsAChildThatThrowsFromTheOthers() {
        a.onLookup((_, _) -> {
            throw new IllegalStateException("boom");
        });
        has(b, 0, 8);
        try (var rig = rig("first-hit")) {
            assertThat(rig.admit(request, 0).tokens()).isEqualTo(8);
            assertThat(lastLoad(a).isEmpty()).isTrue();
            assertThat(stats(rig, "A/multi_errors")).isEqualTo(1);
            assertThat(rig.events)
                    .anyMatch(event ->
                            event instanceof TraceEvent.Incident incident
                                    && "A".equals(incident.details().get("child")));
        }
    }

    @Test
    void takesAHitBeyondTheRequestAsAMiss() {
        a.onLookup((_, _) -> LookupResult.hit(400, LoadMode.ASYNC, "A", Tier.DISK));
        has(b, 0, 8);
        try (var rig = rig("first-hit")) {
            assertThat(rig.admit(request, 0).tokens()).isEqualTo(8);
        }
    }

    @Test
    void endsTheChildrensPartsWhenTheEngineRevokesALoad() {
        has(a, 0, 8);
        has(b, 8, 16);
        a.loadReady((_, _) -> false);
        b.loadReady((_, _) -> false);
        try (var rig =
                new Rig(2, Rig.multi("\"load_policy\": \"compose\",", "A", "B", "C"), a, b, c)) {
            var load = rig.admit(request, 0);
            rig.step();
            rig.revoke(load.id());
            var end = rig.step().completions();

            assertThat(end)
                    .containsExactly(
                            new Completion(
                                    load.id(), Completion.ALL_RANKS, new Completion.Revoked()));
            assertThat(a.revoked()).containsExactly(load.id());
            assertThat(b.revoked()).containsExactly(load.id());
            assertThat(c.revoked()).isEmpty();
            assertThat(rig.unfinishedMerges()).isZero();
        }
    }

    @Test
    void namesTheBlocksOfARevokedPartBesideThoseOfAFailedOne() {
        has(a, 0, 8);
        has(b, 8, 16);
        a.loadReady((_, _) -> false);
        b.onLoad((_, _) -> failed(3));
        try (var rig = rig("compose")) {
            var load = rig.admit(request, 0);
            c.onLookup((_, _) -> new LookupResult.Pending(Duration.ZERO));
            assertThat(rig.step().completions()).as("c may fill the gap").isEmpty();
            rig.revoke(load.id()); // the engine's deadline, while a hangs

            var result = (Completion.Failed) rig.step().completions().getFirst().result();

            assertThat(result.blocks())
                    .singleElement()
                    .satisfies(blocks -> assertThat(blocks.positions()).containsExactly(0, 1, 3));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"group", "before", "behind", "none"})
    void takesAnIllegalFailureAsOneOfTheWholePart(String what) {
        has(a, 8, 16);
        has(b, 0, 8);
        var failure = new Failure(ErrorCode.STORAGE_IO, "disk gone");
        var named =
                switch (what) {
                    case "group" -> new Completion.FailedBlocks(7, new int[] {2});
                    case "before" -> new Completion.FailedBlocks(0, new int[] {3, 1});
                    case "behind" -> new Completion.FailedBlocks(0, new int[] {3, 1 << 30});
                    default -> new Completion.FailedBlocks(0, new int[0]);
                };
        a.onLoad((_, _) -> new Completion.Failed(failure, List.of(named)));
        try (var rig = rig("compose")) {
            var load = rig.admit(request, 0);

            var end = rig.step().completions();

            assertThat(end).extracting(Completion::id).containsExactly(load.id());
            var result = (Completion.Failed) end.getFirst().result();
            assertThat(result.blocks().getFirst().positions()).containsExactly(2, 3);
        }
    }

    @Test
    void dropsACompletionOfALoadThatIsNotOpenYet() {
        has(a, 0, 8);
        var early = TransferId.load(request.id(), 0);
        try (var rig = rig("first-hit")) {
            a.complete(early, 0, new Completion.Completed(1));
            assertThat(rig.step().completions()).isEmpty();
            a.loadReady((_, _) -> false);
            rig.admit(request, 0);
            assertThat(rig.step().completions()).as("not loaded yet").isEmpty();
            a.loadReady((_, _) -> true);
            assertThat(rig.step().completions()).extracting(Completion::id).containsExactly(early);
        }
    }

    @Test
    void answersARevocationThatComesBeforeThePlan() {
        has(a, 0, 8);
        try (var rig = rig("first-hit")) {
            var load = rig.admit(request, 0);
            rig.revoke(load.id());

            assertThat(rig.step().completions())
                    .containsExactly(
                            new Completion(
                                    load.id(), Completion.ALL_RANKS, new Completion.Revoked()));
        }
    }

    @Test
    void answersARevocationWhileASubstituteIsSought() {
        has(a, 0, 32);
        a.onLoad((_, _) -> failed(0));
        b.onLookup((_, _) -> new LookupResult.Pending(Duration.ZERO));
        try (var rig = rig("first-hit")) {
            var load = rig.admit(request, 0);
            rig.step();
            rig.revoke(load.id());

            assertThat(rig.step().completions())
                    .extracting(Completion::id)
                    .containsExactly(load.id());
            assertThat(rig.step().completions()).isEmpty();
        }
    }

    @Test
    void triesNobodyForARequestThatHasEnded() {
        has(a, 0, 32);
        has(b, 0, 32);
        var ready = new AtomicBoolean();
        a.loadReady((_, _) -> ready.get());
        a.onLoad((_, _) -> failed(0));
        try (var rig = rig("first-hit")) {
            rig.admit(request, 0);
            rig.step();
            rig.scheduler.finish(request, request.blocks(), FinishReason.ABORT);
            ready.set(true);

            assertThat(rig.step().completions()).hasSize(1);
            assertThat(b.allocations()).allMatch(allocation -> allocation.load().isEmpty());
        }
    }

    @Test
    void dropsLoadsThatAreNotOpenAndPassesUnknownSavesOn() {
        has(a, 0, 8);
        try (var rig = rig("first-hit")) {
            var load = rig.admit(request, 0);
            rig.step();
            a.complete(load.id(), 0, new Completion.Completed(1));
            a.complete(TransferId.load("nobody", 3), 0, new Completion.Completed(1));
            a.complete(TransferId.save("nobody", 3), 0, new Completion.Completed(1));

            assertThat(rig.step().completions())
                    .extracting(Completion::id)
                    .containsExactly(TransferId.save("nobody", 3).forChild("A"));
            assertThat(
                            rig.lastReports
                                    .getFirst()
                                    .stats()
                                    .counters()
                                    .getOrDefault("A/multi_unknown_loads", 0L))
                    .isEqualTo(2);
        }
    }

    @Test
    void explainsWhoLoadsAndWhyNotTheOthers() {
        has(b, 0, 8);
        has(c, 0, 16);
        try (var rig = rig("first-hit")) {
            rig.admit(request, 0);

            assertThat(rig.events)
                    .contains(
                            new TraceEvent.Decision(
                                    "r",
                                    "load-source",
                                    "MultiConnector",
                                    "B",
                                    List.of(
                                            new TraceEvent.Rejected("A", "miss"),
                                            new TraceEvent.Rejected(
                                                    "C", "hit of 16 tokens, not preferred")),
                                    8));
        }
    }

    @Test
    void loadsThroughANestedComposite() {
        has(c, 0, 16);
        has(b, 0, 32);
        c.onLoad((_, _) -> failed(1));
        var inner =
                """
                {"name": "inner", "kv_connector": "MultiConnector", "kv_connector_extra_config":
                  {"connectors": [{"kv_connector": "A"}, {"kv_connector": "C", "name": "disk"}]}}\
                """;
        try (var rig = new Rig(2, Rig.multi("", inner, "B"), a, b, c)) {
            var load = rig.admit(request, 0);
            assertThat(load.tokens()).isEqualTo(16);

            assertThat(rig.step().completions()).isEmpty();
            assertThat(rig.lastReports.getFirst().completions())
                    .extracting(Completion::id)
                    .containsExactly(load.id().forChild("inner/disk"));
            assertThat(lastLoad(b).fromToken()).as("the outer composite fails over").isEqualTo(4);
            assertThat(lastLoad(b).toToken()).isEqualTo(8);
            assertThat(rig.step().completions())
                    .containsExactly(
                            new Completion(
                                    load.id(), Completion.ALL_RANKS, new Completion.Completed(0)));
        }
    }

    /// The inner composite tries A on its own account, and once more on the outer one's.
    @Test
    void givesEachTryAnIdOfItsOwnWhenNested() {
        has(a, 0, 16);
        has(b, 8, 16);
        has(c, 0, 8);
        c.onLoad((_, _) -> failed(0));
        b.onLoad((_, _) -> failed(2));
        var bFails = new AtomicBoolean();
        b.loadReady((_, _) -> bFails.get());
        var inner =
                """
                {"name": "inner", "kv_connector": "MultiConnector", "kv_connector_extra_config":
                  {"connectors": [{"kv_connector": "C"}, {"kv_connector": "A"}]}}\
                """;
        try (var rig =
                new Rig(1, Rig.multi("\"load_policy\": \"compose\",", inner, "B"), a, b, c)) {
            var load = rig.admit(request, 0);
            assertThat(load.tokens()).isEqualTo(16);
            rig.step(); // c fails, the inner composite tries a
            rig.step(); // a brings its part
            bFails.set(true);
            rig.step(); // b fails, the outer composite tries the inner one
            assertThat(rig.step().completions())
                    .containsExactly(
                            new Completion(
                                    load.id(), Completion.ALL_RANKS, new Completion.Completed(0)));
            assertThat(a.allocations())
                    .filteredOn(allocation -> !allocation.load().isEmpty())
                    .extracting(allocation -> allocation.load().id())
                    .hasSize(2)
                    .doesNotHaveDuplicates();
        }
    }

    @Test
    void keepsTwoChildrenOfOneClassApart() {
        var one =
                """
                {"kv_connector": "A", "kv_connector_extra_config": {"note": "1"}}\
                """;
        has(a, 0, 16);
        try (var rig = new Rig(1, Rig.multi("", one, one), a)) {
            var load = rig.admit(request, 0);
            rig.step();
            assertThat(rig.lastReports.getFirst().completions())
                    .extracting(completion -> completion.id().child())
                    .containsExactly("A");
            assertThat(a.allocations())
                    .extracting(allocation -> allocation.load().tokens())
                    .containsExactly(16, 0);
            assertThat(load.tokens()).isEqualTo(16);
        }
    }

    private static long stats(Rig rig, String counter) {
        return rig.scheduler.drainStats().counters().getOrDefault(counter, 0L);
    }
}
