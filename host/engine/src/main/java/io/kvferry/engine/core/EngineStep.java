// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.core;

import io.kvferry.engine.connector.GuardedEcScheduler;
import io.kvferry.engine.connector.GuardedKvScheduler;
import io.kvferry.engine.sched.Scheduler;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.engine.worker.StepPlan;
import io.kvferry.engine.worker.WorkerGroup;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;

import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;

/// One step: have it planned, run it on the workers, have the results taken in; and what replaces
/// workers and connectors that are lost.
///
/// Threading: scheduler thread only, but for [#degraded].
final class EngineStep {
    private final EngineCore.Parts parts;
    private final Telemetry telemetry;
    private final GuardedKvScheduler kv;
    private final GuardedEcScheduler ec;
    private final Scheduler scheduler;
    private final EngineRecovery recovery;
    private WorkerGroup workers;
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
        this.workers = parts.workers();
        this.telemetry = telemetry;
        this.kv =
                new GuardedKvScheduler(
                        parts.kv().orElse(null),
                        parts.kvCapabilities(),
                        parts.kvInstance(),
                        parts.cache().blockTokens(),
                        telemetry);
        this.ec =
                new GuardedEcScheduler(
                        parts.ec().orElse(null),
                        parts.ecCapabilities(),
                        parts.ecInstance(),
                        telemetry);
        this.scheduler =
                new Scheduler(
                        new Scheduler.Parts(
                                parts.limits(),
                                parts.model(),
                                parts.tokenizer(),
                                parts.cache(),
                                parts.namespace(),
                                parts.failurePolicy(),
                                kv,
                                ec,
                                telemetry));
        this.recovery =
                new EngineRecovery(
                        parts,
                        kv,
                        ec,
                        new EngineRecovery.Introductions(
                                scheduler::introduceKvAgain, scheduler::introduceEcAgain),
                        telemetry);
        introduce();
        scheduler.gauge();
    }

    /// Asks every worker half for its handshake, which it gives once.
    private void introduce() {
        scheduler.introduce(workers.handshakes());
    }

    Scheduler scheduler() {
        return scheduler;
    }

    long number() {
        return number;
    }

    /// Plans a step and runs it, if there is anything to do.
    ///
    /// @param asked whether a half of a connector has requested a step
    /// @return whether to run the next one immediately
    /// @throws WorkersFailed when the workers are lost; see [#restartWorkers]
    boolean run(boolean asked) {
        if (recovery.workers.isUnderWay() && !goOnWithNewWorkers()) {
            scheduler.gauge();
            return false;
        }
        long now = System.nanoTime();
        recovery.begin(now);
        var schedule = scheduler.plan(number + 1, now);
        if (schedule.isEmpty() && !asked && !recovery.hasNews() && !scheduler.hasNews()) {
            scheduler.gauge();
            return false;
        }
        number++;
        telemetry.metrics().count(Counter.STEPS);
        var plan = scheduler.stepPlan(recovery.kv.change(), recovery.ec.change());
        scheduler.gauge(); // a step may take seconds: figures must show that its requests run
        takeIn(plan, execute(plan));
        scheduler.gauge();
        return scheduler.isDue() || recovery.isDue();
    }

    private List<RankResult> execute(StepPlan plan) {
        try {
            return workers.execute(plan);
        } catch (KvFerryException e) {
            throw new WorkersFailed(e, true);
        }
    }

    private void takeIn(StepPlan plan, List<RankResult> results) {
        if (recovery.kvExecuted(results)) {
            scheduler.kvWorkersClosed(recovery.kv.reason(), results.size());
        }
        if (recovery.ecExecuted(results)) {
            scheduler.ecWorkersClosed(recovery.ec.reason(), results.size());
        }
        for (int rank = 0; rank < results.size(); rank++) {
            recovery.takeIn(rank, results.get(rank), kv.instance(), ec.instance());
        }
        scheduler.takeIn(plan, results);
    }

    /// Starts to replace lost workers. All of their blocks, items and transfers are lost. The
    /// connectors' scheduler halves end too, since their state refers to the workers' halves.
    ///
    /// @return false when this has happened too often or is not possible: the engine must end
    boolean restartWorkers(KvFerryException cause) {
        if (!recovery.workers.begin(workers, cause)) {
            return false;
        }
        scheduler.forgetWorkers(Failure.of(cause), number);
        kv.replace(null);
        ec.replace(null);
        recovery.reset();
        return true;
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
        scheduler.announceRequests();
        return true;
    }

    /// Nanoseconds until the restart of workers can continue, [Long#MAX_VALUE] when it will ring
    /// the alarm; empty without a restart.
    OptionalLong untilWorkers(long now) {
        return recovery.workers.isUnderWay()
                ? OptionalLong.of(recovery.workers.untilDue(now))
                : OptionalLong.empty();
    }

    /// Why the engine does without workers or a connector; empty while it has all. Any thread.
    String degraded() {
        return recovery.status();
    }

    /// Whether the next step must follow soon, although nothing will signal it.
    boolean mustPoll() {
        return scheduler.mustPoll(
                parts.kvCapabilities().has(Feature.SIGNALS),
                parts.ecCapabilities().has(Feature.SIGNALS));
    }

    /// Nanoseconds until the next work of a step that is not signalled; [Long#MAX_VALUE] when there
    /// is none.
    long untilDue(long now) {
        return Math.min(scheduler.untilDue(now), recovery.untilDue(now));
    }

    /// The whole state, for a log; linear.
    String describe() {
        return "step " + number + "; " + recovery.status() + scheduler.describe();
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
