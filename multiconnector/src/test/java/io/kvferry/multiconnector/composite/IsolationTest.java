// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.tck.faults.ScriptedConnector;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// Calls reach the right child through the composite, and a child's failures do not reach the
/// engine.
class IsolationTest {
    private final LeasingConnector leasing = new LeasingConnector("L");
    private final ScriptedConnector scripted =
            new ScriptedConnector("S", ConnectorCapabilities.of(Feature.ASYNC_LOAD, Feature.HOLD));
    private final Rig.Request request = new Rig.Request("r", 40);

    private Rig rig(int ranks) {
        return new Rig(ranks, Rig.multi("", "L", "S"), leasing, scripted);
    }

    private final Deadline soon = Deadline.in(Duration.ofSeconds(10));

    @Test
    void carriesPlansAndHandshakesToTheirChildOnly() {
        try (var rig = rig(2)) {
            assertThat(leasing.calls).contains("onHandshakes L0", "onHandshakes L1");
            rig.step();
            assertThat(leasing.calls).contains("beginStep v3 plan of L");
        }
    }

    @Test
    void prefixesStatsAndPassesAllEventsOn() {
        try (var rig = rig(1)) {
            rig.step();

            var report = rig.lastReports.getFirst();
            assertThat(report.stats().counters()).isEqualTo(Map.of("L/loads", 1L));
            assertThat(report.events()).hasSize(1);
            var observer = rig.scheduler;
            assertThat(observer.drainStats().counters()).isEqualTo(Map.of("L/lookups", 3L));
            assertThat(observer.drainEvents()).hasSize(1);
        }
    }

    @Test
    void asksChildrenForPendingWorkAndResets() {
        try (var rig = new Rig(1, Rig.multi("", "L", "S"), leasing, scripted)) {
            var cache = rig.scheduler;
            assertThat(cache.pendingWork()).isEmpty();
            leasing.pending = Optional.of(soon);
            assertThat(cache.pendingWork()).contains(soon);

            assertThat(cache.resetCache(soon).toCompletableFuture()).isCompletedWithValue(true);
            leasing.resets = false;
            assertThat(cache.resetCache(soon).toCompletableFuture()).isCompletedWithValue(false);
        }
    }

    @Test
    void doesNotClaimAResetThatAChildCannotDo() {
        var store = new ScriptedConnector("S", ConnectorCapabilities.of(Feature.CONTENT_ADDRESSED));
        try (var rig = new Rig(1, Rig.multi("", "L", "S"), leasing, store)) {
            assertThat(rig.selected.capabilities().has(Feature.RESET)).isFalse();
        }
    }

    @Test
    void renewsTheHoldOfAChildUnderItsNameOutside() {
        var pool = new TestPool();
        try (var rig = rig(1)) {
            rig.scheduler.bindBlockPool(pool);
            assertThat(leasing.renewHold(TransferId.save("r", 7), soon)).contains(soon);
            assertThat(pool.renewed).containsExactly(TransferId.save("r", 7).forChild("L"));
        }
    }

    @Test
    void routesTheRevocationOfALeaseToItsChild() {
        var pool = new TestPool();
        try (var rig = rig(1)) {
            rig.scheduler.bindBlockPool(pool);
            leasing.lease(TransferId.save("r", 7), 3);
            rig.step();
            rig.revoke(TransferId.save("r", 7).forChild("L"));

            assertThat(rig.step().completions())
                    .containsExactly(
                            new Completion(
                                    TransferId.save("r", 7).forChild("L"),
                                    Completion.ALL_RANKS,
                                    new Completion.Revoked()));
            assertThat(scripted.revoked()).isEmpty();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"beginStep", "endStep"})
    void goesOnWithoutAChildWhoseWorkerHalfThrows(String call) {
        var broken = new LeasingConnector("S");
        broken.brokenCall = call;
        try (var rig = new Rig(2, Rig.multi("", "L", "S"), leasing, broken)) {
            rig.scheduler.bindBlockPool(new TestPool());
            var lease = TransferId.save("r", 1);
            broken.lease(lease, 3);

            assertThat(rig.step().completions())
                    .singleElement()
                    .satisfies(completion -> {
                        assertThat(completion.id()).isEqualTo(lease.forChild("S"));
                        assertThat(completion.result())
                                .isInstanceOfSatisfying(
                                        Completion.Failed.class,
                                        failed -> {
                                            assertThat(failed.failure().code())
                                                    .isEqualTo(ErrorCode.INTERNAL);
                                            assertThat(failed.failure().message())
                                                    .contains("MultiConnector/S", call, "injected");
                                        });
                    });

            assertThat(broken.calls)
                    .as("closed before its transfers are called failed")
                    .contains("close worker");
            broken.calls.clear();
            assertThatThrownBy(() -> broken.lease(TransferId.save("r", 2), 3))
                    .hasMessageContaining("S is off");
            rig.step();
            assertThat(broken.calls).doesNotContain(call, "endStep", "close worker");
            assertThat(leasing.calls).contains("endStep");
        }
    }

    @Test
    void failsOverWhenAWorkerHalfBreaksDuringItsLoad() {
        var fragile = new FragileConnector("F");
        scripted.onLookup(
                (_, local) -> LookupResult.hit(32 - local, LoadMode.ASYNC, "S", Tier.HOST));
        try (var rig = new Rig(2, Rig.multi("", "F", "S"), fragile.provider, scripted)) {
            var load = rig.admit(request, 0);
            assertThat(rig.step().completions()).isEmpty();
            assertThat(rig.step().completions())
                    .containsExactly(
                            new Completion(
                                    load.id(), Completion.ALL_RANKS, new Completion.Completed(0)));
            var later = rig.admit(new Rig.Request("r2", 40), 0);
            assertThat(scripted.allocations().getLast().load())
                    .as("a broken child is not asked any more")
                    .isEqualTo(later);
        }
    }

    @Test
    void drivesLayersOfALoadThatTheRequestWaitsFor() {
        var layerwise = new FragileConnector("F");
        layerwise.throwing = false;
        layerwise.mode = LoadMode.SYNC;
        try (var rig = new Rig(1, Rig.multi("", "F", "L"), layerwise.provider, leasing)) {
            assertThat(rig.admit(request, 0).mode()).isEqualTo(LoadMode.ASYNC);
            rig.step();
            assertThat(layerwise.layers).containsExactly(0, 1);
            rig.step();
            assertThat(layerwise.layers)
                    .as("only in the step of such a load")
                    .containsExactly(0, 1);
        }
    }

    @Test
    void keepsASchedulerHalfThatThrowsFromTheOthers() {
        leasing.brokenCall = "buildPlan";
        scripted.onFinish((view, _) ->
                new FinishDecision.Hold(
                        TransferId.save(view.id(), 0),
                        Deadline.in(Duration.ofSeconds(9)),
                        TransferParams.EMPTY));
        try (var rig = rig(1)) {
            rig.scheduler.onRequest(request);
            var hold =
                    (FinishDecision.Hold)
                            rig.scheduler.finish(request, request.blocks(), FinishReason.STOP);
            scripted.complete(TransferId.save("r", 0), 0, new Completion.Completed(1));

            assertThat(rig.step().completions())
                    .extracting(Completion::id)
                    .containsExactly(hold.id());
        }
    }

    @Test
    void closesEveryChildEvenWhenOneThrows() {
        var second = new LeasingConnector("S");
        var rig = new Rig(1, Rig.multi("", "L", "S"), leasing, second);
        leasing.brokenCall = "close scheduler";
        assertThatThrownBy(rig.scheduler::close).hasMessageContaining("MultiConnector/L");
        leasing.brokenCall = "";
        assertThat(second.calls).contains("close scheduler");
        rig.close();
        assertThat(second.calls).contains("close worker");
    }

    @Test
    void shipsNothingOnAStepInWhichNobodyHasAnythingToSay() {
        try (var rig = new Rig(1, Rig.multi("", "S"), scripted)) {
            rig.step();
            assertThat(rig.lastReports)
                    .allSatisfy(report ->
                            assertThat(report)
                                    .isEqualTo(
                                            new StepReport(
                                                    report.rank(),
                                                    report.step(),
                                                    List.of(),
                                                    Payload.EMPTY,
                                                    Stats.EMPTY,
                                                    List.of())));
        }
    }

    @Test
    void showsEachChildItsOwnParamsInStepsToo() {
        var params = new TransferParams(Map.of("L", Map.of("x", 1L), "x", 0L));
        var named = new Rig.Request("r", 40, params, 0);
        try (var rig = rig(1)) {
            rig.scheduler.onRequest(named);
            rig.scheduled.add(named.scheduled(0, 8));
            rig.step();
            rig.scheduler.finish(named, named.blocks(), FinishReason.STOP);

            assertThat(leasing.calls).contains("finish {x=1}");
            assertThat(leasing.calls).contains("step r {x=1}");
        }
    }

    @Test
    void completesNothingTwice() {
        scripted.onLookup(
                (_, local) -> LookupResult.hit(16 - local, LoadMode.ASYNC, "S", Tier.HOST));
        try (var rig = rig(2)) {
            var load = rig.admit(request, 0);
            var first = rig.step().completions();
            assertThat(first).extracting(Completion::id).isEqualTo(List.of(load.id()));
            assertThat(rig.step().completions()).isEmpty();
        }
    }
}
