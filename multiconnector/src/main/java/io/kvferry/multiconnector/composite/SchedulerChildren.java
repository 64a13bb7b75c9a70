// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.multiconnector.composite.CompositeRequest.Stretch;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.Share;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.wire.Payload;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;

/// The scheduler halves of the children, and all that the KV and the encoder-cache composite do
/// with them alike.
///
/// Threading: scheduler thread only.
final class SchedulerChildren<C extends SchedulerHalf> {
    private static final Logger LOG = LoggerFactory.getLogger(SchedulerChildren.class);

    /// One child.
    record Member<C>(String name, C half, ConnectorCapabilities capabilities) {}

    private final String instance;
    private final List<Member<C>> members;
    private final List<KvCacheGroup> cacheGroups;
    private final ChildNames names;
    private final Guard guard;
    private final ReportSplitter splitter;
    private final EventSink events;

    /// Children that stopped working on some rank: asked for nothing any more.
    private final boolean[] broken;

    private TreeMap<String, Long> counters = new TreeMap<>();

    SchedulerChildren(
            String instance,
            List<Member<C>> members,
            List<KvCacheGroup> cacheGroups,
            HostServices host) {
        this.instance = instance;
        this.members = List.copyOf(members);
        this.cacheGroups = cacheGroups;
        this.names = new ChildNames(members.stream().map(Member::name).toList());
        this.events = host.events();
        this.guard = new Guard(instance, names, events);
        this.splitter = new ReportSplitter(names);
        this.broken = new boolean[members.size()];
    }

    String instance() {
        return instance;
    }

    /// The id of a further try at a transfer: other than the first assignment's, since one child
    /// may serve two stretches of one load. The number of tildes is the depth of nesting: a
    /// composite in this one, given a further try, hands the id on to its first child, and would
    /// otherwise give the same id to a further try of its own.
    TransferId retryId(TransferId whole, int attempt) {
        var path = whole.child();
        int depth = 1 + (int) instance.chars().filter(c -> c == '/').count();
        return whole.forChild((path.isEmpty() ? "" : path + "/") + "~".repeat(depth) + attempt);
    }

    ChildNames names() {
        return names;
    }

    Guard guard() {
        return guard;
    }

    C half(int child) {
        return members.get(child).half();
    }

    boolean has(int child, Feature feature) {
        return capabilities(child).has(feature);
    }

    /// What a child claims.
    ConnectorCapabilities capabilities(int child) {
        return members.get(child).capabilities();
    }

    List<KvCacheGroup> cacheGroups() {
        return cacheGroups;
    }

    boolean broken(int child) {
        return broken[child];
    }

    Failure refused(int child) {
        return new Failure(
                ErrorCode.INTERNAL,
                instance + "/" + names.name(child) + " refused a load that it had offered");
    }

    /// Gives each child its part of a report and settles what the children answer.
    ///
    /// @return completions that are no part of anything the composite has open, the engine's to
    ///   judge; the caller's list
    List<Completion> settle(MergedReport report, OpenGroups groups) {
        boolean idle = ReportSplitter.nothing(report);
        List<CompositePayload> frames = idle ? List.of() : splitter.frames(report);
        noteBroken(frames);
        List<Completion> forEngine = new ArrayList<>(0);
        for (var completion : report.completions()) {
            // A worker half that knew no part of a revoked transfer answers for the whole.
            if (names.childOf(completion.id()) < 0 && !groups.abandon(completion.id())) {
                forEngine.add(completion);
            }
        }
        for (int i = 0; i < members.size(); i++) {
            int child = i;
            var own = idle ? report : splitter.of(i, report, frames);
            var answer = settle(child, own);
            for (var completion : answer.completions()) {
                var outward =
                        new Completion(
                                names.outward(i, completion.id()),
                                completion.rank(),
                                completion.result());
                if (!groups.settle(outward, delivered(i, completion.id()))) {
                    forEngine.add(outward);
                }
            }
        }
        return forEngine;
    }

    private List<Share> delivered(int child, TransferId id) {
        if (id.direction() == TransferId.Direction.LOAD
                && half(child) instanceof SchedulerHalf.Composite composite) {
            return guard.call(
                    child,
                    "delivered",
                    id.subject(),
                    List.<Share>of(),
                    () -> List.copyOf(composite.delivered(id)));
        }
        return List.of();
    }

    private MergedReport settle(int child, MergedReport own) {
        if (half(child) instanceof SchedulerHalf.Composite composite) {
            return guard.call(child, "settle", "", own, () -> composite.settle(own));
        }
        guard.run(child, "onReport", "", () -> half(child).onReport(own));
        return own;
    }

    private void noteBroken(List<CompositePayload> frames) {
        for (var frame : frames) {
            for (int child : frame.broken()) {
                if (!broken[child]) {
                    broken[child] = true;
                    count(names.name(child) + "/multi_broken", 1);
                    guard.incident(
                            "", child, "worker half stopped working", "no longer asked for loads");
                }
            }
        }
    }

    void onHandshakes(List<Payload> byRank) {
        var frames =
                byRank.stream()
                        .map(payload -> CompositePayload.decode(payload, members.size()))
                        .toList();
        for (int i = 0; i < members.size(); i++) {
            int child = i;
            if (has(i, Feature.HANDSHAKE)) {
                // Not guarded: an engine whose child cannot shake hands does not start.
                half(i).onHandshakes(
                                frames.stream().map(frame -> frame.children()[child]).toList());
            }
        }
    }

    /// The earliest of all children's.
    Optional<Deadline> pendingWork() {
        Optional<Deadline> first = Optional.empty();
        for (int i = 0; i < members.size(); i++) {
            var own =
                    guard.call(
                            i, "pendingWork", "", Optional.<Deadline>empty(), half(i)::pendingWork);
            if (own.isPresent()) {
                first = first.isPresent() ? Optional.of(own.get().earlier(first.get())) : own;
            }
        }
        return first;
    }

    CompletionStage<Boolean> resetCache(Deadline limit) {
        CompletionStage<Boolean> all = CompletableFuture.completedStage(true);
        for (int i = 0; i < members.size(); i++) {
            all = all.thenCombine(resetChild(i, limit), Boolean::logicalAnd);
        }
        return all;
    }

    private CompletionStage<Boolean> resetChild(int child, Deadline limit) {
        if (has(child, Feature.RESET)) {
            return guard.call(
                    child,
                    "resetCache",
                    "",
                    CompletableFuture.completedStage(false),
                    () -> half(child).resetCache(limit).exceptionally(_ -> false));
        }
        return CompletableFuture.completedStage(!has(child, Feature.CONTENT_ADDRESSED));
    }

    void count(String counter, long value) {
        counters.merge(counter, value, Long::sum);
    }

    Stats drainStats() {
        var stats = Stats.EMPTY;
        for (int i = 0; i < members.size(); i++) {
            var own = guard.call(i, "drainStats", "", Stats.EMPTY, half(i)::drainStats);
            stats = own.isEmpty() ? stats : stats.merge(own.prefixed(names.name(i)));
            long errors = guard.drainErrors(i);
            if (errors > 0) {
                count(names.name(i) + "/multi_errors", errors);
            }
        }
        if (counters.isEmpty()) {
            return stats;
        }
        var counted = Stats.ofCounters(counters);
        counters = new TreeMap<>();
        return stats.merge(counted);
    }

    List<CacheEvent> drainEvents() {
        List<CacheEvent> drained = List.of();
        for (int i = 0; i < members.size(); i++) {
            if (has(i, Feature.EVENTS)) {
                int child = i;
                var own =
                        guard.call(
                                i,
                                "drainEvents",
                                "",
                                List.<CacheEvent>of(),
                                () -> List.copyOf(half(child).drainEvents()));
                if (!own.isEmpty()) {
                    drained = new ArrayList<>(drained);
                    drained.addAll(own);
                }
            }
        }
        return drained;
    }

    /// Tells who is to load, and why not the others.
    void decided(CompositeRequest request, List<Stretch> stretches, LoadAssignment load) {
        for (var stretch : stretches) {
            count(
                    names.name(stretch.child()) + "/multi_assigned_tokens",
                    stretch.to() - stretch.from());
        }
        if (events.equals(EventSink.NONE)) {
            return;
        }
        var chosen = new ArrayList<String>();
        var winners = new boolean[members.size()];
        for (var stretch : stretches) {
            winners[stretch.child()] = true;
            chosen.add(names.name(stretch.child()));
        }
        var rejected = new ArrayList<TraceEvent.Rejected>();
        for (int i = 0; i < members.size(); i++) {
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
        if (broken[child]) {
            return "its worker half stopped working";
        }
        return switch (request.answerOf(child)) {
            case LookupResult.Miss() -> "miss";
            case LookupResult.Pending _ -> "does not know yet";
            case LookupResult.Hit hit -> "hit of " + hit.tokens() + " tokens, not preferred";
        };
    }

    void failedOver(LoadGroup group, LoadGroup.Gap gap, Stretch substitute) {
        count("multi_failovers", 1);
        guard.incident(
                group.id().subject(),
                gap.child(),
                "load failed, " + names.name(substitute.child()) + " is tried",
                "tokens " + substitute.from() + " to " + substitute.to() + ": " + gap.failure());
    }

    void lost(int tokens) {
        count("multi_lost_tokens", tokens);
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
        count("multi_params_clashes", keys.size());
        LOG.warn(
                "{}: children gave different values to the kv_transfer_params {} of request {}; the first child's are at"
                        + " the top, all are under the children's names. Set params_form to namespaced",
                instance,
                keys,
                requestId);
    }

    void close() {
        RuntimeException first = null;
        for (var member : members) {
            try {
                member.half().close();
            } catch (Throwable e) { // every child must get its turn
                var failed =
                        new KvFerryException(
                                Failure.of(e).code(),
                                instance + "/" + member.name() + ": close failed: " + e,
                                e);
                if (first == null) {
                    first = failed;
                } else {
                    first.addSuppressed(failed);
                }
            }
        }
        if (first != null) {
            throw first;
        }
    }
}
