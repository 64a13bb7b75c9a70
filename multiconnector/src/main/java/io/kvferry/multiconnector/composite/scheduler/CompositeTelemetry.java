// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.PartFigures;
import io.kvferry.multiconnector.composite.scheduler.CompositeRequest.Stretch;
import io.kvferry.multiconnector.composite.wire.ChildNames;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.TraceEvent;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;

/// Reports a composite's decisions: which child was to load and why not the others, which was tried
/// next, what arrived.
///
/// Threading: scheduler thread only.
final class CompositeTelemetry {
    private static final Logger LOG = LoggerFactory.getLogger(CompositeTelemetry.class);

    private final String instance;
    private final ChildNames names;
    private final Guard guard;
    private final EventSink events;
    private final PartFigures figures;

    CompositeTelemetry(
            String instance, ChildNames names, Guard guard, PartFigures figures, EventSink events) {
        this.instance = instance;
        this.names = names;
        this.guard = guard;
        this.figures = figures;
        this.events = events;
    }

    /// Reports that a half was reopened, which ends the incidents of its predecessor.
    void openedAgain(String path) {
        events.emit(new TraceEvent.Incident("", TraceEvent.Incident.REOPENED, path, Map.of()));
    }

    /// Tells who is to load, and why not the others.
    void decided(CompositeRequest request, List<Stretch> stretches, LoadAssignment load) {
        for (var stretch : stretches) {
            figures.count(stretch.child(), "multi_assigned_tokens", stretch.to() - stretch.from());
        }
        if (events.equals(EventSink.NONE)) {
            return;
        }
        var chosen = new ArrayList<String>();
        var winners = new boolean[names.count()];
        for (var stretch : stretches) {
            winners[stretch.child()] = true;
            chosen.add(names.name(stretch.child()));
        }
        var rejected = new ArrayList<TraceEvent.Rejected>();
        for (int i = 0; i < names.count(); i++) {
            if (!winners[i]) {
                rejected.add(new TraceEvent.Rejected(names.name(i), reason(request, i)));
            }
        }
        events.emit(
                new TraceEvent.Decision(
                        request.whole().id(),
                        "load-source",
                        instance,
                        String.join("+", chosen),
                        rejected,
                        load.tokens()));
    }

    private String reason(CompositeRequest request, int child) {
        if (request.excluded(child)) {
            return "failed for this request before";
        }
        if (guard.isOff(child)) {
            return "off after a defect";
        }
        return switch (request.answerOf(child)) {
            case LookupResult.Miss() -> "miss";
            case LookupResult.Pending _ -> "does not know yet";
            case LookupResult.Hit hit -> "hit of " + hit.tokens() + " tokens, not preferred";
        };
    }

    void failedOver(GapGroup group, GapGroup.Gap gap, Stretch substitute) {
        if (gap.child() == GapGroup.NOBODY) {
            return;
        }
        figures.count("multi_failovers", 1);
        guard.incident(
                group.requestId(),
                gap.child(),
                "load failed, " + names.name(substitute.child()) + " is tried",
                (group instanceof LoadGroup ? "tokens " : "rows ")
                        + substitute.from()
                        + " to "
                        + substitute.to()
                        + ": "
                        + gap.failure());
    }

    void lost(GapGroup group, int count) {
        figures.count(group instanceof LoadGroup ? "multi_lost_tokens" : "multi_lost_rows", count);
    }

    void delivered(LoadGroup load, Completion outcome) {
        if (events.equals(EventSink.NONE)) {
            return;
        }
        boolean whole = outcome.result() instanceof Completion.Completed;
        var failure =
                outcome.result() instanceof Completion.Failed failed
                        ? failed.failure().toString()
                        : "";
        int lost = load.lostTokens();
        events.emit(
                new TraceEvent.Delivery(
                        load.id().subject(),
                        "load",
                        instance,
                        instance,
                        "tokens",
                        load.load().tokens(),
                        whole ? load.load().tokens() : load.load().tokens() - lost,
                        System.nanoTime() - load.openedAt(),
                        failure));
    }

    /// Two children gave one params key different values.
    void clashed(String requestId, Set<String> keys) {
        if (keys.isEmpty()) {
            return;
        }
        figures.count("multi_params_clashes", keys.size());
        LOG.warn(
                "{}: children gave different values to the kv_transfer_params {} of request {}; the first child's are at"
                        + " the top, all are under the children's names. Set params_form to namespaced",
                instance,
                keys,
                requestId);
    }
}
