// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.composite.scheduler.CompositeRequest.Stretch;
import io.kvferry.multiconnector.composite.scheduler.LoadPlanner.Substitute;
import io.kvferry.spi.kv.TransferId;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// Retries what a child failed to load with other children before the engine sees the failure.
///
/// Threading: scheduler thread only.
///
/// @param <G> what is loaded: tokens of a request, or an item
final class LoadFailover<G extends GapGroup> {
    /// The operations that differ between tokens and items.
    interface Substitutes<G> {
        /// Looks for a child that can load from `from` on, at most up to `to`.
        Substitute find(G group, int from, int to);

        /// Assigns a range to a child. If the child refuses, its range becomes a gap again.
        void assign(G group, Stretch stretch, TransferId childId);
    }

    private final SchedulerChildren<?> children;
    private final Duration wait;
    private final Substitutes<G> substitutes;

    LoadFailover(SchedulerChildren<?> children, Duration wait, Substitutes<G> substitutes) {
        this.children = children;
        this.wait = wait;
        this.substitutes = substitutes;
    }

    /// Fills the gaps of a load as far as possible. A gap that no child can fill is lost. A gap for
    /// which a child has not answered yet stays, and the group is examined again after the next
    /// step.
    void fill(G group, OpenGroups groups) {
        var waiting = new ArrayList<GapGroup.Gap>();
        // A refused range becomes a gap again; a child that refused is not asked twice.
        while (group.hasGaps()) {
            for (var gap : group.takeGaps()) {
                fill(group, gap, waiting);
            }
        }
        if (!waiting.isEmpty()) {
            waiting.forEach(group::gap);
            groups.touch(group);
        }
    }

    private void fill(G group, GapGroup.Gap gap, List<GapGroup.Gap> waiting) {
        int at = gap.from();
        while (at < gap.to()) {
            var rest = new GapGroup.Gap(at, gap.to(), gap.child(), gap.failure());
            if (!group.canWait()) {
                lose(group, rest);
                return;
            }
            var substitute = substitutes.find(group, at, gap.to());
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
            substitutes.assign(group, stretch, children.retryId(group.id(), group.nextAttempt()));
            at = stretch.to();
        }
    }

    private void lose(G group, GapGroup.Gap gap) {
        group.lose(gap);
        children.telemetry().lost(group, gap.to() - gap.from());
    }
}
