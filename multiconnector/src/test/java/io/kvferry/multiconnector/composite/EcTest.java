// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.SelectedEc;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.tck.faults.ScriptedEcConnector;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;

/// The encoder cache's composite, on one rank.
class EcTest {
    private static final EncoderCache CACHE =
            new EncoderCache() {
                @Override
                public Optional<EncoderOutput> get(String hash) {
                    return Optional.empty();
                }

                @Override
                public EncoderOutput allocate(EcItem item) {
                    throw new IllegalStateException("nothing is loaded here");
                }

                @Override
                public void publish(String hash) {}

                @Override
                public void discard(String hash) {}
            };

    private static final ConnectorCapabilities CAPABILITIES =
            ConnectorCapabilities.of(Feature.ASYNC_LOAD, Feature.SAVE, Feature.HOLD);

    private final ScriptedEcConnector a =
            new ScriptedEcConnector(
                    "A",
                    ConnectorCapabilities.of(
                            Feature.SYNC_LOAD, Feature.ASYNC_LOAD, Feature.SAVE, Feature.HOLD));
    private final ScriptedEcConnector b = new ScriptedEcConnector("B", CAPABILITIES);
    private final EcItem item = new EcItem("r", 0, "h", "image", 3, 2, DType.FLOAT32);
    private final TransferId load = TransferId.load("h", 0);
    private Kvferry kvferry;
    private SelectedEc selected;
    private EcSchedulerConnector scheduler;
    private EcWorkerConnector worker;
    private StepReport lastReport =
            new StepReport(0, 0, List.of(), Payload.EMPTY, Stats.EMPTY, List.of());
    private long step;

    @BeforeEach
    void open() {
        var catalog =
                PluginCatalog.ofClassPath()
                        .with(EcConnectorProvider.class, a)
                        .with(EcConnectorProvider.class, b);
        kvferry = Kvferry.open(catalog, EventSink.NONE);
        selected =
                kvferry.ec(
                        """
                        {"ec_connector": "MultiConnector", "ec_role": "ec_both", "ec_connector_extra_config":
                         {"failover_wait": "60s", "connectors": [{"ec_connector": "A"}, {"ec_connector": "B"}]}}\
                        """);
        var group =
                new KvCacheGroup(
                        0,
                        KvCacheGroup.Kind.FULL_ATTENTION,
                        new KvFormat.Heads(DType.FLOAT32, KvLayout.LBNHC, 1, 2),
                        List.of("l0"),
                        4,
                        64);
        var spec = new KvCacheSpec(List.of(group), 8);
        var namespace = new CacheNamespace("m", "r", DType.FLOAT32, KvLayout.LBNHC, 1, 4, 1, 1, "");
        var engine = new EngineInfo("m", namespace, spec, 1, 0, 1);
        scheduler = selected.openScheduler(engine);
        worker = selected.openWorker(engine, RankInfo.SINGLE);
    }

    @AfterEach
    void close() {
        scheduler.close();
        worker.close();
        kvferry.close();
    }

    private static void has(ScriptedEcConnector child, LookupResult.LoadMode mode) {
        child.onLookup(asked ->
                LookupResult.hit(asked.embeddings(), mode, child.name(), LookupResult.Tier.DISK));
    }

    private static void has(ScriptedEcConnector child) {
        has(child, LookupResult.LoadMode.ASYNC);
    }

    private static void failsItsLoads(ScriptedEcConnector child) {
        var failed = new Completion.Failed(new Failure(ErrorCode.CORRUPT, "bad bytes"), List.of());
        child.onLoad((_, _) -> failed);
    }

    private static void throwsIn(ScriptedEcConnector child, String call) {
        child.beforeEach(called -> {
            if (called.startsWith(call)) {
                throw new IllegalStateException("injected into " + called);
            }
        });
    }

    private List<Completion> step(TransferId... revoked) {
        step++;
        var workerStep =
                new WorkerStep(
                        step,
                        scheduler.buildPlan(step),
                        List.of(revoked),
                        false,
                        Deadline.in(Duration.ofSeconds(5)));
        worker.beginStep(workerStep, CACHE);
        worker.endStep(workerStep);
        lastReport = worker.report(workerStep);
        var merged =
                lastReport.completions().stream()
                        .map(one -> new Completion(one.id(), Completion.ALL_RANKS, one.result()))
                        .toList();
        return Rig.settle(scheduler, new MergedReport(step, merged, List.of(lastReport)))
                .completions();
    }

    @Test
    void loadsFromTheFirstChildThatHasTheItem() {
        has(b);
        assertThat(scheduler.lookup(item)).isInstanceOf(LookupResult.Hit.class);

        scheduler.onAllocated(item, Optional.of(load));
        assertThat(a.calls()).contains("onAllocated h none");
        assertThat(b.calls()).contains("onAllocated h load");
        assertThat(step())
                .containsExactly(
                        new Completion(load, Completion.ALL_RANKS, new Completion.Completed(0)));
        assertThat(lastReport.stats().counters()).isEqualTo(Map.of("A/loads", 1L, "B/loads", 1L));
    }

    @Test
    void triesTheNextChildWhenOneFails() {
        has(a);
        has(b);
        failsItsLoads(a);
        scheduler.lookup(item);
        scheduler.onAllocated(item, Optional.of(load));

        assertThat(step()).as("held back").isEmpty();
        assertThat(step()).extracting(Completion::id).containsExactly(load);
    }

    @Test
    void waitsForAChildThatDoesNotKnowYetWhetherItHasTheItem() {
        has(a);
        failsItsLoads(a);
        b.onLookup(_ -> new LookupResult.Pending(Duration.ZERO));
        scheduler.lookup(item);
        scheduler.onAllocated(item, Optional.of(load));

        assertThat(step()).as("B does not know yet").isEmpty();
        assertThat(step()).as("B does not know yet").isEmpty();
        has(b);
        assertThat(step()).as("B is to load").isEmpty();
        assertThat(step())
                .containsExactly(
                        new Completion(load, Completion.ALL_RANKS, new Completion.Completed(0)));
    }

    @Test
    void waitsForAChildWhenNobodyHasTheItemAnyMore() {
        b.onLookup(_ -> new LookupResult.Pending(Duration.ZERO));
        scheduler.onAllocated(item, Optional.of(load));

        assertThat(step()).as("B does not know yet").isEmpty();
        has(b);
        assertThat(step()).as("B is to load").isEmpty();
        assertThat(step()).extracting(Completion::id).containsExactly(load);
    }

    @Test
    void answersARevocationOnceWhileAChildIsAwaited() {
        has(a);
        failsItsLoads(a);
        b.onLookup(_ -> new LookupResult.Pending(Duration.ZERO));
        scheduler.lookup(item);
        scheduler.onAllocated(item, Optional.of(load));
        assertThat(step()).as("B does not know yet").isEmpty();

        scheduler.onRevoked(load);
        has(b);
        assertThat(step(load)).extracting(Completion::id).containsExactly(load);
        assertThat(step()).isEmpty();
        assertThat(b.calls()).doesNotContain("onAllocated h load");
    }

    @Test
    void failsWhenNobodyElseHasTheItem() {
        has(a);
        failsItsLoads(a);
        scheduler.lookup(item);
        scheduler.onAllocated(item, Optional.of(load));

        assertThat(step().getFirst().result())
                .isInstanceOfSatisfying(
                        Completion.Failed.class,
                        failed -> assertThat(failed.failure().code()).isEqualTo(ErrorCode.CORRUPT));
    }

    @Test
    void countsAHitOfPartOfAnItemAsADefectOfItsChild() {
        a.onLookup(asked ->
                LookupResult.hit(
                        asked.embeddings() - 1,
                        LookupResult.LoadMode.ASYNC,
                        "A",
                        LookupResult.Tier.DISK));
        has(b);

        assertThat(scheduler.lookup(item))
                .isInstanceOfSatisfying(
                        LookupResult.Hit.class,
                        hit -> assertThat(hit.tokens()).isEqualTo(item.embeddings()));
        assertThat(scheduler.drainStats().counters()).containsEntry("A/multi_errors", 1L);
    }

    @Test
    void failsASyncLoadAtOnceSinceItsStepIsOver() {
        has(a, LookupResult.LoadMode.SYNC);
        has(b);
        failsItsLoads(a);
        scheduler.lookup(item);
        scheduler.onAllocated(item, Optional.of(load));

        assertThat(step().getFirst().result()).isInstanceOf(Completion.Failed.class);
    }

    @Test
    void triesTheNextChildWhenOneMakesNoPlan() {
        has(a);
        has(b);
        scheduler.lookup(item);
        scheduler.onAllocated(item, Optional.of(load));
        var planless = new AtomicBoolean(true);
        a.beforeEach(called -> {
            if (called.startsWith("buildPlan") && planless.getAndSet(false)) {
                throw new IllegalStateException("injected into " + called);
            }
        });

        assertThat(step()).as("held back").isEmpty();
        assertThat(a.calls()).contains("onRevoked " + load);
        assertThat(step())
                .containsExactly(
                        new Completion(load, Completion.ALL_RANKS, new Completion.Completed(0)));
        assertThat(step()).isEmpty();
    }

    @Test
    void claimsTheModesOfItsChildren() {
        assertThat(selected.capabilities().features())
                .contains(Feature.SYNC_LOAD, Feature.ASYNC_LOAD);
        var alone =
                kvferry.ec(
                        """
                        {"ec_connector": "MultiConnector", "ec_role": "ec_both",
                         "ec_connector_extra_config": {"connectors": [{"ec_connector": "B"}]}}\
                        """);
        assertThat(alone.capabilities().has(Feature.SYNC_LOAD)).isFalse();
    }

    @Test
    void countsAHitInAModeThatAChildDoesNotClaimAsItsDefect() {
        has(b, LookupResult.LoadMode.SYNC);
        assertThat(scheduler.lookup(item)).isEqualTo(LookupResult.MISS);
        assertThat(scheduler.drainStats().counters()).containsEntry("B/multi_errors", 1L);
    }

    @Test
    void savesToEveryChildAndTellsAllOfThemWhatIsFreed() {
        var output =
                new EncoderOutput(
                        new MemoryRange.Host(Arena.ofAuto().allocate(24)), 0, 3, 2, DType.FLOAT32);
        scheduler.onAllocated(item, Optional.empty());
        step();
        worker.save(item, output);
        scheduler.onFreed("h");

        assertThat(a.calls()).contains("save h", "onFreed h");
        assertThat(b.calls()).contains("save h", "onFreed h");
    }

    @Test
    void goesOnWithTheOthersWhenAChildThrows() {
        has(a);
        has(b);
        throwsIn(a, "onAllocated");
        scheduler.lookup(item);
        scheduler.onAllocated(item, Optional.of(load));

        assertThat(step()).as("the refusal becomes a retry with this report").isEmpty();
        assertThat(b.calls()).contains("onAllocated h load");
        assertThat(step()).extracting(Completion::id).containsExactly(load);
    }

    @Test
    void countsHolds() {
        var hold =
                new FinishDecision.Hold(
                        TransferId.save("r", 0),
                        Deadline.in(Duration.ofSeconds(9)),
                        new TransferParams(Map.of("k", 1L)));
        a.onFinish((_, _) -> hold);
        b.onFinish((_, _) -> hold);
        var decision = (FinishDecision.Hold) scheduler.finish("r", FinishReason.LENGTH);
        assertThat(decision.params().values()).isEqualTo(Map.of("k", 1L));

        b.complete(TransferId.save("r", 0), 0, new Completion.Completed(1));
        assertThat(step()).isEmpty();
        a.complete(TransferId.save("r", 0), 0, new Completion.Completed(1));
        assertThat(step()).extracting(Completion::id).containsExactly(decision.id());
    }

    @Test
    void endsALoadThatTheEngineRevokes() {
        has(a);
        scheduler.lookup(item);
        scheduler.onAllocated(item, Optional.of(load));
        scheduler.onRevoked(load);

        assertThat(step(load)).extracting(Completion::id).containsExactly(load);
        assertThat(a.calls()).contains("onRevoked " + load);
    }

    @Test
    void goesOnWithoutAChildWhoseWorkerHalfThrows() {
        has(a);
        has(b);
        scheduler.lookup(item);
        scheduler.onAllocated(item, Optional.of(load));
        throwsIn(a, "beginStep");

        assertThat(step()).isEmpty();
        assertThat(step()).extracting(Completion::id).containsExactly(load);
    }

    @Test
    void keepsTheHoldOfAChildWhateverAnotherDoesInFinish() {
        b.onFinish((request, _) ->
                new FinishDecision.Hold(
                        TransferId.save(request, 0),
                        Deadline.in(Duration.ofSeconds(9)),
                        TransferParams.EMPTY));
        a.onFinish((_, _) -> null);
        assertThat(scheduler.finish("r", FinishReason.LENGTH))
                .isInstanceOf(FinishDecision.Hold.class);
        b.complete(TransferId.save("r", 0), 0, new Completion.Completed(1));
        assertThat(step()).hasSize(1);

        a.onFinish((_, _) -> {
            throw new NoClassDefFoundError("injected");
        });
        assertThat(scheduler.finish("r2", FinishReason.LENGTH))
                .isInstanceOf(FinishDecision.Hold.class);
    }

    @Test
    void goesOnWithoutAChildWhoseWorkerHalfThrowsAnError() {
        has(a);
        has(b);
        scheduler.lookup(item);
        scheduler.onAllocated(item, Optional.of(load));
        a.beforeEach(called -> {
            if (called.startsWith("beginStep")) {
                throw new NoClassDefFoundError("injected into " + called);
            }
        });

        assertThat(step()).isEmpty();
        assertThat(step()).extracting(Completion::id).containsExactly(load);
    }
}
