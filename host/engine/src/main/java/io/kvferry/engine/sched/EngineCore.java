// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.EngineStats;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.RequestListener;
import io.kvferry.engine.block.BlockHasher;
import io.kvferry.engine.block.CachePool;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.engine.sched.Metrics.Counter;
import io.kvferry.engine.sched.Metrics.Gauge;
import io.kvferry.engine.sched.RequestLifecycle.Status;
import io.kvferry.engine.worker.Handshakes;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.engine.worker.StepAlarm;
import io.kvferry.engine.worker.StepPlan;
import io.kvferry.engine.worker.WorkerGroup;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/// The step: plan, run, take the reports in; and the life of requests from submission to outcome.
///
/// Threading: [#submit], [#stats] and [#post] from any thread, all else on the scheduler thread.
public final class EngineCore implements AutoCloseable {
    /// What the core is built from.
    ///
    /// @param kv the KV connector's scheduler half, if any; the core closes it
    /// @param workers opened already; the core closes them
    /// @param alarm rung by the worker halves
    public record Parts(
            Limits limits,
            ModelInfo model,
            Tokenizer tokenizer,
            KvCacheSpec cache,
            CacheNamespace namespace,
            LoadFailurePolicy failurePolicy,
            Optional<SchedulerConnector> kv,
            ConnectorCapabilities kvCapabilities,
            String kvInstance,
            Optional<EcSchedulerConnector> ec,
            ConnectorCapabilities ecCapabilities,
            String ecInstance,
            WorkerGroup workers,
            Reopener reopener,
            StepAlarm alarm,
            EventSink events) {}

    private static final Logger LOG = LoggerFactory.getLogger(EngineCore.class);

    private final Parts parts;
    private final Limits limits;
    private final Completions kvCompletions;
    private final Completions ecCompletions;
    private final WorkerRestart restart;
    private final ConnectorRecovery<SchedulerConnector> kvRecovery;
    private final ConnectorRecovery<EcSchedulerConnector> ecRecovery;
    private WorkerGroup workers;
    private final Metrics metrics = new Metrics();
    private final Telemetry telemetry;
    private final CachePool pool;
    private final GuardedKvScheduler kv;
    private final GuardedEcScheduler ec;
    private final KvTransfers kvTransfers;
    private final EncoderScheduler encoders;
    private final RequestLifecycle lifecycle = new RequestLifecycle();
    private final Scheduler scheduler;
    private final Admission admission;
    private final Requests requests;
    private final LoadOutcomes loads;
    private final StepResults results;
    private final AtomicLong ids = new AtomicLong();
    private final ReaderWaker waker = new ReaderWaker();
    private final ConcurrentLinkedQueue<Runnable> inbox = new ConcurrentLinkedQueue<>();
    private long step;

    /// A load ended in this step: what waited for it can be planned at once.
    private boolean due;

    /// A half of a connector asked for a step.
    private boolean woken;

    private volatile @Nullable Thread owner;
    private volatile boolean closed;

    /// From now on nobody looks into the inbox.
    private volatile boolean terminated;

    private volatile String health = "";
    private volatile Supplier<String> plugins = () -> "";

    public EngineCore(Parts parts) {
        this.parts = parts;
        this.limits = parts.limits();
        this.workers = parts.workers();
        int blockTokens = parts.cache().blockTokens();
        this.telemetry = new Telemetry(metrics, parts.events());
        this.restart = new WorkerRestart(parts.reopener(), limits, telemetry, parts.alarm()::ring);
        this.pool = new CachePool(parts.cache().blockCount(), new Evicted());
        var contentDigest = parts.namespace().contentDigest();
        this.kv =
                new GuardedKvScheduler(
                        parts.kv().orElse(null),
                        parts.kvCapabilities(),
                        parts.kvInstance(),
                        blockTokens,
                        telemetry);
        this.ec =
                new GuardedEcScheduler(
                        parts.ec().orElse(null),
                        parts.ecCapabilities(),
                        parts.ecInstance(),
                        telemetry);
        int world = parts.namespace().tpSize() * parts.namespace().ppSize();
        this.kvCompletions = new Completions(world, metrics, this::isKvLoad);
        this.ecCompletions = new Completions(world, metrics, this::isEcLoad);
        int groups = parts.cache().groups().size();
        this.kvTransfers = new KvTransfers(pool, kvCompletions, telemetry, limits, this::loaded);
        this.encoders =
                new EncoderScheduler(
                        ec,
                        telemetry,
                        ecCompletions,
                        limits,
                        parts.model().embeddingWidth(),
                        parts.model().dtype());
        this.scheduler =
                new Scheduler(
                        limits,
                        blockTokens,
                        groups,
                        lifecycle,
                        pool,
                        kv,
                        kvTransfers,
                        encoders,
                        telemetry);
        this.admission = new Admission(parts, contentDigest);
        this.requests =
                new Requests(
                        admission,
                        lifecycle,
                        pool,
                        kv,
                        kvTransfers,
                        encoders,
                        scheduler,
                        telemetry);
        this.loads =
                new LoadOutcomes(blockTokens, groups, scheduler, kv, telemetry, requests::fail);
        var reopener = parts.reopener();
        this.kvRecovery =
                new ConnectorRecovery<>(
                        kv,
                        world,
                        reopener::nextIncarnation,
                        reopener::openKv,
                        this::introduceKvAgain,
                        limits.connectorPause(),
                        telemetry);
        this.ecRecovery =
                new ConnectorRecovery<>(
                        ec,
                        world,
                        reopener::nextIncarnation,
                        reopener::openEc,
                        this::introduceEcAgain,
                        limits.connectorPause(),
                        telemetry);
        this.results =
                new StepResults(
                        new BlockHasher(contentDigest, blockTokens),
                        kv,
                        ec,
                        kvRecovery,
                        ecRecovery,
                        kvCompletions,
                        ecCompletions,
                        kvTransfers,
                        encoders,
                        scheduler,
                        requests,
                        telemetry);
        introduce();
        gauge();
    }

    private void bindPool() {
        kv.bind(new ConnectorBlockPool(kvTransfers, pool, parts.cache().groups().size()));
    }

    /// What connectors hear before their first request.
    private void introduce() {
        bindPool();
        kv.handshakes(workers.handshakes().stream().map(Handshakes::kv).toList());
        ec.handshakes(workers.handshakes().stream().map(Handshakes::ec).toList());
    }

    /// A KV connector that was off has a new scheduler half. Nothing that the old one had open is
    /// left, and the new one may use the same ids.
    private void introduceKvAgain(List<Payload> handshakes) {
        kvCompletions.clear();
        kvTransfers.leases().reset();
        bindPool();
        kv.handshakes(handshakes);
        for (var request : requests.live()) {
            kv.onRequest(request);
            if (request.status() == Status.RUNNING) {
                kv.onAllocated(request, LoadAssignment.none(Scheduler.loadId(request)));
            }
        }
    }

    private void introduceEcAgain(List<Payload> handshakes) {
        ecCompletions.clear();
        ec.handshakes(handshakes);
        requests.live().forEach(encoders::onRequest);
    }

    private boolean isKvLoad(TransferId id) {
        return kvTransfers.isLoading(id);
    }

    private boolean isEcLoad(TransferId id) {
        return encoders.transfers().isLoading(id);
    }

    private final class Evicted implements CachePool.Evictions {
        @Override
        public boolean wanted() {
            metrics.count(Counter.BLOCKS_EVICTED);
            return telemetry.wantsCacheEvents();
        }

        @Override
        public void evicted(BlockHash hash) {
            telemetry.blockRemoved(hash);
        }
    }

    // ---- any thread

    /// Queues a request; see [io.kvferry.engine.Engine#submit].
    public RequestHandle submit(GenerationRequest request) {
        if (closed) {
            throw new KvFerryException(ErrorCode.CLOSED, "the engine is closed");
        }
        if (!health.isEmpty()) {
            throw new KvFerryException(ErrorCode.UNAVAILABLE, gone());
        }
        admission.check(request);
        var state = admit(request);
        post(() -> accept(state));
        if (terminated) { // the last look at the inbox may have been before this request came
            requests.refuse(state, new Failure(ErrorCode.CLOSED, "the engine is closed"));
        }
        return state.generation;
    }

    /// Counts the request in; whatever is thrown after that counts it out again.
    private RequestState admit(GenerationRequest request) {
        admission.enter();
        try {
            var id = newId(request.externalId());
            var generation =
                    new Generation(
                            id,
                            request.prompt(),
                            waker,
                            aborted -> post(() -> requests.abort(aborted.id())),
                            released -> post(() -> release(released.id())));
            return admission.newState(id, request, generation);
        } catch (Throwable e) {
            admission.leave();
            throw e;
        }
    }

    /// Unique by its number; the client's id behind it lets the logs of two engines be read side by
    /// side.
    private String newId(String externalId) {
        var id = "r" + ids.incrementAndGet();
        return externalId.isEmpty()
                ? id
                : id + ":" + externalId.substring(0, Math.min(64, externalId.length()));
    }

    /// Runs something on the scheduler thread before its next step.
    public void post(Runnable command) {
        inbox.add(command);
        LockSupport.unpark(owner);
    }

    /// @param reason what plugins say is wrong with them, empty while all is well; part of
    ///   [EngineStats#health], though the engine goes on
    public void watch(Supplier<String> reason) {
        plugins = reason;
    }

    /// A snapshot.
    public EngineStats stats() {
        return metrics.snapshot(
                pool.total(), health.isEmpty() ? plugins.get() : health, degraded());
    }

    private String degraded() {
        return Stream.of(restart.status(), kvRecovery.status(), ecRecovery.status())
                .filter(each -> !each.isEmpty())
                .collect(Collectors.joining("; "));
    }

    /// Name of the KV connector, empty without one.
    public String kvConnector() {
        return kv.present() ? kv.instance() : "";
    }

    /// Name of the encoder-cache connector, empty without one.
    public String ecConnector() {
        return ec.present() ? ec.instance() : "";
    }

    // ---- scheduler thread

    /// Sets who hears of cache events; before the first step.
    public void listen(Consumer<CacheEvent> listener) {
        telemetry.listen(listener);
    }

    /// Sets who hears how requests get on; before the first step.
    public void listen(RequestListener listener) {
        telemetry.listen(listener);
    }

    private void accept(RequestState request) {
        if (terminated) {
            requests.refuse(request, new Failure(ErrorCode.CLOSED, "the engine is closed"));
        } else if (!health.isEmpty()) {
            requests.refuse(request, new Failure(ErrorCode.UNAVAILABLE, gone()));
        } else {
            requests.accept(request);
        }
    }

    /// An abort may itself end in a hold, so the holds come second.
    private void release(String id) {
        requests.abort(id);
        kvTransfers.revokeHolds(id);
    }

    private String gone() {
        return "the engine cannot serve any more: " + health;
    }

    /// One step, if there is anything to do. Whatever goes wrong in it ends the engine: a scheduler
    /// that has stopped half way through a step has no state to go on with.
    ///
    /// @return whether the next step is due at once
    public boolean step() {
        try {
            return runCommandsAndStep();
        } catch (Throwable e) {
            die(
                    new Failure(
                            Failure.of(e).code(),
                            "the scheduler failed in step " + step + ": " + e),
                    e);
            return false;
        }
    }

    private boolean runCommandsAndStep() {
        for (var command = inbox.poll(); command != null; command = inbox.poll()) {
            command.run();
        }
        if (!health.isEmpty()) {
            return false;
        }
        if (restart.isUnderWay() && !goOnWithNewWorkers()) {
            gauge();
            return false;
        }
        long now = System.nanoTime();
        kvRecovery.begin(now);
        ecRecovery.begin(now);
        kvTransfers.expire(now);
        encoders.transfers().expire(now);
        var schedule = scheduler.schedule();
        scheduler.plan(step + 1, now);
        requests.failBroken();
        schedule.removeDiscarded();
        boolean asked = woken;
        woken = false;
        if (schedule.isEmpty() && !asked && !hasNews()) {
            gauge();
            return false;
        }
        step++;
        metrics.count(Counter.STEPS);
        due = false;
        run(schedule);
        gauge();
        return due
                || kvRecovery.isDue()
                || ecRecovery.isDue()
                || encoders.transfers().takeArrived()
                || !schedule.isEmpty()
                || !encoders.encodes().isEmpty()
                || !scheduler.encoded().isEmpty();
    }

    /// Whether connectors or workers have to hear something although nothing is computed.
    private boolean hasNews() {
        var schedule = scheduler.schedule();
        return kvRecovery.hasNews()
                || ecRecovery.hasNews()
                || kvTransfers.isOpen()
                || kvTransfers.hasRevoked()
                || encoders.transfers().isOpen()
                || encoders.hasNews()
                || !scheduler.newLoads().isEmpty()
                || !scheduler.encoded().isEmpty()
                || (!schedule.finished.isEmpty() && (kv.present() || ec.present()))
                || !schedule.preempted.isEmpty()
                || kv.untilPendingWork() <= 0
                || ec.untilPendingWork() <= 0;
    }

    private void run(StepSchedule schedule) {
        var kvRevoked = kvTransfers.takeRevoked();
        kvRevoked.forEach(kv::onRevoked);
        var ecRevoked = encoders.transfers().takeRevoked();
        ecRevoked.forEach(ec::onRevoked);
        var kvPlan = kv.buildPlan(schedule);
        if (kvPlan.isEmpty()) {
            scheduler.newLoads().forEach(kvTransfers::revokeLoad); // nobody will ever do them
        }
        var ecPlan = ec.buildPlan(step);
        if (ecPlan.isEmpty()) {
            encoders.transfers().planFailed();
        }
        schedule.finished.clear();
        schedule.preempted.clear();
        boolean forward = !schedule.isEmpty();
        var plan =
                new StepPlan(
                        step,
                        Deadline.in(limits.step()),
                        kvPlan.orElse(Payload.EMPTY),
                        kvRevoked,
                        ecPlan.orElse(Payload.EMPTY),
                        ecRevoked,
                        encoders.takeFreed(),
                        encoders.encodes(),
                        schedule,
                        forward ? scheduler.forgotten() : List.of(),
                        kvRecovery.change(),
                        ecRecovery.change());
        List<RankResult> answers;
        try {
            answers = workers.execute(plan);
        } catch (KvFerryException e) {
            if (!closed && restart.begin(workers, e)) {
                forgetWorkers(e.toFailure());
            } else {
                die(e.toFailure(), e);
            }
            return;
        }
        if (forward) {
            scheduler.forgotten().clear();
        }
        results.takeIn(step, answers, schedule);
        waker.flush();
    }

    /// Nothing of what the workers had is left: no block, no item, no transfer. The connectors'
    /// scheduler halves end too, since what they know is about the workers' halves.
    private void forgetWorkers(Failure failure) {
        kv.disable();
        ec.disable();
        requests.restartOrFail(failure);
        kvTransfers.releaseAll();
        encoders.forgetAll(requests.live());
        kvTransfers.leases().reset();
        kvCompletions.clear();
        ecCompletions.clear();
        results.clear();
        scheduler.forgetStep(step);
        pool.clear(); // what the prefix cache names was in the workers' memory
        telemetry.cacheCleared();
        if (pool.free() != pool.total()) {
            throw new IllegalStateException(
                    "%d of %d blocks are free after the workers were lost"
                            .formatted(pool.free(), pool.total()));
        }
        kv.replace(null);
        ec.replace(null);
        kvRecovery.reset();
        ecRecovery.reset();
        waker.flush();
    }

    /// @return whether there are workers again
    private boolean goOnWithNewWorkers() {
        Optional<WorkerRestart.Reopened> reopened;
        try {
            reopened = restart.advance();
        } catch (KvFerryException e) {
            die(e.toFailure(), e);
            return false;
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
            encoders.onRequest(request);
        }
        return true;
    }

    private void loaded(RequestState request, Completion.Result result) {
        due = true;
        loads.ended(request, result);
    }

    /// The workers are gone or the scheduler is broken: every request fails, the workers are
    /// closed, and the engine takes no more requests. What connectors had open ends with the
    /// workers, since no rank is left to answer for it.
    private void die(Failure failure, Throwable cause) {
        if (!health.isEmpty()) {
            LOG.error("a further failure of an engine that has failed", cause);
            return;
        }
        health = failure.toString();
        LOG.error("the engine has failed and serves no more requests: {}", health, cause);
        attempt(() -> telemetry.incident("", "engine-failed", "engine", health));
        kv.disable();
        ec.disable();
        requests.failAll(failure);
        attempt(restart::close);
        attempt(workers::close);
        attempt(kvTransfers::releaseAll);
        attempt(encoders::releaseAll);
        attempt(this::gauge);
    }

    /// Goes on whatever is thrown: what follows must be done as well.
    private static void attempt(Runnable part) {
        try {
            part.run();
        } catch (Throwable e) {
            LOG.error("ending a failed engine", e);
        }
    }

    private void gauge() {
        metrics.set(Gauge.WAITING, lifecycle.waitingCount());
        metrics.set(Gauge.LOADING, lifecycle.loadingCount());
        metrics.set(Gauge.RUNNING, lifecycle.running().size());
        metrics.set(Gauge.PREEMPTED, lifecycle.preemptedCount());
        metrics.set(Gauge.HELD, kvTransfers.held() + encoders.transfers().held());
        metrics.set(Gauge.FREE_BLOCKS, pool.free());
        metrics.set(Gauge.CACHED_BLOCKS, pool.cached());
        metrics.set(Gauge.LEASED_BLOCKS, kvTransfers.leases().blocks());
        metrics.set(Gauge.QUARANTINED_BLOCKS, kvTransfers.quarantinedBlocks());
        metrics.set(Gauge.ENCODER_FREE, encoders.freeRows());
    }

    /// Steps until `closing` says so. Parks while there is nothing to do; while transfers are open,
    /// until the connector signals a report, or, where it does not signal, for a moment.
    public void loop() {
        owner = Thread.currentThread();
        parts.alarm().wakesThisThread();
        long pause = 0;
        while (!closed) {
            // After news once more: the scheduler half may have something to say to it.
            boolean news = parts.alarm().rung();
            parts.alarm().reset();
            woken = news;
            boolean due = step();
            try {
                if (due || news || parts.alarm().rung()) {
                    pause = 0;
                } else if (inbox.isEmpty()
                        && !closed) { // stop() may have spent its wake-up on a wait within the step
                    pause = idle(pause);
                }
            } catch (Throwable e) {
                die(new Failure(Failure.of(e).code(), "the scheduler failed: " + e), e);
            }
        }
    }

    /// Waits for something to do.
    ///
    /// @param pause nanoseconds of the previous wait for transfers that nobody signals
    private long idle(long pause) {
        if (!health.isEmpty()) {
            LockSupport.park(this);
            return 0;
        }
        long now = System.nanoTime();
        if (restart.isUnderWay()) {
            LockSupport.parkNanos(this, Math.clamp(restart.untilDue(now), 50_000, 250_000_000));
            return 0;
        }
        long work = Math.min(kv.untilPendingWork(), ec.untilPendingWork());
        boolean unannounced =
                work <= 0
                        || (kvTransfers.isOpen() && !parts.kvCapabilities().has(Feature.SIGNALS))
                        || (encoders.transfers().isOpen()
                                && !parts.ecCapabilities().has(Feature.SIGNALS));
        if (unannounced) {
            long next = Math.clamp(2 * pause, 50_000, 1_000_000);
            LockSupport.parkNanos(this, next);
            return next;
        }
        long limit = Math.min(work, kvRecovery.untilDue(now));
        limit = Math.min(limit, ecRecovery.untilDue(now));
        if (lifecycle.hasWaiting() || !lifecycle.running().isEmpty()) {
            // a running request may wait for a lookup of an item to become definite
            limit = Math.min(limit, Math.clamp(lifecycle.nextRetry(now), 50_000, 5_000_000));
        } else if (kvTransfers.isOpen() || encoders.transfers().isOpen()) {
            limit = Math.min(limit, limits.idle().toNanos());
            limit = Math.min(limit, kvTransfers.untilDeadline(now));
            limit = Math.min(limit, encoders.transfers().untilDeadline(now));
        }
        if (limit == Long.MAX_VALUE) {
            LockSupport.park(this);
        } else {
            LockSupport.parkNanos(this, Math.max(limit, 50_000));
        }
        return 0;
    }

    /// Empties the prefix cache, the encoder cache and, where wanted and possible, the connectors'
    /// stores.
    public CompletionStage<Boolean> resetCaches(Deadline limit, boolean external) {
        pool.clear();
        encoders.clear();
        telemetry.cacheCleared();
        return external
                ? kv.reset(limit).thenCombine(ec.reset(limit), Boolean::logicalAnd)
                : CompletableFuture.completedStage(true);
    }

    /// Runs [#resetCaches] on the scheduler thread.
    public CompletableFuture<Boolean> postReset(Deadline limit, boolean external) {
        var done = new CompletableFuture<Boolean>();
        post(() -> {
            if (terminated) {
                done.complete(false);
                return;
            }
            resetCaches(limit, external)
                    .whenComplete((all, failure) -> done.complete(failure == null && all));
        });
        return done;
    }

    /// Whether requests or transfers are under way.
    public boolean isBusy() {
        return health.isEmpty()
                && (!requests.isEmpty()
                        || kvTransfers.isOpen()
                        || encoders.transfers().isOpen()
                        || !inbox.isEmpty());
    }

    /// Ends the loop, on any thread.
    public void stop() {
        closed = true;
        LockSupport.unpark(owner);
    }

    /// Finishes what runs, within the limit, then aborts the rest, gives connectors the same time
    /// again to let go of the blocks, and closes: workers, scheduler halves. On the scheduler
    /// thread, or after it has ended.
    @Override
    public void close() {
        closed = true;
        attempt(this::letGo);
        terminated = true;
        for (var command = inbox.poll(); command != null; command = inbox.poll()) {
            attempt(command);
        }
        attempt(waker::close);
        attempt(kvRecovery::close);
        attempt(ecRecovery::close);
        attempt(restart::close);
        attempt(workers::close);
        attempt(kv::close);
        attempt(ec::close);
    }

    private void letGo() {
        drain(Deadline.in(limits.close()), () -> requests.isEmpty() && inbox.isEmpty());
        requests.abortAll();
        drain(
                Deadline.in(limits.close()).earlier(Deadline.in(Duration.ofSeconds(1))),
                () -> !isBusy());
        if (isBusy()) {
            kvTransfers.revokeAll();
            encoders.transfers().revokeAll();
            drain(Deadline.in(limits.revoke()), () -> !isBusy());
        }
        requests.abortAll(); // those that came meanwhile
    }

    private void drain(Deadline limit, BooleanSupplier done) {
        while (health.isEmpty() && !done.getAsBoolean() && !limit.passed()) {
            if (!step()) {
                LockSupport.parkNanos(this, 200_000);
            }
        }
    }

    /// Throws when the books do not balance; linear, for tests.
    public void checkInvariants() {
        pool.check();
    }
}
