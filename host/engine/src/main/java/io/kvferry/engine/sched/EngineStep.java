// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.connector.GuardedEcScheduler;
import io.kvferry.engine.connector.GuardedKvScheduler;
import io.kvferry.engine.connector.Transfers;
import io.kvferry.engine.encoder.EncoderScheduler;
import io.kvferry.engine.sched.RequestLifecycle.Status;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Metrics.Gauge;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.engine.worker.Handshakes;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.engine.worker.StepPlan;
import io.kvferry.engine.worker.WorkerGroup;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.hash.BlockHasher;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Function;

/// One step: plan it, run it on the workers, take in what they report and computed. Builds and owns
/// all that the scheduler thread works on.
///
/// Threading: scheduler thread only.
final class EngineStep {
    private final EngineCore.Parts parts;
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
    private final Scheduler scheduler;
    private final Admission admission;
    private final Requests requests;
    private final LoadOutcomes loads;
    private final StepResults results;
    private final EngineRecovery recovery;
    private WorkerGroup workers;
    private final List<StepReport> reports = new ArrayList<>();
    private long number;

    /// The workers did not execute a step, or cannot be started again.
    static final class WorkersFailed extends RuntimeException {
        private static final long serialVersionUID = 1L;

        final KvFerryException failure;
        final boolean mayRestart;

        WorkersFailed(KvFerryException failure, boolean mayRestart) {
            super(failure);
            this.failure = failure;
            this.mayRestart = mayRestart;
        }
    }

    EngineStep(EngineCore.Parts parts, Telemetry telemetry) {
        this.parts = parts;
        this.limits = parts.limits();
        this.workers = parts.workers();
        this.telemetry = telemetry;
        var metrics = telemetry.metrics();
        this.cache = new KvCache(parts.cache(), limits.prefixCache(), telemetry);
        this.kv =
                new GuardedKvScheduler(
                        parts.kv().orElse(null),
                        parts.kvCapabilities(),
                        parts.kvInstance(),
                        cache.blockTokens(),
                        telemetry);
        this.ec =
                new GuardedEcScheduler(
                        parts.ec().orElse(null),
                        parts.ecCapabilities(),
                        parts.ecInstance(),
                        telemetry);
        int ranks = parts.namespace().tpSize() * parts.namespace().ppSize();
        var bounds = new Transfers.Bounds(limits.load(), limits.hold(), limits.revoke());
        this.kvTransfers = new Transfers(kv, ranks, bounds, telemetry);
        this.ecTransfers = new Transfers(ec, ranks, bounds, telemetry);
        this.blocks = new KvTransfers(kv, kvTransfers, cache, metrics);
        this.encoders = new EncoderScheduler(encoderSettings(), ec, ecTransfers, telemetry);
        this.scheduler = new Scheduler(limits, lifecycle, cache, kv, blocks, encoders, telemetry);
        var contentDigest = parts.namespace().contentDigest();
        this.admission = new Admission(parts, cache, contentDigest);
        this.requests =
                new Requests(admission, lifecycle, kv, blocks, encoders, scheduler, telemetry);
        this.loads = new LoadOutcomes(cache, kv, blocks, scheduler, requests, telemetry);
        this.results =
                new StepResults(
                        new BlockHasher(contentDigest, cache.blockTokens()),
                        cache,
                        encoders,
                        scheduler,
                        requests,
                        telemetry);
        this.recovery =
                new EngineRecovery(
                        parts,
                        kv,
                        ec,
                        new EngineRecovery.Introductions(
                                this::introduceKvAgain, this::introduceEcAgain),
                        telemetry);
        introduce();
        gauge();
    }

    private EncoderScheduler.Settings encoderSettings() {
        return new EncoderScheduler.Settings(
                limits.encoderSlots(),
                limits.encoderStepBudget(),
                limits.encodeOnly(),
                limits.pendingLookup(),
                parts.model().embeddingWidth(),
                parts.model().dtype());
    }

    /// What connectors hear before their first request.
    private void introduce() {
        kv.bind(blocks);
        var handshakes = workers.handshakes(); // asks every half, which answers once
        kv.handshakes(handshakes.stream().map(Handshakes::kv).toList());
        ec.handshakes(handshakes.stream().map(Handshakes::ec).toList());
    }

    /// A KV connector that was off has a new scheduler half. Nothing that the old one had open is
    /// left, and the new one may use the same ids.
    private void introduceKvAgain(List<Payload> handshakes) {
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

    private void introduceEcAgain(List<Payload> handshakes) {
        ecTransfers.reset();
        ec.handshakes(handshakes);
        requests.live().forEach(request -> encoders.onRequest(request.items));
    }

    Admission admission() {
        return admission;
    }

    Requests requests() {
        return requests;
    }

    KvCache cache() {
        return cache;
    }

    long number() {
        return number;
    }

    /// Plans a step and runs it, if there is anything to do.
    ///
    /// @param asked whether a half of a connector wants a step
    /// @return whether the next one is due at once
    /// @throws WorkersFailed when they are gone; [#restartWorkers] may help
    boolean run(boolean asked) {
        if (recovery.workers.isUnderWay() && !goOnWithNewWorkers()) {
            gauge();
            return false;
        }
        long now = System.nanoTime();
        recovery.begin(now);
        kvTransfers.expire(now);
        ecTransfers.expire(now);
        loads.takeIn();
        kvTransfers.beginStep();
        ecTransfers.beginStep();
        var schedule = scheduler.schedule();
        scheduler.plan(number + 1, now);
        requests.failBroken();
        schedule.removeDiscarded();
        if (schedule.isEmpty() && !asked && !hasNews()) {
            gauge();
            return false;
        }
        number++;
        telemetry.metrics().count(Counter.STEPS);
        execute(plan(schedule), schedule);
        gauge();
        boolean loadEnded = kvTransfers.takeLoadEnded() | ecTransfers.takeLoadEnded();
        return loadEnded
                || recovery.isDue()
                || !schedule.isEmpty()
                || !encoders.encodes().isEmpty()
                || !scheduler.encoded().isEmpty();
    }

    /// Whether connectors or workers have to hear something although nothing is computed.
    private boolean hasNews() {
        var schedule = scheduler.schedule();
        return recovery.hasNews()
                || hasOpenTransfers()
                || kvTransfers.hasRevoked()
                || ecTransfers.hasRevoked()
                || encoders.hasNews()
                || !scheduler.encoded().isEmpty()
                || (!schedule.finished.isEmpty() && (kv.present() || ec.present()))
                || !schedule.preempted.isEmpty()
                || untilPendingWork() <= 0;
    }

    private StepPlan plan(StepSchedule schedule) {
        var kvRevoked = kvTransfers.takeRevoked();
        var ecRevoked = ecTransfers.takeRevoked();
        var kvPlan = kv.buildPlan(schedule);
        if (kvPlan.isEmpty()) {
            kvTransfers.planFailed();
        }
        var ecPlan = ec.buildPlan(number);
        if (ecPlan.isEmpty()) {
            ecTransfers.planFailed();
        }
        schedule.finished.clear();
        schedule.preempted.clear();
        return new StepPlan(
                number,
                Deadline.in(limits.step()),
                kvPlan.orElse(Payload.EMPTY),
                kvRevoked,
                ecPlan.orElse(Payload.EMPTY),
                ecRevoked,
                encoders.takeFreed(),
                encoders.takePlaced(),
                encoders.encodes(),
                schedule,
                schedule.isEmpty() ? List.of() : scheduler.forgotten(),
                recovery.kv.change(),
                recovery.ec.change());
    }

    private void execute(StepPlan plan, StepSchedule schedule) {
        List<RankResult> answers;
        try {
            answers = workers.execute(plan);
        } catch (KvFerryException e) {
            throw new WorkersFailed(e, true);
        }
        if (plan.forward()) {
            scheduler.forgotten().clear();
        }
        takeIn(answers, schedule);
    }

    private void takeIn(List<RankResult> answers, StepSchedule schedule) {
        if (recovery.kv.executed()) {
            kvTransfers.workersClosed(recovery.kv.reason(), answers.size());
        }
        if (recovery.ec.executed()) {
            ecTransfers.workersClosed(recovery.ec.reason(), answers.size());
        }
        for (int rank = 0; rank < answers.size(); rank++) {
            var answer = answers.get(rank);
            for (var failure : answer.encodeFailures()) {
                encoders.encodeFailed(failure.hash(), failure.failure());
            }
            recovery.takeIn(rank, answer, kv.instance(), ec.instance());
        }
        kvTransfers.takeIn(number, reports(answers, RankResult::kvReport));
        loads.takeIn();
        ecTransfers.takeIn(number, reports(answers, RankResult::ecReport));
        encoders.endStep();
        results.takeIn(answers, schedule);
        requests.failBroken();
        results.takeInEncoded();
        kv.observe();
        ec.observe();
        telemetry.flush();
    }

    private List<StepReport> reports(
            List<RankResult> answers, Function<RankResult, StepReport> family) {
        reports.clear();
        for (var answer : answers) {
            reports.add(family.apply(answer));
        }
        return reports;
    }

    /// Begins to replace workers that are gone. Nothing of what they had is left: no block, no
    /// item, no transfer. The connectors' scheduler halves end too, since what they know is about
    /// the workers' halves.
    ///
    /// @return false when that has happened too often, or cannot be done: the engine has to end
    boolean restartWorkers(KvFerryException cause) {
        if (!recovery.workers.begin(workers, cause)) {
            return false;
        }
        forgetWorkers(cause.toFailure());
        return true;
    }

    private void forgetWorkers(Failure failure) {
        disableConnectors();
        requests.restartOrFail(failure);
        discardTransfers();
        blocks.takeEnded();
        encoders.forgetAll(requests.live().stream().map(request -> request.items).toList());
        kvTransfers.reset();
        ecTransfers.reset();
        scheduler.forgetStep(number);
        var pool = cache.pool();
        pool.clear(); // what the prefix cache names was in the workers' memory
        telemetry.cacheCleared();
        if (pool.free() != pool.total()) {
            throw new IllegalStateException(
                    "%d of %d blocks are free after the workers were lost"
                            .formatted(pool.free(), pool.total()));
        }
        kv.replace(null);
        ec.replace(null);
        recovery.reset();
    }

    /// @return whether there are workers again
    private boolean goOnWithNewWorkers() {
        Optional<WorkerRestart.Reopened> reopened;
        try {
            reopened = recovery.workers.advance();
        } catch (KvFerryException e) {
            throw new WorkersFailed(e, false);
        }
        if (reopened.isEmpty()) {
            return false;
        }
        workers = reopened.get().workers();
        kv.replace(reopened.get().kv().orElse(null));
        ec.replace(reopened.get().ec().orElse(null));
        introduce();
        for (var request : requests.live()) {
            kv.onRequest(request);
            encoders.onRequest(request.items);
        }
        return true;
    }

    /// Nanoseconds until the restart of workers goes on, [Long#MAX_VALUE] when it will ring the
    /// alarm; empty while none is under way.
    OptionalLong untilWorkers(long now) {
        return recovery.workers.isUnderWay()
                ? OptionalLong.of(recovery.workers.untilDue(now))
                : OptionalLong.empty();
    }

    /// Why the engine does without workers or a connector; empty while it has all. Any thread.
    String degraded() {
        return recovery.status();
    }

    void gauge() {
        var metrics = telemetry.metrics();
        metrics.set(Gauge.WAITING, lifecycle.waitingCount());
        metrics.set(Gauge.LOADING, lifecycle.loadingCount());
        metrics.set(Gauge.RUNNING, lifecycle.running().size());
        metrics.set(Gauge.PREEMPTED, lifecycle.preemptedCount());
        metrics.set(Gauge.HELD, kvTransfers.held() + ecTransfers.held());
        metrics.set(Gauge.FREE_BLOCKS, cache.pool().free());
        metrics.set(Gauge.CACHED_BLOCKS, cache.pool().cached());
        metrics.set(Gauge.LEASED_BLOCKS, blocks.leasedBlocks());
        metrics.set(Gauge.QUARANTINED_BLOCKS, kvTransfers.quarantinedBlocks());
        metrics.set(Gauge.ENCODER_FREE, encoders.freeRows());
    }

    /// Whether transfers are open of which nobody tells that they have ended, or a scheduler half
    /// is due: the next step is to come soon.
    boolean mustPoll() {
        return untilPendingWork() <= 0
                || (kvTransfers.isOpen() && !parts.kvCapabilities().has(Feature.SIGNALS))
                || (ecTransfers.isOpen() && !parts.ecCapabilities().has(Feature.SIGNALS));
    }

    /// Nanoseconds until a step has something to do that nobody announces; [Long#MAX_VALUE] when
    /// nothing has.
    long untilDue(long now) {
        long due = Math.min(untilPendingWork(), recovery.untilDue(now));
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

    private long untilPendingWork() {
        return Math.min(kv.untilPendingWork(), ec.untilPendingWork());
    }

    private boolean hasOpenTransfers() {
        return kvTransfers.isOpen() || ecTransfers.isOpen();
    }

    /// The whole state, for a log; linear.
    String describe() {
        var text = new StringBuilder("step " + number + "; " + recovery.status() + "\n  requests:");
        for (var request : requests.live()) {
            text.append("\n    ")
                    .append(request)
                    .append(" blocks ")
                    .append(request.blocks.count())
                    .append(request.load == null ? "" : " loading")
                    .append(EncoderScheduler.describe(request.items));
        }
        return text.append("\n  KV transfers:")
                .append(kvTransfers.describe())
                .append("\n  item transfers:")
                .append(ecTransfers.describe())
                .append("\n  encoder cache: ")
                .append(encoders.describe())
                .toString();
    }

    /// Whether requests or transfers are under way.
    boolean isBusy() {
        return !requests.isEmpty() || hasOpenTransfers();
    }

    /// Aborts a request, or ends its hold. An abort may itself end in a hold, so holds come second.
    void release(String requestId) {
        requests.abort(requestId);
        kvTransfers.revokeHolds(requestId);
    }

    /// Takes back what connectors have open.
    void revokeAll() {
        kvTransfers.revokeAll();
        ecTransfers.revokeAll();
    }

    /// Empties the prefix cache, the encoder cache and, where wanted and possible, the connectors'
    /// stores.
    CompletionStage<Boolean> resetCaches(Deadline limit, boolean external) {
        cache.pool().clear();
        encoders.clear();
        telemetry.cacheCleared();
        return external
                ? kv.reset(limit).thenCombine(ec.reset(limit), Boolean::logicalAnd)
                : CompletableFuture.completedStage(true);
    }

    /// No worker is left to answer: connectors are asked for nothing more.
    void disableConnectors() {
        kv.disable();
        ec.disable();
    }

    /// Ends the transfers that no worker will report any more.
    void discardTransfers() {
        kvTransfers.discardAll();
        ecTransfers.discardAll();
        encoders.clear();
    }

    /// Ends what is being opened again, then the workers.
    void closeWorkers() {
        try {
            recovery.close();
        } finally {
            workers.close();
        }
    }

    void closeKv() {
        kv.close();
    }

    void closeEc() {
        ec.close();
    }
}
