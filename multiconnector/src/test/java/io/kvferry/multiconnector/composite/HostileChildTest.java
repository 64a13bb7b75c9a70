// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.tck.faults.Probe;
import io.kvferry.tck.faults.ScriptedConnector;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.stream.Stream;

/// One child misbehaves in one method of its halves, for each method and each position of the
/// child. Loads and holds of the other child must work as if it were alone.
class HostileChildTest {
    private static final Feature[] CLAIMED = {
        Feature.ASYNC_LOAD,
        Feature.HOLD,
        Feature.BLOCK_LEASES,
        Feature.RESET,
        Feature.EVENTS,
        Feature.LAYERWISE_LOAD,
        Feature.LAYERWISE_SAVE
    };

    /// What is called before the engine has started, which then does not start, and `close`, which
    /// tells the engine what may still touch its memory.
    private static final Set<String> OPENING =
            Set.of(
                    "bindBlockPool",
                    "onHandshakes",
                    "provideMemory",
                    "registerRegions",
                    "handshake",
                    "close");

    private final Deadline soon = Deadline.in(Duration.ofSeconds(10));
    private final TransferId hold = TransferId.save("r", 0);
    private final Rig.Request request = new Rig.Request("r", 40);
    private final ScriptedConnector good =
            new ScriptedConnector(
                    "good",
                    ConnectorCapabilities.of(Feature.ASYNC_LOAD, Feature.HOLD, Feature.RESET));

    private record Case(String method, boolean isNull, boolean first) {}

    static Stream<Case> cases() {
        return Stream.of(SchedulerConnector.class, WorkerConnector.class)
                .flatMap(half -> Arrays.stream(half.getMethods()))
                .filter(method -> !Modifier.isStatic(method.getModifiers()))
                .filter(method -> !OPENING.contains(method.getName()))
                .flatMap(HostileChildTest::casesOf)
                .distinct();
    }

    private static Stream<Case> casesOf(Method method) {
        var nulls = method.getReturnType() == void.class ? List.of(false) : List.of(false, true);
        return nulls.stream()
                .flatMap(isNull ->
                        Stream.of(true, false)
                                .map(first -> new Case(method.getName(), isNull, first)));
    }

    private Rig rig(Probe.Kv bad, boolean first) {
        good.onLookup(
                (_, local) -> LookupResult.hit(40 - local, LoadMode.ASYNC, "good", Tier.HOST));
        good.onFinish(
                (_, _) -> new FinishDecision.Hold(hold, soon, new TransferParams(Map.of("k", 1L))));
        bad.script()
                .onLookup((_, local) ->
                        LookupResult.hit(20 - local, LoadMode.ASYNC, "bad", Tier.HOST));
        var children = first ? new String[] {"bad", "good"} : new String[] {"good", "bad"};
        return new Rig(1, Rig.multi("\"reopen_pause\": \"60s\",", children), bad.provider(), good);
    }

    @ParameterizedTest
    @MethodSource("cases")
    void costsTheOtherChildNothing(Case hostile) {
        var bad = new Probe.Kv("bad", CLAIMED);
        try (var rig = rig(bad, hostile.first)) {
            rig.scheduler.bindBlockPool(new TestPool());
            bad.on(hostile.method, _ -> misbehave(hostile.isNull));

            var load = rig.admit(request, 0);
            awaitLoad(rig, load.id(), hostile.method.equals("buildPlan"));
            callTheRest(rig);
            var decision = rig.scheduler.finish(request, request.blocks(), FinishReason.STOP);
            assertThat(decision).isInstanceOf(FinishDecision.Hold.class);
            assertThat(decision.params().values()).isEqualTo(Map.of("k", 1L));
            good.complete(hold, 0, new Completion.Completed(1));
            assertThat(rig.step().completions())
                    .extracting(Completion::id)
                    .containsExactly(((FinishDecision.Hold) decision).id());
        }
    }

    @SuppressWarnings("NullAway") // what the contract forbids
    private static Object misbehave(boolean isNull) {
        if (isNull) {
            return null;
        }
        throw new NoClassDefFoundError("injected");
    }

    /// Another child may have to be tried first. A child that makes no plan does not start the
    /// load, and does not say so: that ends with the engine's deadline.
    private static void awaitLoad(Rig rig, TransferId load, boolean makesNoPlan) {
        for (int steps = 0; steps < 10; steps++) {
            if (makesNoPlan && steps == 5) {
                rig.revoke(load);
            }
            for (var completion : rig.step().completions()) {
                assertThat(completion.id()).isEqualTo(load);
                assertThat(completion.result() instanceof Completion.Completed || makesNoPlan)
                        .as("%s", completion)
                        .isTrue();
                return;
            }
        }
        throw new AssertionError("the load never ended");
    }

    private void callTheRest(Rig rig) {
        rig.scheduled.add(request.scheduled(36, 4));
        rig.revoke(TransferId.save("r", 7).forChild("bad"));
        rig.step();
        for (var worker : rig.workers) {
            worker.awaitLayer(0, soon);
            worker.saveLayer(0);
        }
        assertThat(rig.scheduler.pendingWork()).isNotNull();
        assertThat(rig.scheduler.drainStats()).isNotNull();
        assertThat(rig.scheduler.drainEvents()).isNotNull();
        assertThat(rig.scheduler.resetCache(soon).toCompletableFuture())
                .succeedsWithin(Duration.ofSeconds(10));
    }

    private enum Stage {
        OF_NULL,
        FAILED,
        NOT_A_FUTURE
    }

    private static CompletionStage<Boolean> stage(Stage kind) {
        return switch (kind) {
            case OF_NULL -> CompletableFuture.completedStage(null);
            case FAILED -> CompletableFuture.failedStage(new AssertionError("injected"));
            case NOT_A_FUTURE ->
                    new CompletableFuture<Boolean>() {
                        {
                            complete(true);
                        }

                        @Override
                        public CompletableFuture<Boolean> toCompletableFuture() {
                            throw new UnsupportedOperationException("as the JDK allows");
                        }
                    };
        };
    }

    @ParameterizedTest
    @EnumSource(Stage.class)
    void resetsTheOthersWhateverTheStageOfAChildIs(Stage kind) {
        var bad = new Probe.Kv("bad", CLAIMED);
        try (var rig = rig(bad, true)) {
            bad.on("resetCache", stage(kind));
            assertThat(rig.scheduler.resetCache(soon).toCompletableFuture())
                    .succeedsWithin(Duration.ofSeconds(10))
                    .isNotNull();
        }
    }

    /// The engine waits for a hold until every rank has completed its id, and takes no completion
    /// of a load that is not open: it would keep the blocks for ever.
    @Test
    void releasesWhatAChildHoldsUnderTheIdOfALoad() {
        var bad = new Probe.Kv("bad", CLAIMED);
        bad.script()
                .onFinish((_, _) ->
                        new FinishDecision.Hold(
                                TransferId.load("r", 0),
                                soon,
                                new TransferParams(Map.of("b", 2L))));
        try (var rig = rig(bad, true)) {
            rig.scheduler.onRequest(request);
            var decision = rig.scheduler.finish(request, request.blocks(), FinishReason.STOP);
            assertThat(decision).isInstanceOf(FinishDecision.Hold.class);
            assertThat(((FinishDecision.Hold) decision).id()).isEqualTo(hold.forChild("good"));
            assertThat(decision.params().values()).containsEntry("k", 1L).containsEntry("b", 2L);
            assertThat(rig.scheduler.drainStats().counters()).containsEntry("bad/multi_errors", 1L);
        }
    }

    @Test
    void releasesWhatAChildHoldsThatClaimsNoHold() {
        var bad = new Probe.Kv("bad", Feature.ASYNC_LOAD);
        bad.script().onFinish((_, _) -> new FinishDecision.Hold(hold, soon, TransferParams.EMPTY));
        try (var rig = rig(bad, true)) {
            rig.scheduler.onRequest(request);
            var decision = rig.scheduler.finish(request, request.blocks(), FinishReason.STOP);
            assertThat(decision).isInstanceOf(FinishDecision.Hold.class);
            assertThat(((FinishDecision.Hold) decision).id()).isEqualTo(hold.forChild("good"));
            assertThat(rig.scheduler.drainStats().counters()).containsEntry("bad/multi_errors", 1L);
        }
    }

    /// A revocation that crosses the report of the end changes nothing about it.
    @Test
    void endsALoadOnceWhenItsRevocationComesWithTheReport() {
        var bad = new Probe.Kv("bad", CLAIMED);
        try (var rig = rig(bad, false)) {
            var load = rig.admit(request, 0);
            assertThat(rig.step().completions())
                    .containsExactly(
                            new Completion(
                                    load.id(), Completion.ALL_RANKS, new Completion.Completed(0)));
            rig.revoke(load.id());
            for (int i = 0; i < 3; i++) {
                for (var completion : rig.step().completions()) {
                    assertThat(completion.id()).isEqualTo(load.id());
                    assertThat(completion.result()).isInstanceOf(Completion.Revoked.class);
                }
            }
        }
    }

    @Test
    void closesEveryChildWhateverOneDoes() {
        var bad = new Probe.Kv("bad", CLAIMED);
        var other = new Probe.Kv("good", Feature.ASYNC_LOAD);
        var rig = new Rig(1, Rig.multi("", "bad", "good"), bad.provider(), other.provider());
        bad.on("close", _ -> misbehave(false));
        assertThat(catchThrowable(rig.scheduler::close)).hasMessageContaining("bad: close failed");
        for (var worker : rig.workers) {
            assertThat(catchThrowable(worker::close)).hasMessageContaining("bad: close failed");
        }
        assertThat(other.calls("scheduler", "close")).isNotEmpty();
        assertThat(other.calls("worker 0", "close")).isNotEmpty();
    }
}
