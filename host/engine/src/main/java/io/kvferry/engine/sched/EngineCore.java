// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.EngineStats;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.Usage;
import io.kvferry.engine.block.BlockHasher;
import io.kvferry.engine.block.CachePool;
import io.kvferry.engine.block.HashChain;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.engine.sched.Metrics.Counter;
import io.kvferry.engine.sched.Metrics.Gauge;
import io.kvferry.engine.sched.RequestState.Status;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.engine.worker.StepPlan;
import io.kvferry.engine.worker.WorkerGroup;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.kv.CacheEvent;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.TransferResult;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;

/// The step: plan, run, take the reports in; and the life of requests from submission to outcome.
///
/// Threading: [#submit], [#stats] and [#post] from any thread, all else on the scheduler thread.
public final class EngineCore implements AutoCloseable {
    private static final byte[] NO_EXTRA = new byte[0];

    /// What the core is built from.
    ///
    /// @param kv the KV connector's scheduler half, if any; the core closes it
    /// @param workers opened already; the core closes them
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
            EventSink events) {}

    private final Parts parts;
    private final Limits limits;
    private final int blockTokens;
    private final Metrics metrics = new Metrics();
    private final Observer observer;
    private final CachePool pool;
    private final BlockHasher hasher;
    private final KvSide kv;
    private final EcSide ec;
    private final Completions kvCompletions;
    private final Completions ecCompletions;
    private final Desk desk;
    private final Encoders encoders;
    private final Scheduler scheduler;
    private final Loads loads;
    private final AtomicInteger inside = new AtomicInteger();
    private final AtomicLong ids = new AtomicLong();
    private final ConcurrentLinkedQueue<Runnable> inbox = new ConcurrentLinkedQueue<>();
    private final Map<String, RequestState> live = new HashMap<>();
    private final Map<String, Stops> stops = new HashMap<>();
    private final List<Completion> merged = new ArrayList<>();
    private final List<Completion> ecMerged = new ArrayList<>();
    private final List<StepReport> reports = new ArrayList<>();
    private final byte[] contentDigest;
    private long step;
    private volatile @Nullable Thread owner;
    private volatile boolean closed;
    private volatile String health = "";

    public EngineCore(Parts parts) {
        this.parts = parts;
        this.limits = parts.limits();
        this.blockTokens = parts.cache().blockTokens();
        this.observer = new Observer(metrics, parts.events());
        this.pool = new CachePool(parts.cache().blockCount(), new Evicted());
        this.contentDigest = parts.namespace().contentDigest();
        this.hasher = new BlockHasher(contentDigest, blockTokens);
        this.kv =
                new KvSide(
                        parts.kv().orElse(null),
                        parts.kvCapabilities(),
                        parts.kvInstance(),
                        blockTokens,
                        observer);
        this.ec =
                new EcSide(
                        parts.ec().orElse(null),
                        parts.ecCapabilities(),
                        parts.ecInstance(),
                        observer);
        int world = parts.namespace().tpSize() * parts.namespace().ppSize();
        this.kvCompletions = new Completions(world);
        this.ecCompletions = new Completions(world);
        int groups = parts.cache().groups().size();
        this.desk = new Desk(pool, kvCompletions, observer, limits, this::loaded);
        this.encoders =
                new Encoders(
                        ec,
                        observer,
                        ecCompletions,
                        limits,
                        parts.model().embeddingWidth(),
                        parts.model().dtype());
        this.scheduler =
                new Scheduler(limits, blockTokens, groups, pool, kv, desk, encoders, observer);
        this.loads = new Loads(blockTokens, scheduler, kv, observer, this::fail);
        kv.bind(new LeasePool(desk, groups));
        kv.handshakes(parts.workers().handshakes());
        gauge();
    }

    private final class Evicted implements CachePool.Evictions {
        @Override
        public boolean wanted() {
            metrics.count(Counter.BLOCKS_EVICTED);
            return observer.wantsCacheEvents();
        }

        @Override
        public void evicted(BlockHash hash) {
            observer.blockRemoved(hash);
        }
    }

    // ---- any thread

    /// Queues a request; see [io.kvferry.engine.Engine#submit].
    public RequestHandle submit(GenerationRequest request) {
        if (closed) {
            throw new KvFerryException(ErrorCode.CLOSED, "the engine is closed");
        }
        if (!health.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE, "the engine cannot serve any more: " + health);
        }
        check(request);
        if (inside.incrementAndGet() > limits.maxQueued()) {
            inside.decrementAndGet();
            throw new KvFerryException(
                    ErrorCode.BACKPRESSURE,
                    limits.maxQueued() + " requests are in the engine already; try again later");
        }
        var id = newId(request.externalId());
        var generation = new Generation(id, aborted -> post(() -> abort(aborted.id())));
        var state = newState(id, request, generation);
        post(() -> accept(state));
        return generation;
    }

    /// Unique by its number; the client's id behind it lets the logs of two engines be read side by
    /// side.
    private String newId(String externalId) {
        var id = "r" + ids.incrementAndGet();
        return externalId.isEmpty()
                ? id
                : id + ":" + externalId.substring(0, Math.min(64, externalId.length()));
    }

    private void check(GenerationRequest request) {
        int prompt = request.prompt().length;
        int context = parts.model().contextTokens();
        if (prompt >= context) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "a prompt of " + prompt + " tokens; the model's context holds " + context);
        }
        long tokens = Math.min(context, (long) prompt + request.sampling().maxTokens());
        long blocks = (tokens + blockTokens - 1) / blockTokens * parts.cache().groups().size();
        if (blocks > pool.total() && !limits.encodeOnly()) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "prompt and "
                            + request.sampling().maxTokens()
                            + " new tokens need "
                            + blocks
                            + " blocks, the pool has "
                            + pool.total());
        }
        int vocab = parts.model().vocabSize();
        for (int token : request.prompt()) {
            if (token < 0 || token >= vocab) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "token id " + token + " is not in the vocabulary of " + vocab);
            }
        }
    }

    /// Hashes the prompt here, on the client's thread, so that long prompts do not hold the
    /// scheduler up.
    private RequestState newState(String id, GenerationRequest request, Generation generation) {
        var own = new BlockHasher(contentDigest, blockTokens);
        int expected = (request.prompt().length + request.sampling().maxTokens()) / blockTokens + 1;
        var chain =
                new HashChain(
                        own.root(request.cacheSalt()),
                        Math.min(expected, request.prompt().length / blockTokens + 64));
        var state =
                new RequestState(
                        id,
                        request,
                        generation,
                        chain,
                        parts.cache().groups().size(),
                        request.failurePolicy().orElse(parts.failurePolicy()),
                        blockTokens,
                        request.items().isEmpty()
                                ? BlockHasher.Extra.NONE
                                : block -> itemNames(request, block));
        state.hash(own);
        return state;
    }

    private byte[] itemNames(GenerationRequest request, int block) {
        int from = block * blockTokens;
        var names = new StringBuilder();
        for (var item : request.items()) {
            if (item.position() < from + blockTokens
                    && item.position() + item.embeddings() > from) {
                names.append(item.position() - from).append(':').append(item.hash()).append('\n');
            }
        }
        return names.isEmpty() ? NO_EXTRA : names.toString().getBytes(StandardCharsets.UTF_8);
    }

    /// Runs something on the scheduler thread before its next step.
    public void post(Runnable command) {
        inbox.add(command);
        LockSupport.unpark(owner);
    }

    /// A snapshot.
    public EngineStats stats() {
        return new EngineStats(
                metrics.get(Gauge.WAITING),
                metrics.get(Gauge.LOADING),
                metrics.get(Gauge.RUNNING),
                metrics.get(Gauge.PREEMPTED),
                metrics.get(Gauge.HELD),
                metrics.get(Gauge.FREE_BLOCKS),
                pool.total(),
                metrics.get(Gauge.CACHED_BLOCKS),
                metrics.get(Gauge.LEASED_BLOCKS),
                metrics.get(Gauge.QUARANTINED_BLOCKS),
                metrics.get(Gauge.ENCODER_FREE),
                metrics.get(Counter.STEPS),
                metrics.counters(),
                metrics.kv(),
                metrics.ec(),
                health);
    }

    // ---- scheduler thread

    /// Sets who hears of cache events; before the first step.
    public void listen(Consumer<CacheEvent> listener) {
        observer.listen(listener);
    }

    private void accept(RequestState request) {
        metrics.count(Counter.REQUESTS_SUBMITTED);
        metrics.add(Counter.PROMPT_TOKENS, request.promptTokenCount());
        live.put(request.id, request);
        stops.put(request.id, new Stops(request, parts.model(), parts.tokenizer()));
        scheduler.enqueue(request);
        kv.onRequest(request);
        encoders.onRequest(request);
        if (!health.isEmpty()) {
            fail(
                    request,
                    new Failure(
                            ErrorCode.UNAVAILABLE, "the engine cannot serve any more: " + health));
        } else if (request.generation.isAborted()) {
            end(request, FinishReason.ABORT, null);
        }
    }

    private void abort(String id) {
        var request = live.get(id);
        if (request != null) {
            end(request, FinishReason.ABORT, null);
        }
    }

    /// One step, if there is anything to do.
    ///
    /// @return whether the next step is due at once
    public boolean step() {
        for (var command = inbox.poll(); command != null; command = inbox.poll()) {
            command.run();
        }
        if (!health.isEmpty()) {
            return false;
        }
        long now = System.nanoTime();
        desk.expire(now);
        encoders.expire(now);
        var schedule = scheduler.schedule();
        scheduler.plan(step + 1, now);
        failBroken();
        if (schedule.isEmpty() && !hasNews()) {
            gauge();
            return false;
        }
        step++;
        metrics.count(Counter.STEPS);
        run(schedule);
        gauge();
        return !schedule.isEmpty()
                || !encoders.encodes().isEmpty()
                || !scheduler.encoded().isEmpty();
    }

    /// Whether connectors or workers have to hear something although nothing is computed.
    private boolean hasNews() {
        var schedule = scheduler.schedule();
        return desk.isOpen()
                || desk.hasRevoked()
                || encoders.isOpen()
                || encoders.hasNews()
                || !scheduler.newLoads().isEmpty()
                || !scheduler.encoded().isEmpty()
                || (!schedule.finished.isEmpty() && (kv.present() || ec.present()))
                || !schedule.preempted.isEmpty()
                || kv.hasPendingWork()
                || ec.hasPendingWork();
    }

    private void run(StepSchedule schedule) {
        var kvRevoked = desk.takeRevoked();
        kvRevoked.forEach(kv::onRevoked);
        var ecRevoked = encoders.takeRevoked();
        ecRevoked.forEach(ec::onRevoked);
        var kvPlan = kv.buildPlan(schedule);
        if (kvPlan.isEmpty()) {
            scheduler.newLoads().forEach(desk::revokeLoad); // nobody will ever do them
        }
        var ecPlan = ec.buildPlan(step);
        if (ecPlan.isEmpty()) {
            encoders.planFailed();
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
                        forward ? scheduler.forgotten() : List.of());
        List<RankResult> results;
        try {
            results = parts.workers().execute(plan);
        } catch (KvFerryException e) {
            die(e.toFailure());
            return;
        }
        if (forward) {
            scheduler.forgotten().clear();
        }
        takeIn(results, schedule);
    }

    private void takeIn(List<RankResult> results, StepSchedule schedule) {
        for (int rank = 0; rank < results.size(); rank++) {
            int failed = rank;
            for (var failure : results.get(rank).encodeFailures()) {
                encoders.encodeFailed(failure.hash(), failure.failure());
            }
            results.get(rank).kvDefect().ifPresent(defect -> kvDefect(failed, defect));
            results.get(rank).ecDefect().ifPresent(defect -> ecDefect(failed, defect));
        }
        takeInKv(results);
        takeInEc(results);
        encoders.endStep();
        takeInTokens(results, schedule);
        failBroken();
        for (var request : scheduler.encoded()) {
            if (!request.ended()) {
                end(request, FinishReason.STOP, null);
            }
        }
        kv.observe();
        ec.observe();
        observer.flush();
    }

    private void kvDefect(int rank, Failure defect) {
        observer.defect("", kv.instance() + " on rank " + rank, defect.message());
        kv.disable();
        desk.disable();
        desk.failRank(rank, defect, merged);
        desk.revokeAll();
    }

    private void ecDefect(int rank, Failure defect) {
        observer.defect("", parts.ecInstance() + " on rank " + rank, defect.message());
        ec.disable();
        encoders.failRank(rank, defect, ecMerged);
        encoders.revokeAll();
    }

    private void takeInKv(List<RankResult> results) {
        reports.clear();
        for (int rank = 0; rank < results.size(); rank++) {
            reports.add(ofRank(results.get(rank).kvReport(), rank, kv.instance()));
        }
        for (var report : reports) {
            kvCompletions.add(report, merged);
            metrics.addKv(report.stats());
            report.events().forEach(observer::forward);
        }
        if (kv.present()) {
            var report = kv.onReport(new MergedReport(step, merged, reports));
            merged.clear();
            for (var completion : report.completions()) {
                if (!desk.complete(completion)) {
                    metrics.count(Counter.COMPLETIONS_UNMATCHED);
                }
            }
        }
        merged.clear();
    }

    private void takeInEc(List<RankResult> results) {
        if (!ec.present()) {
            return;
        }
        reports.clear();
        for (int rank = 0; rank < results.size(); rank++) {
            reports.add(ofRank(results.get(rank).ecReport(), rank, parts.ecInstance()));
        }
        for (var report : reports) {
            ecCompletions.add(report, ecMerged);
            metrics.addEc(report.stats());
            report.events().forEach(observer::forward);
        }
        var report = ec.onReport(new MergedReport(step, ecMerged, reports));
        ecMerged.clear();
        report.completions().forEach(encoders::complete);
    }

    /// The rank is the one that answered, whatever the report says.
    private StepReport ofRank(StepReport report, int rank, String by) {
        if (report.rank() == rank) {
            return report;
        }
        observer.defect("", by, "rank " + rank + " reported as rank " + report.rank());
        return new StepReport(
                rank,
                report.step(),
                report.completions(),
                report.payload(),
                report.stats(),
                report.events());
    }

    private void takeInTokens(List<RankResult> results, StepSchedule schedule) {
        for (int i = 0; i < schedule.size(); i++) {
            var item = schedule.get(i);
            var request = item.state();
            if (request.load != null && request.status == Status.RUNNING) {
                request.load.late = true;
                scheduler.park(request);
                continue;
            }
            if (item.discarded || request.status != Status.RUNNING || skipped(results, i)) {
                continue;
            }
            var failure = failure(results, i);
            if (failure.isPresent()) {
                fail(request, failure.get());
                continue;
            }
            advance(request, item, results.getFirst().token(i));
        }
    }

    private static boolean skipped(List<RankResult> results, int item) {
        for (var result : results) {
            if (result.skipped(item)) {
                return true;
            }
        }
        return false;
    }

    private static Optional<Failure> failure(List<RankResult> results, int item) {
        for (var result : results) {
            var failure = result.failure(item);
            if (failure.isPresent()) {
                return failure;
            }
        }
        return Optional.empty();
    }

    private void advance(RequestState request, Scheduled item, int token) {
        boolean sampled = item.sampled();
        int computed = item.start() + item.count();
        metrics.add(Counter.COMPUTED_TOKENS, item.count());
        request.promptComputed +=
                Math.max(0, Math.min(computed, request.promptTokenCount()) - item.start());
        request.computed = computed;
        request.runnerKnows = computed;
        scheduler.publish(request);
        encoders.computed(request, computed);
        if (!sampled) {
            return;
        }
        var stop = stops.get(request.id);
        if (stop == null) {
            throw new IllegalStateException("request " + request.id + " is running but not live");
        }
        if (stop.isEnd(token)) {
            end(request, FinishReason.STOP, null);
            return;
        }
        request.append(token);
        request.hash(hasher);
        metrics.count(Counter.GENERATED_TOKENS);
        request.generation.emit(token);
        var reason = stop.after(request, token);
        if (reason.isPresent()) {
            end(request, reason.get(), null);
        }
    }

    private void loaded(RequestState request, TransferResult result) {
        loads.ended(request, result);
    }

    private void failBroken() {
        for (var broken : encoders.takeBroken()) {
            fail(broken.request(), broken.failure());
        }
    }

    private void fail(RequestState request, Failure failure) {
        if (!request.ended()) {
            end(request, FinishReason.ERROR, failure);
        }
    }

    /// The one place where requests end, for every cause.
    private void end(RequestState request, FinishReason reason, @Nullable Failure failure) {
        scheduler.remove(request);
        scheduler.schedule().discard(request);
        boolean loading = request.load != null;
        var decision = kv.finish(request, request.blocks, reason);
        var ecParams = encoders.finish(request, reason);
        request.status = Status.ENDED;
        if (loading) {
            request.load = null;
            keepAfterLoad(request, decision);
        } else {
            switch (decision) {
                case FinishDecision.Release _ -> request.blocks.release(pool);
                case FinishDecision.Hold(var id, var deadline, _) ->
                        desk.hold(id, deadline.remaining(), request.blocks);
            }
        }
        live.remove(request.id);
        stops.remove(request.id);
        scheduler.forget(request.id);
        scheduler.schedule().finished.add(request.id);
        inside.decrementAndGet();
        request.generation.end(outcome(request, reason, failure, decision.params(), ecParams));
    }

    /// A request that ends while it loads: its blocks wait for the load, and for the hold if there
    /// is one.
    private void keepAfterLoad(RequestState request, FinishDecision decision) {
        if (decision instanceof FinishDecision.Hold(var id, var deadline, _)) {
            desk.hold(id, deadline.remaining(), request.blocks.retained(pool));
        }
        desk.abandon(Scheduler.loadId(request), request.blocks);
    }

    private Outcome outcome(
            RequestState request,
            FinishReason reason,
            @Nullable Failure failure,
            TransferParams kvParams,
            TransferParams ecParams) {
        var usage =
                new Usage(
                        request.promptTokenCount(),
                        request.generatedCount(),
                        request.localTokens,
                        request.external,
                        request.promptComputed,
                        request.preemptions);
        if (failure != null) {
            metrics.count(Counter.REQUESTS_FAILED);
            return new Outcome.Failed(failure, usage);
        }
        metrics.count(
                reason == FinishReason.ABORT
                        ? Counter.REQUESTS_ABORTED
                        : Counter.REQUESTS_FINISHED);
        return new Outcome.Finished(reason, request.generation.tokens(), kvParams, ecParams, usage);
    }

    /// The workers are gone: every request fails, and the engine takes no more. What connectors had
    /// open ends with the workers, since no rank is left to answer for it.
    private void die(Failure failure) {
        health = failure.toString();
        observer.incident("", "engine-failed", "engine", health);
        kv.disable();
        ec.disable();
        for (var request : scheduler.live()) {
            fail(request, failure);
        }
        parts.workers().close();
        desk.releaseAll();
        encoders.releaseAll();
        gauge();
    }

    private void gauge() {
        metrics.set(Gauge.WAITING, scheduler.waitingCount());
        metrics.set(Gauge.LOADING, scheduler.loadingCount());
        metrics.set(Gauge.RUNNING, scheduler.runningCount());
        metrics.set(Gauge.PREEMPTED, scheduler.preemptedCount());
        metrics.set(Gauge.HELD, desk.held() + encoders.held());
        metrics.set(Gauge.FREE_BLOCKS, pool.free());
        metrics.set(Gauge.CACHED_BLOCKS, pool.cached());
        metrics.set(Gauge.LEASED_BLOCKS, desk.leasedBlocks());
        metrics.set(Gauge.QUARANTINED_BLOCKS, desk.quarantinedBlocks());
        metrics.set(Gauge.ENCODER_FREE, encoders.freeRows());
    }

    /// Steps until `closing` says so. Parks while there is nothing to do; polls while transfers are
    /// open.
    public void loop() {
        owner = Thread.currentThread();
        long pause = 0;
        while (!closed) {
            if (step()) {
                pause = 0;
            } else if (inbox.isEmpty()
                    && !closed) { // stop() may have spent its wake-up on a wait within the step
                pause = idle(pause);
            }
        }
    }

    /// Waits for something to do.
    ///
    /// @param pause nanoseconds of the previous wait for open transfers
    private long idle(long pause) {
        boolean open =
                health.isEmpty()
                        && (desk.isOpen()
                                || encoders.isOpen()
                                || kv.hasPendingWork()
                                || ec.hasPendingWork());
        if (open) {
            long next = Math.clamp(2 * pause, 50_000, 1_000_000);
            LockSupport.parkNanos(this, next);
            return next;
        }
        if (scheduler.hasWaiting()) {
            LockSupport.parkNanos(
                    this, Math.clamp(scheduler.nextRetry(System.nanoTime()), 50_000, 5_000_000));
        } else {
            LockSupport.park(this);
        }
        return 0;
    }

    /// Empties the prefix cache, the encoder cache and, where possible, the connectors' stores.
    public CompletionStage<Boolean> resetCaches(Deadline limit) {
        pool.clear();
        encoders.clear();
        observer.cacheCleared();
        return kv.reset(limit).thenCombine(ec.reset(limit), Boolean::logicalAnd);
    }

    /// Runs [#resetCaches] on the scheduler thread.
    public CompletableFuture<Boolean> postReset(Deadline limit) {
        var done = new CompletableFuture<Boolean>();
        post(() ->
                resetCaches(limit)
                        .whenComplete((all, failure) -> done.complete(failure == null && all)));
        return done;
    }

    /// Whether requests or transfers are under way.
    public boolean isBusy() {
        return health.isEmpty()
                && (!live.isEmpty() || desk.isOpen() || encoders.isOpen() || !inbox.isEmpty());
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
        drain(Deadline.in(limits.close()), () -> live.isEmpty() && inbox.isEmpty());
        for (var request : scheduler.live()) {
            end(request, FinishReason.ABORT, null);
        }
        drain(
                Deadline.in(limits.close()).earlier(Deadline.in(Duration.ofSeconds(1))),
                () -> !isBusy());
        if (isBusy()) {
            desk.revokeAll();
            encoders.revokeAll();
            drain(Deadline.in(limits.revoke()), () -> !isBusy());
        }
        parts.workers().close();
        kv.close();
        ec.close();
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
