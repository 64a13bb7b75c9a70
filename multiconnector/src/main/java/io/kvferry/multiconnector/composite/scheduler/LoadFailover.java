// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.composite.scheduler.CompositeRequest.Stretch;
import io.kvferry.spi.kv.TransferId;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// Finds other children for what a child failed to load, before the engine hears of the failure.
///
/// Threading: scheduler thread only.
final class LoadFailover {
    /// Hands a stretch to a child; false when the child refused, which leaves another gap.
    interface Assigner {
        boolean assign(LoadGroup group, Stretch stretch, TransferId childId);
    }

    private final SchedulerChildren<?> children;
    private final LoadPlanner planner;
    private final Duration wait;
    private final Assigner assigner;

    LoadFailover(
            SchedulerChildren<?> children, LoadPlanner planner, Duration wait, Assigner assigner) {
        this.children = children;
        this.planner = planner;
        this.wait = wait;
        this.assigner = assigner;
    }

    /// Fills the gaps of a load as far as possible. What nobody can fill is lost; a gap for which a
    /// child still has to find out stays, and the group is to be looked at again after the next
    /// step.
    void fill(LoadGroup group, OpenGroups groups) {
        var waiting = new ArrayList<LoadGroup.Gap>();
        while (group
                .hasGaps()) { // a child that refuses leaves a gap again, and is not asked a second
            // time
            for (var gap : group.takeGaps()) {
                fill(group, gap, waiting);
            }
        }
        if (!waiting.isEmpty()) {
            waiting.forEach(group::gap);
            groups.touch(group);
        }
    }

    private void fill(LoadGroup group, LoadGroup.Gap gap, List<LoadGroup.Gap> waiting) {
        int at = gap.from();
        while (at < gap.to()) {
            var rest = new LoadGroup.Gap(at, gap.to(), gap.child(), gap.failure());
            if (!group.canWait()) {
                lose(group, rest);
                return;
            }
            var substitute = planner.substitute(group, at, gap.to());
            var stretch = substitute.stretch();
            if (stretch == null) {
                // While another part is under way, waiting costs the request nothing.
                if (substitute.mayWait()
                        && (!group.allEnded() || !group.seekUntil(wait).passed())) {
                    waiting.add(rest);
                } else {
                    lose(group, rest);
                }
                return;
            }
            children.telemetry().failedOver(group, rest, stretch);
            assigner.assign(group, stretch, children.retryId(group.id(), group.nextAttempt()));
            at = stretch.to();
        }
    }

    private void lose(LoadGroup group, LoadGroup.Gap gap) {
        group.lose(gap);
        children.telemetry().lost(gap.to() - gap.from());
    }
}
