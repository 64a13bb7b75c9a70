// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.wire.Payload;
import io.kvferry.tck.faults.Interceptor;
import io.kvferry.tck.faults.Probe;
import io.kvferry.tck.faults.Probe.GivenMemory;
import io.kvferry.tck.harness.ConnectorHarness;
import io.kvferry.tck.harness.HarnessRequest;
import io.kvferry.tck.harness.HarnessShape.Group;
import io.kvferry.tck.memory.MemoryConnectorProvider;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;

/// What a composite passes on between its children and the engine, of [KvCompositeContract].
abstract class KvCompositeChildTests extends KvCompositeSupport {
    private static LookupResult hit(String source) {
        return LookupResult.hit(8, LoadMode.ASYNC, source, Tier.HOST);
    }

    @Test
    @DisplayName("I55 the deadline of pending work is the earliest of its children's")
    void deadlinesOfChildrenAreMergedToTheEarliest() {
        var late = new Probe.Kv("Late");
        var none = new Probe.Kv("None");
        var nested = new Probe.Kv("Nested");
        var harness = harness(late, none, nested);
        assertThat(harness.scheduler().pendingWork()).as("of idle children").isEmpty();
        var inAMinute = Deadline.in(Duration.ofMinutes(1));
        var inAnHour = Deadline.in(Duration.ofHours(1));
        late.on("pendingWork", Optional.of(inAnHour));
        assertThat(harness.scheduler().pendingWork()).contains(inAnHour);
        nested.on("pendingWork", Optional.of(inAMinute));
        assertThat(harness.scheduler().pendingWork()).contains(inAMinute);
        nested.on("pendingWork", Optional.of(Deadline.in(Duration.ofHours(2))));
        assertThat(harness.scheduler().pendingWork()).contains(inAnHour);
    }

    @Test
    @DisplayName("I56 a child that wakes its host wakes the engine, from either half")
    void wakesOfChildrenReachTheEngine() {
        var first = new Probe.Kv("First");
        var second = new Probe.Kv("Second");
        var nested = new Probe.Kv("Nested");
        var harness = harness(first, second, nested);
        for (var child : List.of(first, second, nested)) {
            assertThat(child.hosts()).as("halves of " + child.name()).hasSize(1 + RANKS);
            for (var host : child.hosts()) {
                int before = harness.wakes();
                host.wake();
                assertThat(harness.wakes()).as("by " + child.name()).isGreaterThan(before);
            }
        }
    }

    @Test
    @DisplayName("I57 one child at most provides the memory of the cache, and all work in it")
    void oneChildProvidesTheMemoryOfAll() {
        var plain = new Probe.Kv("Plain");
        var empty = new Probe.Kv("Empty", Feature.PROVIDES_MEMORY);
        var given = new ArrayList<GivenMemory>();
        var owner = new Probe.Kv("Owner", Feature.PROVIDES_MEMORY);
        owner.on(
                "provideMemory",
                _ -> {
                    var bytes =
                            owner.argument(
                                    "worker " + given.size(), "provideMemory", 0, Long.class);
                    given.add(GivenMemory.of(bytes));
                    return Optional.of(given.getLast());
                });
        var other = new Probe.Kv("Other", Feature.PROVIDES_MEMORY);
        harness(
                hostOf(plain, empty, owner, other),
                child(plain),
                child(empty),
                child(owner),
                child(other));
        assertThat(plain.count("provideMemory")).as("asked, and claims nothing").isZero();
        assertThat(other.count("provideMemory")).as("asked when there is memory").isZero();
        assertThat(given).as("memory of the owner, one per rank").hasSize(RANKS);
        for (int rank = 0; rank < RANKS; rank++) {
            var memory = given.get(rank).range().segment();
            for (var child : List.of(plain, empty, owner, other)) {
                assertThat(child.script().regions(rank))
                        .as("regions of " + child.name())
                        .isNotEmpty()
                        .allSatisfy(region ->
                                assertThat(memory.asOverlappingSlice(region.segment()))
                                        .isPresent());
            }
        }
    }

    @Test
    @DisplayName("I58 layers, resets and events reach the children that claim them, and no other")
    void featuresReachTheChildrenThatClaimThem() {
        var plain = new Probe.Kv("Plain", Feature.ASYNC_LOAD);
        var able =
                new Probe.Kv(
                        "Able",
                        Feature.SYNC_LOAD,
                        Feature.LAYERWISE_LOAD,
                        Feature.SAVE,
                        Feature.LAYERWISE_SAVE,
                        Feature.RESET,
                        Feature.EVENTS);
        able.on("resetCache", CompletableFuture.completedStage(true));
        var harness = harness(hostOf(plain, able), child(plain), child(able));
        var request = harness.submit("r", PROMPT);
        harness.admit(request);
        harness.prefill(request, PROMPT.length);
        harness.finish(request, FinishReason.STOP);
        harness.settle(LIMIT);
        assertThat(harness.scheduler().resetCache(Deadline.in(LIMIT)).toCompletableFuture().join())
                .isTrue();
        int layers = able.script().regions(0).size();
        for (int rank = 0; rank < RANKS; rank++) {
            var half = "worker " + rank;
            assertThat(able.calls(half, "awaitLayer")).as("layers awaited").hasSize(layers);
            assertThat(able.calls(half, "saveLayer")).as("layers saved").hasSize(layers);
        }
        assertThat(able.count("resetCache")).isEqualTo(1);
        assertThat(able.count("drainEvents")).isPositive();
        assertThat(plain.count("awaitLayer", "saveLayer", "resetCache", "drainEvents")).isZero();
    }

    private static Payload greeting(Probe.Kv child, int rank) {
        var text = child.name() + " of rank " + rank;
        return new Payload(1, text.getBytes(StandardCharsets.UTF_8));
    }

    @Test
    @DisplayName("I59 each child gets the handshakes of its own worker halves, in rank order")
    void handshakesReachTheirChild() {
        var first = new Probe.Kv("First", Feature.HANDSHAKE);
        var plain = new Probe.Kv("Plain");
        var nested = new Probe.Kv("Nested", Feature.HANDSHAKE);
        for (var child : List.of(first, plain, nested)) {
            child.on("handshake", rank -> greeting(child, rank));
        }
        harness(first, plain, nested);
        for (var child : List.of(first, nested)) {
            assertThat(child.calls("scheduler", "onHandshakes")).hasSize(1);
            assertThat((Object) child.argument("scheduler", "onHandshakes", 0, List.class))
                    .isEqualTo(List.of(greeting(child, 0), greeting(child, 1)));
        }
        assertThat(plain.count("handshake", "onHandshakes")).isZero();
    }

    @Test
    @DisplayName(
            "I60 a load that one child has no room for is brought by the next, or refused as that child did")
    void refusedLoadsGoToTheNextChild() {
        var full = new Probe.Kv("Full", Feature.ASYNC_LOAD);
        full.script()
                .onLookup((_, _) -> hit("Full"))
                .onLoad((_, _) ->
                        new Completion.Failed(
                                new Failure(ErrorCode.BACKPRESSURE, "no room"), List.of()));
        var host = hostOf(full);
        var sound = soundChild(host);
        var both = harness(host, child(full), sound);
        var request = loaded(both);
        assertThat(request.loadFailure()).isEmpty();
        assertThat(request.loadedTokens()).isEqualTo(8);
        both.finish(request, FinishReason.ABORT);
        both.settle(LIMIT);

        var alone = harness(host, child(full));
        var refused = loaded(alone);
        assertThat(refused.loadFailure().map(Failure::code)).contains(ErrorCode.BACKPRESSURE);
        alone.finish(refused, FinishReason.ABORT);
        alone.settle(LIMIT);
    }

    /// One that has the blocks of [#PROMPT].
    private KvCompositeContract.Child soundChild(HostServices host) {
        var name = "sound-" + UUID.randomUUID();
        store(name);
        var sound =
                new KvCompositeContract.Child(
                        new MemoryConnectorProvider(), Map.of("store", name, "save", "step"));
        var maker = harness(host, sound);
        var made = maker.submit("made", PROMPT);
        maker.admit(made);
        maker.prefill(made, PROMPT.length);
        maker.finish(made, FinishReason.STOP);
        maker.settle(LIMIT);
        return sound;
    }

    private static HarnessRequest loaded(ConnectorHarness harness) {
        var request = harness.submit("wanted", PROMPT);
        harness.allocate(request, 0, harness.lookupSettled(request, 0, LIMIT));
        harness.step();
        harness.awaitLoad(request, LIMIT);
        return request;
    }

    @Test
    @DisplayName(
            "I65 a load whose child makes no plan for it is brought by the next child, or fails; nobody else notices")
    void loadsOfAChildWithoutAPlanGoToTheNext() {
        var planless = new Probe.Kv("Planless", Feature.ASYNC_LOAD);
        planless.script().onLookup((_, _) -> hit("Planless"));
        var host = hostOf(planless);
        var both = harness(host, child(planless), soundChild(host));
        var request = loadedWithoutAPlan(both, planless);
        assertThat(request.loadFailure()).isEmpty();
        assertThat(request.loadedTokens()).isEqualTo(8);
        var taken =
                planless.script().allocations().stream()
                        .filter(allocation -> !allocation.load().isEmpty())
                        .map(allocation -> allocation.load().id())
                        .toList();
        assertThat(planless.script().revoked()).as("told to its scheduler half").isEqualTo(taken);
        for (int rank = 0; rank < RANKS; rank++) {
            assertThat(revoked(planless, rank)).as("told to rank " + rank).isEqualTo(taken);
        }
        both.finish(request, FinishReason.ABORT);
        both.settle(LIMIT);

        var alone = harness(host, child(planless));
        var lost = loadedWithoutAPlan(alone, planless);
        assertThat(lost.loadFailure().map(Failure::code)).contains(ErrorCode.INTERNAL);
        alone.finish(lost, FinishReason.ABORT);
        alone.settle(LIMIT);
        assertThat(alone.freeBlocks()).isEqualTo(alone.shape().blocks());
    }

    /// A load with whose plan the child fails.
    private static HarnessRequest loadedWithoutAPlan(ConnectorHarness harness, Probe.Kv child) {
        var request = harness.submit("unplanned", PROMPT);
        harness.allocate(request, 0, harness.lookupSettled(request, 0, LIMIT));
        child.failNext("buildPlan");
        harness.step();
        harness.awaitLoad(request, LIMIT);
        return request;
    }

    @Test
    @DisplayName("I66 a composite of any make may be a child: the ends of its loads count")
    void loadsOfAComposedChildOfAnotherMakeEnd() {
        var foreign =
                Interceptor.wrap(
                        KvConnectorProvider.class,
                        composite(),
                        (method, _, proceed) ->
                                method.getName().equals("name")
                                        ? "ForeignComposite"
                                        : switch (proceed.run()) {
                                            case WorkerConnector half ->
                                                    Interceptor.wrap(
                                                            WorkerConnector.class,
                                                            half,
                                                            (_, _, go) -> go.run());
                                            case Object other -> other;
                                            case null -> null;
                                        });
        var host = host(List.of(foreign));
        var sound = soundChild(host);
        var harness =
                harness(host, new KvCompositeContract.Child(foreign, options(List.of(sound))));
        var request = loaded(harness);
        assertThat(request.loadFailure()).isEmpty();
        assertThat(request.loadedTokens()).isPositive();
        harness.finish(request, FinishReason.ABORT);
        harness.settle(LIMIT);
        assertThat(harness.freeBlocks()).isEqualTo(harness.shape().blocks());
    }

    @Test
    @DisplayName("I61 a hold ends with its child's completions, and only its child renews it")
    void holdsAreRenewedByTheirChild() {
        var id = TransferId.save("r", 0);
        var holder = new Probe.Kv("Holder", Feature.HOLD);
        holder.script()
                .onFinish((_, _) ->
                        new FinishDecision.Hold(id, Deadline.in(LIMIT), TransferParams.EMPTY));
        var other = new Probe.Kv("Other", Feature.HOLD);
        var harness = harness(hostOf(other, holder), child(other), child(holder));
        var request = harness.submit("r", PROMPT);
        harness.admit(request);
        harness.prefill(request, PROMPT.length);
        assertThat(harness.finish(request, FinishReason.STOP))
                .isInstanceOf(FinishDecision.Hold.class);
        harness.step();
        assertThat(harness.openHolds()).hasSize(1);
        var later = Deadline.in(Duration.ofMinutes(5));
        assertThat(pool(holder).renewHold(id, later)).contains(later);
        assertThat(pool(other).renewHold(id, later)).as("a hold of another child").isEmpty();
        for (int rank = 0; rank < RANKS; rank++) {
            assertThat(harness.openHolds()).hasSize(1);
            holder.script().complete(id, rank, new Completion.Completed(0));
            harness.step();
        }
        assertThat(harness.openHolds()).isEmpty();
        assertThat(pool(holder).renewHold(id, later)).as("a hold that has ended").isEmpty();
        harness.settle(LIMIT);
        assertThat(harness.freeBlocks()).isEqualTo(harness.shape().blocks());
    }

    private static BlockPool pool(Probe.Kv child) {
        return child.argument("scheduler", "bindBlockPool", 0, BlockPool.class);
    }

    @Test
    @DisplayName("I62 what does not fit one child does not fit the composite")
    void misfitsOfOneChildAreTheComposites() {
        var forms =
                Map.of(
                        Feature.SEVERAL_GROUPS,
                        shape().withGroups(Group.full(2, 32), Group.full(1, 16)),
                        Feature.WINDOW_GROUPS,
                        shape().withGroups(Group.sliding(2, 32, 9)),
                        Feature.STATE_GROUPS,
                        shape().withGroups(Group.state(2, 32)),
                        Feature.PIPELINE_STAGES,
                        shape().withStages(2));
        var all = forms.keySet().toArray(Feature[]::new);
        var wide = new Probe.Kv("Wide", all);
        var wider = new Probe.Kv("Wider", all);
        var narrow = new Probe.Kv("Narrow", Feature.ASYNC_LOAD);
        var host = hostOf(wide, wider, narrow);
        var fitting = config(child(wide), child(wider));
        var misfit = config(child(wide), child(narrow));
        forms.forEach((feature, form) -> {
            var engine = form.engine(1);
            assertThat(composite().capabilities(fitting, host).misfit(engine)).isEmpty();
            assertThat(composite().capabilities(misfit, host).misfit(engine).orElse("fits"))
                    .contains(feature.name());
            assertThatThrownBy(() -> ConnectorHarness.open(composite(), misfit, form, host, 1))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.INCOMPATIBLE));
        });
        assertThat(wide.hosts()).as("halves that were opened").isEmpty();
    }

    @Test
    @DisplayName("I63 every child learns for which requests nothing was computed")
    void everyChildLearnsWhatWasNotComputed() {
        var first = new Probe.Kv("First", Feature.SAVE);
        var second = new Probe.Kv("Second", Feature.SAVE);
        var nested = new Probe.Kv("Nested", Feature.SAVE);
        var harness = harness(first, second, nested);
        var request = harness.submit("fails", PROMPT);
        harness.admit(request);
        harness.schedule(request, PROMPT.length);
        harness.failNext(request);
        harness.step();
        for (var child : List.of(first, second, nested)) {
            for (int rank = 0; rank < RANKS; rank++) {
                assertThat((Object) child.argument("worker " + rank, "endStep", 1, Set.class))
                        .as(child.name())
                        .isEqualTo(Set.of("fails"));
            }
        }
        harness.finish(request, FinishReason.ERROR);
        harness.settle(LIMIT);
    }

    @Test
    @DisplayName("I64 a revoked load is revoked in the child that has it, and in no other")
    void revocationsReachTheChildThatLoads() {
        var loader = new Probe.Kv("Loader", Feature.ASYNC_LOAD);
        loader.script().onLookup((_, _) -> hit("Loader")).loadReady((_, _) -> false);
        var idle = new Probe.Kv("Idle", Feature.ASYNC_LOAD);
        var harness = harness(hostOf(idle, loader), child(idle), child(loader));
        var request = harness.submit("aborted", PROMPT);
        harness.allocate(request, 0, harness.lookupSettled(request, 0, LIMIT));
        harness.step();
        var assigned =
                loader.script().allocations().stream()
                        .filter(allocation -> !allocation.load().isEmpty())
                        .map(allocation -> allocation.load().id())
                        .toList();
        assertThat(assigned).hasSize(1);
        harness.finish(request, FinishReason.ABORT);
        harness.settle(LIMIT);
        assertThat(loader.script().revoked()).isEqualTo(assigned);
        assertThat(idle.script().revoked()).isEmpty();
        for (int rank = 0; rank < RANKS; rank++) {
            assertThat(revoked(loader, rank)).isEqualTo(assigned);
            assertThat(revoked(idle, rank)).isEmpty();
        }
        assertThat(harness.freeBlocks()).isEqualTo(harness.shape().blocks());
    }

    private static List<TransferId> revoked(Probe.Kv child, int rank) {
        return child.calls("worker " + rank, "beginStep").stream()
                .map(call -> (WorkerStep) call.arguments().getFirst())
                .flatMap(step -> step.revoked().stream())
                .toList();
    }
}
