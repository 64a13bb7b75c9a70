// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.composite.CompositeOptions;
import io.kvferry.multiconnector.composite.wire.ChildNames;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletionStage;
import java.util.function.IntConsumer;
import java.util.function.IntFunction;

/// Common base of the KV and encoder-cache scheduler halves: forwards each call to all children,
/// or, for optional features, to the children that claim the feature.
///
/// Threading: scheduler thread only.
abstract class CompositeScheduler<C extends SchedulerHalf>
        implements SchedulerHalf.Composite, SchedulerChildren.Introduction {
    private static final Failure HOLD_LOST =
            new Failure(ErrorCode.INTERNAL, "a hold could not be passed on to the engine");

    final SchedulerChildren<C> children;
    final ChildNames names;
    final Guard guard;
    final ParamsNamespaces params;
    final PlanPayload plan = new PlanPayload();
    final OpenGroups groups;

    CompositeScheduler(SchedulerChildren<C> children, CompositeOptions options) {
        this.children = children;
        this.names = children.names();
        this.guard = children.guard();
        this.params = new ParamsNamespaces(names, options.namespacedParams());
        this.groups = new OpenGroups(names, children::isComposite, plan);
        children.introduceBy(this);
    }

    /// Calls every child, even if others throw.
    final void each(String what, String requestId, IntConsumer body) {
        for (int i = 0; i < names.count(); i++) {
            int child = i;
            guard.run(i, what, requestId, () -> body.accept(child));
        }
    }

    /// Merges the children's plans into one. If a child fails to build its plan, only its own loads
    /// of this step are withdrawn.
    final Payload plan(IntFunction<Payload> ofChild) {
        var plans = new Payload[names.count()];
        for (int i = 0; i < plans.length; i++) {
            int child = i;
            if (guard.isOff(i)) {
                plans[i] = Payload.EMPTY;
                continue;
            }
            var made =
                    guard.call(
                            i,
                            "buildPlan",
                            "",
                            Optional.<Payload>empty(),
                            () -> Optional.of(requirePlan(ofChild.apply(child))));
            plans[i] = made.orElse(Payload.EMPTY);
            if (made.isEmpty()) {
                groups.withdraw(i, children.noPlan(i)).forEach(part -> revoke(child, part));
            }
        }
        var payload = plan.encode(plans);
        children.planned();
        return payload;
    }

    private static Payload requirePlan(@Nullable Payload plan) {
        return Objects.requireNonNull(plan, "buildPlan answered null");
    }

    /// Merges the children's decisions into one.
    ///
    /// @param hold id of the combined hold when several children hold
    final FinishDecision finish(
            TransferId hold, String requestId, IntFunction<FinishDecision> ofChild) {
        var decisions = new FinishDecision[names.count()];
        boolean decided = false;
        try {
            var decision = decide(hold, requestId, decisions, ofChild);
            decided = true;
            return decision;
        } finally {
            if (!decided) {
                giveUpHolders(decisions);
            }
        }
    }

    /// Called when `finish` throws. The engine then frees the blocks, so children that answered a
    /// hold are given up and cannot send them. Must not allocate.
    private void giveUpHolders(@Nullable FinishDecision[] decisions) {
        for (int i = 0; i < decisions.length; i++) {
            if (decisions[i] instanceof FinishDecision.Hold) {
                guard.giveUp(i, HOLD_LOST);
            }
        }
    }

    private FinishDecision decide(
            TransferId hold,
            String requestId,
            FinishDecision[] decisions,
            IntFunction<FinishDecision> ofChild) {
        var answered = new TransferParams[decisions.length];
        for (int i = 0; i < decisions.length; i++) {
            int child = i;
            decisions[i] =
                    guard.call(
                            i,
                            "finish",
                            requestId,
                            FinishDecision.RELEASE,
                            () -> ofChild.apply(child));
            decisions[i] = legal(i, requestId, decisions[i]);
            answered[i] = decisions[i].params();
        }
        var merged = params.merge(answered);
        children.telemetry().clashed(requestId, merged.clashes());
        return groups.hold(hold, decisions, merged.params())
                .orElseGet(() ->
                        merged.params().values().isEmpty()
                                ? FinishDecision.RELEASE
                                : new FinishDecision.Release(merged.params()));
    }

    /// Rejects a hold that uses the id of a load: the engine would never see it end, and the
    /// siblings' holds would be lost with it.
    private FinishDecision legal(int child, String requestId, FinishDecision decision) {
        if (!(decision instanceof FinishDecision.Hold hold)) {
            return decision;
        }
        boolean claimed = children.has(child, Feature.HOLD);
        if (claimed && hold.id().direction() == TransferId.Direction.SAVE) {
            return decision;
        }
        guard.illegal(
                child,
                "finish",
                requestId,
                claimed
                        ? "answered a hold under " + hold.id() + ", which is the id of a load"
                        : "answered a hold without claiming HOLD");
        return new FinishDecision.Release(hold.params());
    }

    /// Settles the children's reports and retries failed loads with other children before the
    /// engine sees the failure.
    @Override
    public final MergedReport settle(MergedReport report) {
        settling();
        var forEngine = children.settle(report, groups);
        for (var group : groups.takeTouched()) {
            if (group.hasGaps()) {
                failOver(group);
            }
            if (group.allEnded() && !group.hasGaps()) {
                groups.drop(group);
                var outcome = group.outcome();
                ended(group, outcome);
                forEngine.add(outcome);
            }
        }
        return forEngine.isEmpty() && report.completions().isEmpty()
                ? report
                : new MergedReport(report.step(), forEngine, report.ranks());
    }

    /// Called before a report is settled.
    void settling() {}

    /// Looks for other children to fill the gaps of a load.
    abstract void failOver(TransferGroup group);

    /// A transfer of the composite has ended.
    void ended(TransferGroup group, Completion outcome) {}

    /// Not used: the engine calls [#settle] instead.
    @Override
    public final void onReport(MergedReport report) {
        throw new IllegalStateException("a composite settles its reports");
    }

    /// The engine ended the right to a transfer, of a child or of the composite.
    @Override
    public final void onRevoked(TransferId id) {
        int owner = names.childOf(id);
        if (owner >= 0) {
            revoke(owner, id);
            return;
        }
        groups.find(id)
                .ifPresent(group -> {
                    group.revoke();
                    groups.touch(group);
                    for (var part : List.copyOf(group.parts())) {
                        if (!group.isWithdrawn(part)) {
                            revoke(part.child(), part.id());
                        }
                    }
                });
    }

    private void revoke(int child, TransferId id) {
        guard.run(
                child,
                "onRevoked",
                id.subject(),
                () -> children.half(child).onRevoked(names.inward(id)));
    }

    @Override
    public final void onHandshakes(List<Payload> byRank) {
        children.onHandshakes(byRank);
    }

    @Override
    public final Optional<Deadline> pendingWork() {
        return children.pendingWork();
    }

    @Override
    public final CompletionStage<Boolean> resetCache(Deadline limit) {
        return children.resetCache(limit);
    }

    @Override
    public final String degraded() {
        return children.degraded();
    }

    @Override
    public final Stats drainStats() {
        return children.drainStats();
    }

    @Override
    public final List<CacheEvent> drainEvents() {
        return children.drainEvents();
    }

    @Override
    public final void close() {
        children.close();
    }
}
