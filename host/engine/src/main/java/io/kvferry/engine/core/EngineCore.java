// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.core;

import io.kvferry.engine.EngineStats;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.RequestListener;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.engine.sched.Admission;
import io.kvferry.engine.sched.Limits;
import io.kvferry.engine.sched.RequestState;
import io.kvferry.engine.sched.Scheduler;
import io.kvferry.engine.stream.Generation;
import io.kvferry.engine.stream.ReaderWaker;
import io.kvferry.engine.stream.TokenSequence;
import io.kvferry.engine.telemetry.Metrics;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.engine.worker.StepAlarm;
import io.kvferry.engine.worker.WorkerGroup;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.EventSink;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Supplier;

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
    private final Metrics metrics = new Metrics();
    private final Telemetry telemetry;
    private final EngineStep step;
    private final Scheduler scheduler;
    private final Admission admission;
    private final ReaderWaker waker = new ReaderWaker();
    private final ConcurrentLinkedQueue<Runnable> inbox = new ConcurrentLinkedQueue<>();

    /// A half of a connector asked for a step.
    private boolean woken;

    private volatile @Nullable Thread owner;
    private volatile boolean closed;

    /// From now on the inbox is not processed any more.
    private volatile boolean terminated;

    private volatile String health = "";
    private volatile Supplier<String> plugins = () -> "";

    public EngineCore(Parts parts) {
        this.parts = parts;
        this.limits = parts.limits();
        this.telemetry = new Telemetry(metrics, parts.events());
        this.step = new EngineStep(parts, telemetry);
        this.scheduler = step.scheduler();
        this.admission = scheduler.admission();
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
            scheduler
                    .requests()
                    .refuse(state, new Failure(ErrorCode.CLOSED, "the engine is closed"));
        }
        return state.handle();
    }

    /// Counts the request in; whatever is thrown after that counts it out again.
    private RequestState admit(GenerationRequest request) {
        admission.enter();
        try {
            var id = admission.newId(request.externalId());
            var generation =
                    new Generation(
                            id,
                            new TokenSequence(request.prompt()),
                            waker,
                            aborted -> post(() -> scheduler.requests().abort(aborted.id())),
                            released -> post(() -> scheduler.release(released.id())));
            return admission.newState(id, request, generation);
        } catch (Throwable e) {
            admission.leave();
            throw e;
        }
    }

    /// Runs something on the scheduler thread before its next step.
    public void post(Runnable command) {
        inbox.add(command);
        LockSupport.unpark(owner);
    }

    /// @param reason why plugins are unhealthy, empty if they are not. Included in
    ///   [EngineStats#health], although the engine continues
    public void watch(Supplier<String> reason) {
        plugins = reason;
    }

    /// A snapshot.
    public EngineStats stats() {
        return metrics.snapshot(
                scheduler.totalBlocks(),
                health.isEmpty() ? plugins.get() : health,
                step.degraded());
    }

    /// Name of the KV connector, empty without one.
    public String kvConnector() {
        return parts.kv().isPresent() ? parts.kvInstance() : "";
    }

    /// Name of the encoder-cache connector, empty without one.
    public String ecConnector() {
        return parts.ec().isPresent() ? parts.ecInstance() : "";
    }

    // ---- scheduler thread

    /// Sets the listener for cache events; before the first step.
    public void listen(Consumer<CacheEvent> listener) {
        telemetry.listen(listener);
    }

    /// Sets the listener for the progress of requests; before the first step.
    public void listen(RequestListener listener) {
        telemetry.listen(listener);
    }

    private void accept(RequestState request) {
        if (terminated) {
            scheduler
                    .requests()
                    .refuse(request, new Failure(ErrorCode.CLOSED, "the engine is closed"));
        } else if (!health.isEmpty()) {
            scheduler.requests().refuse(request, new Failure(ErrorCode.UNAVAILABLE, gone()));
        } else {
            scheduler.requests().accept(request);
        }
    }

    private String gone() {
        return "the engine cannot serve any more: " + health;
    }

    /// Runs one step, if there is anything to do. Any failure in it ends the engine, since a step
    /// that stopped half way leaves an inconsistent scheduler.
    ///
    /// @return whether to run the next step immediately
    public boolean step() {
        try {
            for (var command = inbox.poll(); command != null; command = inbox.poll()) {
                command.run();
            }
            if (!health.isEmpty()) {
                return false;
            }
            boolean asked = woken;
            woken = false;
            boolean due = stepOrRestart(asked);
            waker.stepEnded(scheduler.takePublished());
            return due;
        } catch (EngineStep.WorkersFailed e) {
            die(Failure.of(e.failure), e.failure);
        } catch (Throwable e) {
            var what = "the scheduler failed in step " + step.number() + ": " + e;
            die(new Failure(Failure.of(e).code(), what), e);
        }
        return false;
    }

    private boolean stepOrRestart(boolean asked) {
        try {
            return step.run(asked);
        } catch (EngineStep.WorkersFailed e) {
            if (closed || !e.mayRestart || !step.restartWorkers(e.failure)) {
                throw e;
            }
            return false;
        }
    }

    /// The workers are lost or the scheduler is broken: every request fails, the workers are
    /// closed, and the engine accepts no more requests. Open transfers of connectors end with the
    /// workers, since no rank is left to report them.
    private void die(Failure failure, Throwable cause) {
        if (!health.isEmpty()) {
            LOG.error("a further failure of an engine that has failed", cause);
            return;
        }
        health = failure.toString();
        LOG.error("the engine has failed and serves no more requests: {}", health, cause);
        attempt(() -> telemetry.incident("", "engine-failed", "engine", health));
        attempt(scheduler::disableConnectors);
        attempt(() -> scheduler.requests().failAll(failure));
        attempt(step::closeWorkers);
        attempt(scheduler::discardTransfers);
        attempt(scheduler::gauge);
    }

    /// Logs any failure, so that the following parts run in any case.
    private static void attempt(Runnable part) {
        try {
            part.run();
        } catch (Throwable e) {
            LOG.error("ending a failed engine", e);
        }
    }

    /// Steps until [#stop]. Parks while there is nothing to do; while transfers are open, until the
    /// connector signals a report, or, where it does not signal, for a moment.
    public void loop() {
        owner = Thread.currentThread();
        parts.alarm().wakesThisThread();
        long pause = 0;
        while (!closed) {
            // One more step after news, since the scheduler half may react to it.
            boolean news = parts.alarm().take();
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

    /// Waits for work.
    ///
    /// @param pause nanoseconds of the previous wait for transfers whose end is not signalled
    private long idle(long pause) {
        if (!health.isEmpty()) {
            LockSupport.park(this);
            return 0;
        }
        long now = System.nanoTime();
        var restart = step.untilWorkers(now);
        if (restart.isPresent()) {
            LockSupport.parkNanos(this, Math.clamp(restart.getAsLong(), 50_000, 250_000_000));
            return 0;
        }
        if (step.mustPoll()) {
            long next = Math.clamp(2 * pause, 50_000, 1_000_000);
            LockSupport.parkNanos(this, next);
            return next;
        }
        long limit = step.untilDue(now);
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
        return scheduler.resetCaches(limit, external);
    }

    /// Steps until a condition holds or the limit expires. Polls connectors in every step: their
    /// signals wake a sleeping scheduler thread, and there is none here.
    public void stepUntil(BooleanSupplier done, Deadline limit) {
        while (!done.getAsBoolean() && !limit.passed()) {
            woken = true;
            if (!step()) {
                LockSupport.parkNanos(200_000);
            }
        }
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
        return health.isEmpty() && (scheduler.isBusy() || !inbox.isEmpty());
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
        attempt(step::closeWorkers);
        attempt(step::closeKv);
        attempt(step::closeEc);
    }

    private void letGo() {
        drain(Deadline.in(limits.close()), () -> scheduler.requests().isEmpty() && inbox.isEmpty());
        scheduler.requests().abortAll();
        drain(
                Deadline.in(limits.close()).earlier(Deadline.in(Duration.ofSeconds(1))),
                () -> !isBusy());
        if (isBusy()) {
            scheduler.revokeAll();
            drain(Deadline.in(limits.revoke()), () -> !isBusy());
        }
        scheduler.requests().abortAll(); // those that came meanwhile
    }

    private void drain(Deadline limit, BooleanSupplier done) {
        while (health.isEmpty() && !done.getAsBoolean() && !limit.passed()) {
            if (!step()) {
                LockSupport.parkNanos(this, 200_000);
            }
        }
    }

    /// The whole state, for a log; linear. On the scheduler thread, or while it rests.
    public String describe() {
        return step.describe();
    }

    /// Throws when the books do not balance; linear, for tests.
    public void checkInvariants() {
        scheduler.checkInvariants();
    }
}
