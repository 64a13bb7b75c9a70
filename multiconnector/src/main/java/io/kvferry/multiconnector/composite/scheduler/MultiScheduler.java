// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.composite.CompositeOptions;
import io.kvferry.multiconnector.composite.scheduler.CompositeRequest.Stretch;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/// The scheduler half of `MultiConnector`: who loads what, and who is tried next.
///
/// Threading: scheduler thread only.
public final class MultiScheduler extends CompositeScheduler<SchedulerConnector>
        implements SchedulerConnector {
    private final int seam;
    private final LoadPlanner planner;
    private final LoadFailover<LoadGroup> failover;
    private final LoadingBlocks loading;
    private final Map<String, CompositeRequest> requests = new HashMap<>();

    /// The sources that brought the tokens of the loads that ended in the last report.
    private final Map<TransferId, List<LookupResult.Share>> delivered = new HashMap<>();

    private @Nullable BlockPool pool;

    /// By child that was opened again: live requests that may already have blocks. The child is
    /// told about them when they are next scheduled.
    private final Map<Integer, Set<String>> newcomers = new HashMap<>();

    /// Live requests whose children see params of their own; while there is none, steps are passed
    /// on as they are.
    private int namespacedRequests;

    public MultiScheduler(
            SchedulerChildren<SchedulerConnector> children,
            CompositeOptions options,
            boolean[] staysSync) {
        super(children, options);
        var cacheGroups = children.cacheGroups();
        this.seam = LoadPlanner.seam(cacheGroups);
        this.loading = new LoadingBlocks(cacheGroups);
        this.planner = new LoadPlanner(names.count(), options.policy(), seam, staysSync, this::ask);
        this.failover =
                new LoadFailover<>(children, options.failoverWait(), new TokenSubstitutes());
    }

    private final class TokenSubstitutes implements LoadFailover.Substitutes<LoadGroup> {
        @Override
        public LoadPlanner.Substitute find(LoadGroup group, int from, int to) {
            return planner.substitute(group, from, to);
        }

        @Override
        public void assign(LoadGroup group, Stretch stretch, TransferId childId) {
            MultiScheduler.this.assign(group, stretch, childId, group.blocks());
        }
    }

    @Override
    public void bindBlockPool(BlockPool bound) {
        pool = bound;
        for (int i = 0; i < names.count(); i++) {
            bind(i);
        }
    }

    @Override
    public void bind(int child) {
        var bound = pool;
        if (bound != null
                && (children.has(child, Feature.BLOCK_LEASES)
                        || children.has(child, Feature.HOLD))) {
            children.half(child)
                    .bindBlockPool(
                            new ChildBlockPool(
                                    bound,
                                    names,
                                    child,
                                    loading,
                                    plan,
                                    groups,
                                    children.slot(child)));
        }
    }

    @Override
    public void announce(int child) {
        for (var state : requests.values()) {
            tellOfRequest(state, child);
        }
        newcomers.computeIfAbsent(child, _ -> new HashSet<>()).addAll(requests.keySet());
    }

    @Override
    public void onRequest(RequestView request) {
        var state = state(request);
        for (int i = 0; i < names.count(); i++) {
            tellOfRequest(state, i);
        }
    }

    private void tellOfRequest(CompositeRequest state, int child) {
        guard.run(
                child,
                "onRequest",
                state.whole().id(),
                () -> children.half(child).onRequest(state.viewOf(child)));
    }

    /// Tells a reopened child about the blocks of requests that were allocated before it was
    /// opened.
    private void tellNewcomers(StepView step) {
        for (var entry : newcomers.entrySet()) {
            int child = entry.getKey();
            var untold = entry.getValue();
            for (int i = 0; i < step.scheduledCount() && !untold.isEmpty(); i++) {
                var item = step.scheduled(i);
                var request = item.request();
                var state = requests.get(request.id());
                if (untold.remove(request.id()) && state != null) {
                    var none =
                            LoadAssignment.none(TransferId.load(request.id(), request.attempt()));
                    guard.run(
                            child,
                            "onAllocated",
                            request.id(),
                            () ->
                                    children.half(child)
                                            .onAllocated(state.viewOf(child), item.blocks(), none));
                }
            }
        }
        newcomers.values().removeIf(Set::isEmpty);
    }

    private CompositeRequest state(RequestView request) {
        var known = requests.get(request.id());
        if (known != null) {
            return known;
        }
        RequestView[] views = null;
        if (params.namespaced(request.params())) {
            views = new RequestView[names.count()];
            for (int i = 0; i < views.length; i++) {
                views[i] = new ChildRequestView(request, params.of(i, request.params()));
            }
            namespacedRequests++;
        }
        var state = new CompositeRequest(request, views, names.count());
        requests.put(request.id(), state);
        return state;
    }

    @Override
    public LookupResult lookup(RequestView request, int localTokens) {
        return planner.plan(state(request), localTokens);
    }

    private LookupResult ask(int child, CompositeRequest request, int localTokens) {
        var view = request.viewOf(child);
        var answer =
                guard.call(
                        child,
                        "lookup",
                        view.id(),
                        LookupResult.MISS,
                        () -> children.half(child).lookup(view, localTokens));
        if (answer instanceof LookupResult.Hit hit) {
            var wrong = hit.defect(children.capabilities(child), view, localTokens, seam);
            if (wrong.isPresent()) {
                guard.illegal(child, "lookup", view.id(), wrong.get());
                return LookupResult.MISS;
            }
        }
        return answer;
    }

    @Override
    public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
        var state = state(request);
        newcomers.values().forEach(untold -> untold.remove(request.id()));
        if (load.isEmpty()) {
            tellLosers(state, blocks, load, new boolean[names.count()]);
            return;
        }
        var stretches = clipped(state, load);
        var group = new LoadGroup(state, load, new BlockTableCopy(blocks), children.cacheGroups());
        groups.add(group);
        state.loads.add(group);
        loading.mark(group.blocks(), load, true);
        children.telemetry().decided(state, stretches, load);
        var winners = new boolean[names.count()];
        for (var stretch : stretches) {
            winners[stretch.child()] = true;
            assign(group, stretch, load.id(), blocks);
        }
        tellLosers(state, blocks, load, winners);
        state.chosen = List.of();
    }

    /// The chosen stretches as far as the engine wants them.
    private List<Stretch> clipped(CompositeRequest state, LoadAssignment load) {
        var clipped = new ArrayList<Stretch>(state.chosen.size());
        int at = load.fromToken();
        for (var stretch : state.chosen) {
            int from = Math.max(stretch.from(), load.fromToken());
            int to = Math.min(stretch.to(), load.toToken());
            if (from < to && from == at) {
                clipped.add(stretch.within(from, to));
                at = to;
            }
        }
        if (at != load.toToken()) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    children.instance()
                            + ": load "
                            + load.id()
                            + " of tokens "
                            + load.fromToken()
                            + " to "
                            + load.toToken()
                            + " goes beyond the last lookup, which found "
                            + state.chosen);
        }
        return clipped;
    }

    /// Assigns a range to its child. If the child throws, the range has failed to load.
    private void assign(LoadGroup group, Stretch stretch, TransferId childId, BlockTable blocks) {
        int child = stretch.child();
        var view = group.request().viewOf(child);
        var assignment = new LoadAssignment(childId, stretch.from(), stretch.to(), stretch.mode());
        boolean drain = stretch.mode() == LoadMode.SYNC && group.load().mode() == LoadMode.ASYNC;
        group.promised(names.outward(child, childId), stretch.shares());
        var part = groups.open(group, child, childId, stretch.from(), stretch.to(), drain);
        if (guard.run(
                child,
                "onAllocated",
                view.id(),
                () -> children.half(child).onAllocated(view, blocks, assignment))) {
            return;
        }
        groups.refused(group, part);
        group.request().exclude(child);
        group.gap(new GapGroup.Gap(stretch.from(), stretch.to(), child, children.refused(child)));
        groups.touch(group);
    }

    private void tellLosers(
            CompositeRequest state, BlockTable blocks, LoadAssignment load, boolean[] winners) {
        var none = load.isEmpty() ? load : LoadAssignment.none(load.id());
        for (int i = 0; i < names.count(); i++) {
            int child = i;
            if (!winners[i]) {
                guard.run(
                        i,
                        "onAllocated",
                        state.whole().id(),
                        () -> children.half(child).onAllocated(state.viewOf(child), blocks, none));
            }
        }
    }

    @Override
    public Payload buildPlan(StepView step) {
        children.begin(plan);
        if (!newcomers.isEmpty()) {
            tellNewcomers(step);
        }
        return plan(child ->
                children.half(child)
                        .buildPlan(
                                namespacedRequests == 0
                                        ? step
                                        : new ChildStepView(
                                                step, request -> viewOf(child, request))));
    }

    private RequestView viewOf(int child, RequestView request) {
        var state = requests.get(request.id());
        return state == null || !state.hasViews() ? request : state.viewOf(child);
    }

    @Override
    void settling() {
        delivered.clear();
    }

    @Override
    void failOver(TransferGroup group) {
        if (group instanceof LoadGroup load) {
            failover.fill(load, groups);
        }
    }

    @Override
    public List<LookupResult.Share> delivered(TransferId load) {
        return delivered.getOrDefault(load, List.of());
    }

    @Override
    void ended(TransferGroup group, Completion outcome) {
        if (group instanceof LoadGroup load) {
            load.request().loads.remove(load);
            loading.mark(load.blocks(), load.load(), false);
            delivered.put(load.id(), load.delivered());
            children.telemetry().delivered(load, outcome);
        }
    }

    @Override
    public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
        var state = state(request);
        // Blocks with a pending load have no valid content, so no child may save or send them.
        var visible = state.loads.isEmpty() ? blocks : BlockTable.EMPTY;
        var decision =
                finish(
                        TransferId.save(request.id(), request.attempt()),
                        request.id(),
                        child -> children.half(child).finish(state.viewOf(child), visible, reason));
        state.loads.forEach(LoadGroup::revoke); // the request is gone: nobody else is tried for it
        requests.remove(request.id());
        newcomers.values().forEach(untold -> untold.remove(request.id()));
        namespacedRequests -= state.hasViews() ? 1 : 0;
        return decision;
    }
}
