// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.connector.GuardedEcScheduler;
import io.kvferry.engine.connector.GuardedKvScheduler;
import io.kvferry.engine.connector.Transfers;
import io.kvferry.engine.encoder.EncoderScheduler;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.engine.sched.RequestLifecycle.Status;
import io.kvferry.engine.telemetry.Metrics.Gauge;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.engine.worker.Handshakes;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.engine.worker.StepPlan;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.hash.BlockHasher;
import io.kvferry.toolkit.recovery.ConnectorChange;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Function;

/// Requests, blocks, items and transfers between two steps: what the next step is to do, and what
/// follows from what the last one did. Knows the workers by their plans and results only.
///
/// Threading: scheduler thread only, but for [#admission], [#totalBlocks] and [Requests#refuse].
public final class Scheduler {
    /// What a scheduler is built from.
    ///
    /// @param failurePolicy of requests that name none
    public record Parts(
            Limits limits,
            ModelInfo model,
            Tokenizer tokenizer,
            KvCacheSpec cache,
            CacheNamespace namespace,
            LoadFailurePolicy failurePolicy,
            GuardedKvScheduler kv,
            GuardedEcScheduler ec,
            Telemetry telemetry) {}

    private final Limits limits;
    private final Telemetry telemetry;
    private final KvCache cache;
    private final GuardedKvScheduler kv;
    private final GuardedEcScheduler ec;
    private final Transfers kvTransfers;
    private final Transfers ecTransfers;
    private final KvTransfers blocks;
    private final EncoderScheduler encoders;
    private final RequestLifecycle lifecycle = new RequestLifecycle();
    private final StepPlanner planner;
    private final Admission admission;
    private final Requests requests;
    private final LoadOutcomes loads;
    private final StepResults results;
    private final StateView state;
    private final List<StepReport> reports = new ArrayList<>();

    public Scheduler(Parts parts) {
        this.limits = parts.limits;
        this.telemetry = parts.telemetry;
        this.kv = parts.kv;
        this.ec = parts.ec;
        this.cache = new KvCache(parts.cache, limits.prefixCache(), telemetry);
        int ranks = parts.namespace.tpSize() * parts.namespace.ppSize();
        var bounds = new Transfers.Bounds(limits.load(), limits.hold(), limits.revoke());
        this.kvTransfers = new Transfers(kv, ranks, bounds, telemetry);
        this.ecTransfers = new Transfers(ec, ranks, bounds, telemetry);
        this.blocks = new KvTransfers(kv, kvTransfers, cache, telemetry.metrics());
        this.encoders =
                new EncoderScheduler(encoderSettings(parts.model), ec, ecTransfers, telemetry);
        this.planner = new StepPlanner(limits, lifecycle, cache, kv, blocks, encoders, telemetry);
        var contentDigest = parts.namespace.contentDigest();
        this.admission = new Admission(parts, cache, contentDigest);
        this.requests =
                new Requests(admission, lifecycle, kv, blocks, encoders, planner, telemetry);
        this.loads = new LoadOutcomes(cache, kv, blocks, planner, requests, telemetry);
        this.results =
                new StepResults(
                        new BlockHasher(contentDigest, cache.blockTokens()),
                        cache,
                        encoders,
                        planner,
                        requests,
                        telemetry);
        this.state =
                new StateView(
                        requests,
                        lifecycle,
                        cache,
                        new StateView.Memory(blocks, kvTransfers, ecTransfers, encoders),
                        telemetry.metrics());
    }

    private EncoderScheduler.Settings encoderSettings(ModelInfo model) {
        return new EncoderScheduler.Settings(
                limits.encoderSlots(),
                limits.encoderStepBudget(),
                limits.encodeOnly(),
                limits.pendingLookup(),
                model.embeddingWidth(),
                model.dtype());
    }

    /// Any thread.
    public Admission admission() {
        return admission;
    }

    public Requests requests() {
        return requests;
    }

    // ---- what connectors hear besides requests and steps

    /// What connectors hear before their first request.
    public void introduce(List<Handshakes> byRank) {
        kv.bind(blocks);
        kv.handshakes(byRank.stream().map(Handshakes::kv).toList());
        ec.handshakes(byRank.stream().map(Handshakes::ec).toList());
    }

    /// Other scheduler halves take over, after all that was open has ended: they hear of the
    /// requests.
    public void announceRequests() {
        for (var request : requests.live()) {
            kv.onRequest(request);
            encoders.onRequest(request.items);
        }
    }

    /// A KV connector that was off has a new scheduler half. Nothing that the old one had open is
    /// left, and the new one may use the same ids.
    public void introduceKvAgain(List<Payload> handshakes) {
        kvTransfers.reset();
        kv.bind(blocks);
        kv.handshakes(handshakes);
        for (var request : requests.live()) {
            kv.onRequest(request);
            if (request.status() == Status.RUNNING) {
                kv.onAllocated(request, request.blocks, LoadAssignment.none(request.loadId()));
            }
        }
    }

    public void introduceEcAgain(List<Payload> handshakes) {
        ecTransfers.reset();
        ec.handshakes(handshakes);
        requests.live().forEach(request -> encoders.onRequest(request.items));
    }

    // ---- one step

    /// Decides what a step computes.
    public StepSchedule plan(long step, long now) {
        kvTransfers.expire(now);
        ecTransfers.expire(now);
        loads.takeIn();
        kvTransfers.beginStep();
        ecTransfers.beginStep();
        planner.plan(step, now);
        for (var refused : planner.takeRefused()) {
            requests.fail(refused.request(), refused.why());
        }
        requests.failBroken();
        var schedule = planner.schedule();
        schedule.removeDiscarded();
        return schedule;
    }

    /// Whether connectors or workers must be notified although there is nothing to compute.
    public boolean hasNews() {
        var schedule = planner.schedule();
        return hasOpenTransfers()
                || kvTransfers.hasRevoked()
                || ecTransfers.hasRevoked()
                || encoders.hasNews()
                || !planner.encoded().isEmpty()
                || (schedule.finished && (kv.present() || ec.present()))
                || !schedule.preempted.isEmpty()
                || untilPendingWork() <= 0;
    }

    /// What the workers are to do in the step that was planned; asks the connectors for their
    /// parts.
    public StepPlan stepPlan(ConnectorChange kvChange, ConnectorChange ecChange) {
        var schedule = planner.schedule();
        var kvRevoked = kvTransfers.takeRevoked();
        var ecRevoked = ecTransfers.takeRevoked();
        var kvPlan = kv.buildPlan(schedule);
        if (kvPlan.isEmpty()) {
            kvTransfers.planFailed();
        }
        var ecPlan = ec.buildPlan(schedule.number());
        if (ecPlan.isEmpty()) {
            ecTransfers.planFailed();
        }
        schedule.finished = false;
        schedule.preempted.clear();
        return new StepPlan(
                schedule.number(),
                Deadline.in(limits.step()),
                kvPlan.orElse(Payload.EMPTY),
                kvRevoked,
                ecPlan.orElse(Payload.EMPTY),
                ecRevoked,
                encoders.takeFreed(),
                encoders.takePlaced(),
                encoders.encodes(),
                schedule,
                schedule.isEmpty() ? List.of() : planner.forgotten(),
                kvChange,
                ecChange);
    }

    /// The step closed the KV connector's worker halves on every rank.
    public void kvWorkersClosed(Failure why, int ranks) {
        kvTransfers.workersClosed(why, ranks);
    }

    /// As [#kvWorkersClosed].
    public void ecWorkersClosed(Failure why, int ranks) {
        ecTransfers.workersClosed(why, ranks);
    }

    /// Takes in what the ranks report and computed.
    public void takeIn(StepPlan plan, List<RankResult> byRank) {
        if (plan.forward()) {
            planner.forgotten().clear();
        }
        for (var rank : byRank) {
            for (var failure : rank.encodeFailures()) {
                encoders.encodeFailed(failure.hash(), failure.failure());
            }
        }
        kvTransfers.takeIn(plan.number(), reports(byRank, RankResult::kvReport));
        loads.takeIn();
        ecTransfers.takeIn(plan.number(), reports(byRank, RankResult::ecReport));
        encoders.endStep();
        results.takeIn(byRank, planner.schedule());
        requests.failBroken();
        results.takeInEncoded();
        kv.observe();
        ec.observe();
        telemetry.flush();
    }

    /// Whether requests got tokens since the last call, for which readers may wait.
    public boolean takePublished() {
        return results.takePublished();
    }

    private List<StepReport> reports(
            List<RankResult> byRank, Function<RankResult, StepReport> family) {
        reports.clear();
        for (var rank : byRank) {
            reports.add(family.apply(rank));
        }
        return reports;
    }

    /// Whether to run the next step immediately: there is more to compute, or requests that waited
    /// for a load can continue.
    public boolean isDue() {
        boolean loadEnded = kvTransfers.takeLoadEnded() | ecTransfers.takeLoadEnded();
        return loadEnded
                || !planner.schedule().isEmpty()
                || !encoders.encodes().isEmpty()
                || !planner.encoded().isEmpty();
    }

    // ---- between steps

    private long untilPendingWork() {
        return Math.min(kv.untilPendingWork(), ec.untilPendingWork());
    }

    private boolean hasOpenTransfers() {
        return kvTransfers.isOpen() || ecTransfers.isOpen();
    }

    /// Whether the next step must follow soon: a scheduler half is due, or transfers are open whose
    /// end is not signalled.
    ///
    /// @param kvSignals whether the KV connector signals the end of transfers
    public boolean mustPoll(boolean kvSignals, boolean ecSignals) {
        return untilPendingWork() <= 0
                || (kvTransfers.isOpen() && !kvSignals)
                || (ecTransfers.isOpen() && !ecSignals);
    }

    /// Nanoseconds until the next work of a step that is not signalled; [Long#MAX_VALUE] when there
    /// is none.
    public long untilDue(long now) {
        long due = untilPendingWork();
        if (lifecycle.hasWaiting() || !lifecycle.running().isEmpty()) {
            // a running request may wait for a lookup of an item to become definite
            return Math.min(due, Math.clamp(lifecycle.nextRetry(now), 50_000, 5_000_000));
        }
        if (hasOpenTransfers()) {
            due = Math.min(due, limits.idle().toNanos());
            due = Math.min(due, kvTransfers.untilDeadline(now));
            due = Math.min(due, ecTransfers.untilDeadline(now));
        }
        return due;
    }

    /// Whether requests or transfers are under way.
    public boolean isBusy() {
        return !requests.isEmpty() || hasOpenTransfers();
    }

    /// Aborts a request, or ends its hold. An abort may itself end in a hold, so holds come second.
    public void release(String requestId) {
        requests.abort(requestId);
        kvTransfers.revokeHolds(requestId);
    }

    /// Takes back what connectors have open.
    public void revokeAll() {
        kvTransfers.revokeAll();
        ecTransfers.revokeAll();
    }

    /// Empties the prefix cache, the encoder cache and, if requested and supported, the connectors'
    /// stores. In the last case requests start over, since the contents of their blocks would
    /// otherwise still be stored.
    public CompletionStage<Boolean> resetCaches(Deadline limit, boolean external) {
        cache.clear();
        encoders.clear();
        if (!external) {
            return CompletableFuture.completedStage(true);
        }
        if (kv.canReset()) {
            startOver();
        }
        return kv.reset(limit).thenCombine(ec.reset(limit), Boolean::logicalAnd);
    }

    private void startOver() {
        for (var request : requests.live().reversed()) { // each goes before those that came later
            switch (request.status()) {
                case RUNNING, READY -> planner.preempt(request);
                case LOADING -> request.startsOver = true;
                case NEW, WAITING, ENDED -> {}
            }
        }
    }

    // ---- without workers

    /// The workers are lost, with every block, item and transfer. Requests start over or fail.
    public void forgetWorkers(Failure failure, long step) {
        disableConnectors();
        requests.restartOrFail(failure);
        discardTransfers();
        blocks.takeEnded();
        encoders.forgetAll(requests.live().stream().map(request -> request.items).toList());
        kvTransfers.reset();
        ecTransfers.reset();
        planner.forgetStep(step);
        var pool = cache.pool();
        cache.clear(); // what it names was in the workers' memory
        if (pool.free() != pool.total()) {
            throw new IllegalStateException(
                    "%d of %d blocks are free after the workers were lost"
                            .formatted(pool.free(), pool.total()));
        }
    }

    /// No worker is left to answer: connectors are asked for nothing more.
    public void disableConnectors() {
        kv.disable();
        ec.disable();
    }

    /// Ends the transfers that no worker will report any more.
    public void discardTransfers() {
        kvTransfers.discardAll();
        ecTransfers.discardAll();
        encoders.clear();
    }

    // ---- figures

    /// Any thread.
    public int totalBlocks() {
        return cache.pool().total();
    }

    /// Publishes how many there are of what.
    public void gauge() {
        state.gauge();
        telemetry
                .metrics()
                .set(
                        Gauge.DEFERRED,
                        Math.min(
                                planner.deferred(),
                                lifecycle.waitingCount() - lifecycle.readyCount()));
    }

    /// The whole state, for a log; linear.
    public String describe() {
        return state.describe();
    }

    /// Throws when the books do not balance; linear, for tests.
    public void checkInvariants() {
        cache.pool().check();
        lifecycle.check();
    }
}
