// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.composite.CompositeOptions;
import io.kvferry.multiconnector.composite.scheduler.CompositeRequest.Stretch;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.wire.Payload;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// The scheduler half of the encoder cache's `MultiConnector`. An item is loaded whole by one
/// child, so every load policy comes down to the first child that has it; when that fails, the next
/// is tried.
///
/// Threading: scheduler thread only.
public final class MultiEcScheduler extends CompositeScheduler<EcSchedulerConnector>
        implements EcSchedulerConnector {
    /// Number of lookup results kept until allocation; if a result was dropped, the children are
    /// asked again.
    private static final int REMEMBERED = 16_384;

    /// A lookup's winner.
    private record Choice(int child, LoadMode mode) {}

    private final Map<String, Choice> choices =
            new LinkedHashMap<>() {
                private static final long serialVersionUID = 1L;

                @Override
                protected boolean removeEldestEntry(Map.Entry<String, Choice> eldest) {
                    return size() > REMEMBERED;
                }
            };

    private final LoadFailover<ItemGroup> failover;

    /// Live requests with items, for a child that is opened again.
    private final Map<String, Announced> requests = new LinkedHashMap<>();

    private record Announced(List<EcItem> items, TransferParams params) {}

    public MultiEcScheduler(
            SchedulerChildren<EcSchedulerConnector> children, CompositeOptions options) {
        super(children, options);
        this.failover = new LoadFailover<>(children, options.failoverWait(), new ItemSubstitutes());
    }

    @Override
    public void onRequest(String requestId, List<EcItem> items, TransferParams itemParams) {
        var request = new Announced(List.copyOf(items), itemParams);
        requests.put(requestId, request);
        for (int i = 0; i < names.count(); i++) {
            announce(requestId, request, i);
        }
    }

    private void announce(String requestId, Announced request, int child) {
        guard.run(
                child,
                "onRequest",
                requestId,
                () ->
                        children.half(child)
                                .onRequest(
                                        requestId,
                                        request.items,
                                        params.of(child, request.params)));
    }

    @Override
    public void bind(int child) {}

    @Override
    public void announce(int child) {
        requests.forEach((id, request) -> announce(id, request, child));
    }

    @Override
    public LookupResult lookup(EcItem item) {
        choices.remove(item.hash());
        for (int child = 0; child < names.count(); child++) {
            switch (ask(child, item)) {
                case LookupResult.Miss() -> {}
                case LookupResult.Pending pending -> {
                    return pending;
                }
                case LookupResult.Hit hit -> {
                    choices.put(item.hash(), new Choice(child, hit.mode()));
                    return hit;
                }
            }
        }
        return LookupResult.MISS;
    }

    private LookupResult ask(int child, EcItem item) {
        var answer =
                guard.call(
                        child,
                        "lookup",
                        item.requestId(),
                        LookupResult.MISS,
                        () -> children.half(child).lookup(item));
        if (answer instanceof LookupResult.Hit hit) {
            var wrong = hit.defect(children.capabilities(child), item.embeddings());
            if (wrong.isPresent()) {
                guard.illegal(
                        child,
                        "lookup",
                        item.requestId(),
                        wrong.get() + ", for item " + item.hash());
                return LookupResult.MISS;
            }
        }
        return answer;
    }

    @Override
    public void onAllocated(EcItem item, Optional<TransferId> load) {
        int winner = -1;
        if (load.isPresent()) {
            if (!choices.containsKey(item.hash())) {
                lookup(item);
            }
            var choice = choices.remove(item.hash());
            var group =
                    new ItemGroup(
                            load.get(), item, choice == null ? LoadMode.ASYNC : choice.mode());
            groups.add(group);
            if (choice == null) {
                var failure =
                        new Failure(
                                ErrorCode.MISS,
                                children.instance()
                                        + ": no child has item "
                                        + item.hash()
                                        + " any more");
                group.gap(new GapGroup.Gap(0, item.embeddings(), GapGroup.NOBODY, failure));
            } else {
                winner = choice.child();
                assign(group, winner, load.get());
            }
        }
        for (int i = 0; i < names.count(); i++) {
            int child = i;
            if (i != winner) {
                guard.run(
                        i,
                        "onAllocated",
                        item.requestId(),
                        () -> children.half(child).onAllocated(item, Optional.empty()));
            }
        }
    }

    private void assign(ItemGroup group, int child, TransferId childId) {
        group.trying(child);
        var item = group.item();
        var part = groups.open(group, child, childId, 0, item.embeddings(), false);
        if (!guard.run(
                child,
                "onAllocated",
                item.requestId(),
                () -> children.half(child).onAllocated(item, Optional.of(childId)))) {
            groups.refused(group, part);
            group.gap(new GapGroup.Gap(0, item.embeddings(), child, children.refused(child)));
            groups.touch(group);
        }
    }

    @Override
    public void onFreed(String hash) {
        choices.remove(hash);
        each("onFreed", "", child -> children.half(child).onFreed(hash));
    }

    @Override
    public Payload buildPlan(long step) {
        children.begin(plan);
        return plan(child -> children.half(child).buildPlan(step));
    }

    /// Items have no tokens to be told apart by.
    @Override
    public List<LookupResult.Share> delivered(TransferId load) {
        return List.of();
    }

    @Override
    void failOver(TransferGroup group) {
        if (group instanceof ItemGroup item) {
            failover.fill(item, groups);
        }
    }

    private final class ItemSubstitutes implements LoadFailover.Substitutes<ItemGroup> {
        @Override
        public LoadPlanner.Substitute find(ItemGroup group, int from, int to) {
            boolean mayWait = false;
            for (int child = 0; child < names.count(); child++) {
                if (group.tried(child)) {
                    continue;
                }
                switch (ask(child, group.item())) {
                    case LookupResult.Miss() -> {}
                    case LookupResult.Pending _ -> mayWait = true;
                    case LookupResult.Hit hit -> {
                        var stretch = new Stretch(child, from, to, hit.mode(), hit.shares());
                        return new LoadPlanner.Substitute(stretch, false);
                    }
                }
            }
            return new LoadPlanner.Substitute(null, mayWait);
        }

        @Override
        public void assign(ItemGroup group, Stretch stretch, TransferId childId) {
            MultiEcScheduler.this.assign(group, stretch.child(), childId);
        }
    }

    @Override
    public FinishDecision finish(String requestId, FinishReason reason) {
        requests.remove(requestId);
        return finish(
                TransferId.save(requestId, 0),
                requestId,
                child -> children.half(child).finish(requestId, reason));
    }
}
