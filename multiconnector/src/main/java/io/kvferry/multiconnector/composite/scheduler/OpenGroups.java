// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.composite.wire.ChildNames;
import io.kvferry.multiconnector.composite.wire.CompositePayload;
import io.kvferry.multiconnector.composite.wire.RecentIds;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.LookupResult.Share;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.IntPredicate;

/// The composite's transfers that have not ended, by their own id and by the ids of their parts.
///
/// Threading: scheduler thread only.
final class OpenGroups {
    private final ChildNames names;
    private final IntPredicate isComposite;
    private final PlanPayload plan;
    private final Map<TransferId, TransferGroup> byId = new HashMap<>();
    private final Map<TransferId, OpenPart> byPart = new HashMap<>();

    /// Transfers that ended before they joined a group: holds whose `finish` has not been called
    /// yet, and saves that the composite did not start.
    private final RecentIds early = new RecentIds();

    /// Groups that changed since the last report was settled.
    private final Set<TransferGroup> touched = new LinkedHashSet<>();

    private record OpenPart(TransferGroup group, TransferGroup.Part part) {}

    /// @param isComposite whether a child consists of others
    OpenGroups(ChildNames names, IntPredicate isComposite, PlanPayload plan) {
        this.names = names;
        this.isComposite = isComposite;
        this.plan = plan;
    }

    void add(TransferGroup group) {
        byId.put(group.id(), group);
        touched.add(group);
    }

    Optional<TransferGroup> find(TransferId id) {
        return Optional.ofNullable(byId.get(id));
    }

    /// The composite's transfer that a child's is a part of.
    Optional<TransferId> groupOf(TransferId part) {
        return Optional.ofNullable(byPart.get(part)).map(open -> open.group.id());
    }

    /// Opens a part for a child; the next plan announces it to the worker halves. Called before the
    /// child is told: a part the child has accepted must be registered here even if memory runs out
    /// afterwards.
    ///
    /// @param drain see [CompositePayload.Open]
    TransferGroup.Part open(
            TransferGroup group, int child, TransferId childId, int from, int to, boolean drain) {
        var part = new TransferGroup.Part(child, names.outward(child, childId), from, to);
        boolean opened = false;
        try {
            group.open(part);
            byPart.put(part.id(), new OpenPart(group, part));
            plan.opened(
                    new CompositePayload.Open(
                            group.id(), child, part.id(), drain, isComposite.test(child)));
            opened = true;
            return part;
        } finally {
            if (!opened) { // out of memory: a part missing from the plan would never end
                refused(group, part);
            }
        }
    }

    /// Removes a part that the child refused and that no plan has announced. Must not allocate.
    void refused(TransferGroup group, TransferGroup.Part part) {
        plan.notOpened(part.id());
        byPart.remove(part.id());
        group.remove(part);
    }

    /// Records that a child's transfer has ended on all ranks.
    ///
    /// @param by sources of the loaded tokens, if the child reports them; else its promise counts
    /// @return false when the transfer is not part of a group here: a lease, a duplicate, or
    ///   unknown
    boolean settle(Completion completion, List<Share> by) {
        var open = byPart.remove(completion.id());
        if (open == null) {
            if (completion.id().direction() == TransferId.Direction.SAVE) {
                early.add(completion.id());
            }
            return false;
        }
        open.group.ended(open.part, completion.result(), by);
        touched.add(open.group);
        return true;
    }

    /// Withdraws the loads that a child should have started with a plan it failed to build. They
    /// become gaps, which other children may fill once the worker halves have confirmed the
    /// revocation.
    ///
    /// @return the ids of the withdrawn loads, as seen outside
    List<TransferId> withdraw(int child, Failure why) {
        List<TransferId> withdrawn = List.of();
        for (var opened : plan.opened()) {
            var part = byPart.get(opened.part());
            if (opened.child() == child
                    && part != null
                    && opened.part().direction() == TransferId.Direction.LOAD
                    && part.group.withdraw(part.part, why)) {
                withdrawn = withdrawn.isEmpty() ? new ArrayList<>() : withdrawn;
                withdrawn.add(opened.part());
            }
        }
        withdrawn.forEach(plan::revoked);
        return withdrawn;
    }

    /// Ends a group that the engine revoked before any worker half had heard of its parts.
    ///
    /// @return false when there is no such group
    boolean abandon(TransferId id) {
        var group = byId.get(id);
        if (group == null) {
            return false;
        }
        group.parts().forEach(part -> byPart.remove(part.id()));
        group.abandon();
        touched.add(group);
        return true;
    }

    /// Fails everything the child has open; called once no rank has a half of it.
    void fail(int child, Failure failure) {
        for (var open : List.copyOf(byPart.values())) {
            if (open.part.child() == child) {
                byPart.remove(open.part.id());
                open.group.ended(open.part, new Completion.Failed(failure, List.of()), List.of());
                touched.add(open.group);
            }
        }
    }

    /// Ends a group whatever its parts do; late completions of those are unknown from now on.
    void drop(TransferGroup group) {
        for (var part : group.parts()) {
            byPart.remove(part.id());
        }
        if (byId.remove(group.id(), group)) {
            plan.closed(group.id());
        }
        touched.remove(group);
    }

    void touch(TransferGroup group) {
        touched.add(group);
    }

    /// The groups to look at after a report; empties the set.
    List<TransferGroup> takeTouched() {
        if (touched.isEmpty()) {
            return List.of();
        }
        var taken = new ArrayList<>(touched);
        touched.clear();
        return taken;
    }

    /// A child's hold that has not ended.
    private record Holder(int child, TransferId outward, FinishDecision.Hold hold) {}

    /// Merges the children's holds into one decision. A single hold is reported under its child's
    /// name, like a lease. Several are combined into one that lasts until the last one ends. A hold
    /// that has already ended, because its consumer finished before the request did, is left out.
    Optional<FinishDecision> hold(TransferId id, FinishDecision[] byChild, TransferParams params) {
        var holders = holders(byChild);
        if (holders.isEmpty()) {
            return Optional.empty();
        }
        if (holders.size() == 1) {
            var only = holders.getFirst();
            plan.opened(CompositePayload.Open.alone(only.child, only.outward));
            return Optional.of(new FinishDecision.Hold(only.outward, only.hold.deadline(), params));
        }
        var group = new TransferGroup(id);
        add(group);
        var latest = Deadline.in(Duration.ZERO);
        for (var holder : holders) {
            var deadline = holder.hold.deadline();
            var _ = open(group, holder.child, holder.hold.id(), 0, 0, false);
            latest = deadline.remainingNanos() > latest.remainingNanos() ? deadline : latest;
        }
        return Optional.of(new FinishDecision.Hold(id, latest, params));
    }

    private List<Holder> holders(FinishDecision[] byChild) {
        var holders = new ArrayList<Holder>(byChild.length);
        for (int child = 0; child < byChild.length; child++) {
            if (byChild[child] instanceof FinishDecision.Hold hold) {
                var outward = names.outward(child, hold.id());
                // Skip an id that is already open: one completion cannot end both transfers.
                if (!early.remove(outward) && !byPart.containsKey(outward)) {
                    holders.add(new Holder(child, outward, hold));
                }
            }
        }
        return holders;
    }
}
