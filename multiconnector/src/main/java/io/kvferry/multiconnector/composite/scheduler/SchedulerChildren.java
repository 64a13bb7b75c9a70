// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.PartFigures;
import io.kvferry.multiconnector.composite.CompositeOptions;
import io.kvferry.multiconnector.composite.wire.ChildNames;
import io.kvferry.multiconnector.composite.wire.CompositePayload;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.LookupResult.Share;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;

/// The scheduler halves of the children, and the operations shared by the KV and encoder-cache
/// composites.
///
/// Threading: scheduler thread only.
public final class SchedulerChildren<C extends SchedulerHalf> {
    /// Polling interval while a rank opens a half. The rank wakes the engine when done; this covers
    /// a lost wake-up.
    private static final Duration ASK_AGAIN = Duration.ofMillis(50);

    /// Completions in a report that could not be settled are lost: no half reports them twice.
    private static final Failure NOT_SETTLED =
            new Failure(ErrorCode.INTERNAL, "a report could not be settled");

    /// One child.
    public record Member<C>(String name, C half, ConnectorCapabilities capabilities) {}

    /// Tells a child that is on again what it has missed.
    interface Introduction {
        Introduction NONE =
                new Introduction() {
                    @Override
                    public void bind(int child) {}

                    @Override
                    public void announce(int child) {}
                };

        /// Before the handshakes.
        void bind(int child);

        /// The live requests, after the handshakes.
        void announce(int child);
    }

    private final String instance;
    private final List<Member<C>> members;
    private final List<KvCacheGroup> cacheGroups;
    private final ChildNames names;
    private final Guard guard;
    private final ReportSplitter splitter;
    private final PartFigures figures;
    private final CompositeTelemetry telemetry;

    private final List<ChildSlot<C>> slots = new ArrayList<>();
    private Introduction introduction = Introduction.NONE;

    /// Whether this step's plan was made; else the ranks execute an empty one.
    private boolean planned;

    /// When ranks that are opening a half have to be asked at the latest.
    private Deadline askAgain = Deadline.in(Duration.ZERO);

    /// @param ranks how many worker halves each child has
    /// @param opener opens a child's scheduler half again
    public SchedulerChildren(
            String instance,
            List<Member<C>> members,
            List<KvCacheGroup> cacheGroups,
            HostServices host,
            int ranks,
            CompositeOptions options,
            ChildSlot.Opener<C> opener) {
        this.instance = instance;
        this.members = List.copyOf(members);
        this.cacheGroups = cacheGroups;
        var childNames = members.stream().map(Member::name).toList();
        this.names = new ChildNames(childNames);
        this.figures = new PartFigures(childNames);
        this.guard = new Guard(instance, names, host.events());
        this.telemetry = new CompositeTelemetry(instance, names, guard, figures, host.events());
        this.splitter = new ReportSplitter(names);
        for (int i = 0; i < members.size(); i++) {
            slots.add(new ChildSlot<>(this, i, members.get(i).half(), ranks, options, opener));
        }
    }

    /// Set once, by whoever knows the live requests.
    void introduceBy(Introduction by) {
        introduction = by;
    }

    String instance() {
        return instance;
    }

    /// The id for retrying a transfer with another child. It differs from the first assignment's id
    /// because one child may load two ranges of one load. The number of tildes is the nesting
    /// depth: a nested composite passes the id it was given on to its first child, and its own
    /// retry ids must differ from that.
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

    CompositeTelemetry telemetry() {
        return telemetry;
    }

    /// Where the child stands in the composition.
    String path(int child) {
        return instance + "/" + names.name(child);
    }

    /// The child's scheduler half; a closed one while the child is off, when [Guard] prevents
    /// calls.
    C half(int child) {
        return slots.get(child).half();
    }

    ChildSlot<C> slot(int child) {
        return slots.get(child);
    }

    boolean has(int child, Feature feature) {
        return capabilities(child).has(feature);
    }

    /// The capabilities of a child.
    ConnectorCapabilities capabilities(int child) {
        return members.get(child).capabilities();
    }

    List<KvCacheGroup> cacheGroups() {
        return cacheGroups;
    }

    /// Whether a child consists of others.
    boolean isComposite(int child) {
        return half(child) instanceof SchedulerHalf.Composite;
    }

    Failure noPlan(int child) {
        return new Failure(
                ErrorCode.INTERNAL, path(child) + " made no plan for a load that it had taken on");
    }

    Failure refused(int child) {
        return new Failure(ErrorCode.INTERNAL, path(child) + " refused a load that it had offered");
    }

    /// Passes each child its part of a report and settles the completions.
    ///
    /// @return completions that belong to no group of the composite, for the engine to handle; a
    ///   new list owned by the caller
    List<Completion> settle(MergedReport report, OpenGroups groups) {
        if (!planned) { // buildPlan threw, and the ranks have executed an empty plan
            slots.forEach(ChildSlot::notTold);
        }
        boolean idle = ReportSplitter.nothing(report);
        List<CompositePayload> frames = idle ? List.of() : splitter.frames(report);
        for (int i = 0; i < slots.size(); i++) {
            slots.get(i).executed(unclosed(frames, i));
        }
        for (int rank = 0; rank < frames.size(); rank++) {
            takeIn(rank, frames.get(rank).news());
        }
        List<Completion> forEngine = new ArrayList<>(0);
        for (var completion : report.completions()) {
            // For a revoked transfer of which it knows no part, a worker half reports the
            // composite's id.
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
        slots.forEach(slot -> slot.end(groups));
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
            boolean settled = false;
            try {
                var answer =
                        guard.call(
                                child,
                                "settle",
                                "",
                                Optional.<MergedReport>empty(),
                                () -> Optional.of(composite.settle(own)));
                settled = answer.isPresent();
                return answer.orElse(own);
            } finally {
                if (!settled) { // also after an OutOfMemoryError
                    guard.giveUp(child, NOT_SETTLED);
                }
            }
        }
        guard.run(child, "onReport", "", () -> half(child).onReport(own));
        return own;
    }

    /// The ranks that are still closing a half of the child.
    private static List<Integer> unclosed(List<CompositePayload> frames, int child) {
        List<Integer> ranks = List.of();
        for (int rank = 0; rank < frames.size(); rank++) {
            if (frames.get(rank).news().unclosed().contains(child)) {
                ranks = ranks.isEmpty() ? new ArrayList<>() : ranks;
                ranks.add(rank);
            }
        }
        return ranks;
    }

    private void takeIn(int rank, CompositePayload.News news) {
        for (var broken : news.broken()) {
            slots.get(broken.child())
                    .recovery()
                    .off(path(broken.child()) + " on rank " + rank, broken.failure());
        }
        for (var again : news.again()) {
            slots.get(again.child()).recovery().opened(rank, again.how());
        }
    }

    /// Called before the children build their plans: closes children with too many defects and
    /// reopens others.
    void begin(PlanPayload plan) {
        planned = false;
        plan.forgetChanges();
        long now = System.nanoTime();
        for (var slot : slots) {
            slot.begin(now, plan);
        }
        askAgain = Deadline.in(ASK_AGAIN);
    }

    /// The plan of this step is made.
    void planned() {
        planned = true;
    }

    void stoppedWorking(int child, Failure why) {
        figures.count(child, "multi_broken", 1);
        guard.incident("", child, "stopped working", why.toString());
    }

    void closingHangs(int child, String ranks) {
        figures.count(child, "multi_unclosed", 1);
        guard.incident("", child, "still being closed", ranks);
    }

    void use(int child, int generation, List<Payload> handshakes) {
        names.renew(child, generation);
        guard.enable(child);
        introduction.bind(child);
        if (has(child, Feature.HANDSHAKE)) {
            half(child).onHandshakes(handshakes);
        }
        introduction.announce(child);
    }

    void onAgain(int child, Failure reason) {
        figures.count(child, "multi_reopened", 1);
        guard.incident("", child, "on again", "it was off after " + reason);
    }

    /// Which children are off, also within children that are composites, and why.
    String degraded() {
        var off = new ArrayList<String>(0);
        for (int i = 0; i < slots.size(); i++) {
            var status = slots.get(i).recovery().status();
            if (status.isEmpty() && half(i) instanceof SchedulerHalf.Composite composite) {
                status = guard.call(i, "degraded", "", "", composite::degraded);
            }
            if (!status.isEmpty()) {
                off.add(status);
            }
        }
        return String.join("; ", off);
    }

    void onHandshakes(List<Payload> byRank) {
        var frames =
                byRank.stream()
                        .map(payload -> CompositePayload.decode(payload, members.size()))
                        .toList();
        for (int i = 0; i < members.size(); i++) {
            int child = i;
            if (has(i, Feature.HANDSHAKE)) {
                // Not guarded: if a child cannot complete its handshake, the engine must not start.
                half(i).onHandshakes(
                                frames.stream().map(frame -> frame.children()[child]).toList());
            }
        }
    }

    /// The earliest of all children's, and of those that are off.
    Optional<Deadline> pendingWork() {
        Optional<Deadline> first = recoveryDue();
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

    private Optional<Deadline> recoveryDue() {
        Optional<Deadline> first = Optional.empty();
        long now = System.nanoTime();
        for (var slot : slots) {
            var recovery = slot.recovery();
            if (recovery.isOn() && !recovery.isDue()) {
                continue;
            }
            long left = recovery.isDue() ? 0 : recovery.untilDue(now);
            if (left == Long.MAX_VALUE) {
                continue;
            }
            var own = new Deadline(now + left);
            own = recovery.hasNews() ? own.earlier(askAgain) : own;
            first = Optional.of(first.isPresent() ? own.earlier(first.get()) : own);
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
                    () -> answered(half(child).resetCache(limit)));
        }
        return CompletableFuture.completedStage(!has(child, Feature.CONTENT_ADDRESSED));
    }

    /// Wraps a child's stage, which may complete with null or exceptionally, into one that
    /// completes with true or false.
    private static CompletionStage<Boolean> answered(CompletionStage<Boolean> ofChild) {
        var answer = new CompletableFuture<Boolean>();
        ofChild.whenComplete((emptied, failure) ->
                answer.complete(failure == null && Boolean.TRUE.equals(emptied)));
        return answer;
    }

    Stats drainStats() {
        for (int i = 0; i < members.size(); i++) {
            figures.add(i, guard.call(i, "drainStats", "", Stats.EMPTY, half(i)::drainStats));
            long errors = guard.drainErrors(i);
            if (errors > 0) {
                figures.count(i, "multi_errors", errors);
            }
            if (slots.get(i).wasOff()) {
                figures.gauge(i, "multi_off", guard.isOff(i) ? 1 : 0);
            }
        }
        return figures.drain();
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

    void close() {
        RuntimeException first = null;
        for (int i = 0; i < slots.size(); i++) {
            try {
                slots.get(i).close();
            } catch (Throwable e) { // every child must get its turn
                var failed =
                        new KvFerryException(
                                Failure.of(e).code(), path(i) + ": close failed: " + e, e);
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
