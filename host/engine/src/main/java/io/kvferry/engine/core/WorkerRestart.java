// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.core;

import io.kvferry.engine.sched.Limits;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.engine.worker.WorkerGroup;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.kv.SchedulerConnector;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Optional;

/// Starts worker processes again after one of them was lost: closes the old group, opens the
/// scheduler halves of another incarnation, then the new group. What takes long runs in a thread of
/// its own, since requests come and are aborted meanwhile. An attempt that fails is a loss more,
/// and the next one comes later.
///
/// Threading: scheduler thread, but for [#status].
final class WorkerRestart {
    private static final Logger LOG = LoggerFactory.getLogger(WorkerRestart.class);

    /// Between attempts that follow each other: nothing, this, twice this, ...
    private static final Duration FIRST_PAUSE = Duration.ofSeconds(1);

    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(30);

    /// How long [#close] waits for an interrupted attempt. A worker process that is starting is
    /// killed immediately; one that is closing has ten seconds.
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(15);

    private final Reopener reopener;
    private final Limits limits;
    private final Telemetry telemetry;
    private final Runnable wake;

    /// When workers were lost, within the window.
    private final Deque<Long> losses = new ArrayDeque<>();

    private Phase phase = Phase.NONE;
    private @Nullable Task task;
    private Optional<SchedulerConnector> kv = Optional.empty();
    private Optional<EcSchedulerConnector> ec = Optional.empty();
    private long notBefore;
    private Duration pause = Duration.ZERO;
    private volatile String status = "";

    private enum Phase {
        NONE,
        /// The old group, or what an attempt has opened, is being closed.
        CLOSING,
        OPENING
    }

    /// The parts of the next incarnation.
    record Reopened(
            Optional<SchedulerConnector> kv,
            Optional<EcSchedulerConnector> ec,
            WorkerGroup workers) {}

    /// @param wake called on any thread when the restart can continue
    WorkerRestart(Reopener reopener, Limits limits, Telemetry telemetry, Runnable wake) {
        this.reopener = reopener;
        this.limits = limits;
        this.telemetry = telemetry;
        this.wake = wake;
    }

    /// Counts a loss.
    ///
    /// @return whether the workers are to be started again
    private boolean mayRestart() {
        long now = System.nanoTime();
        telemetry.metrics().count(Counter.WORKERS_LOST);
        losses.addLast(now);
        while (now - losses.getFirst() > limits.workerRestartWindow().toNanos()) {
            losses.removeFirst();
        }
        return losses.size() <= limits.workerRestarts();
    }

    /// Begins to replace a group that has lost a worker.
    ///
    /// @return false when that has happened too often, or cannot be done: the engine has to end
    boolean begin(WorkerGroup lost, KvFerryException cause) {
        if (!isLoss(cause.code()) || !mayRestart()) {
            return false;
        }
        tell(cause);
        notBefore = System.nanoTime();
        pause = FIRST_PAUSE;
        closeFirst(lost::close);
        return true;
    }

    /// An interrupt of the scheduler thread and a plan that does not fit into a frame say nothing
    /// about the workers.
    private static boolean isLoss(ErrorCode code) {
        return code != ErrorCode.CANCELLED && code != ErrorCode.NO_MEMORY;
    }

    private void tell(KvFerryException cause) {
        status = "worker processes are being started again after " + Failure.of(cause);
        LOG.warn("{}", status, cause);
        telemetry.incident("", "workers-lost", "engine", status);
    }

    private void closeFirst(Runnable closing) {
        phase = Phase.CLOSING;
        task =
                new Task(() -> {
                    closing.run();
                    return Optional.empty();
                });
    }

    /// Why the engine does without workers; empty while it has some. Any thread.
    String status() {
        return status;
    }

    boolean isUnderWay() {
        return phase != Phase.NONE;
    }

    /// Nanoseconds until [#advance] can continue by itself; [Long#MAX_VALUE] when it will call
    /// `wake`.
    long untilDue(long now) {
        var current = task;
        return phase == Phase.CLOSING && current != null && current.isDone()
                ? Math.max(0, notBefore - now)
                : Long.MAX_VALUE;
    }

    /// Goes on as far as is possible without waiting.
    ///
    /// @return the new parts, once they are open
    /// @throws KvFerryException when the engine has to end: no attempt is left
    Optional<Reopened> advance() {
        var current = task;
        if (current == null || !current.isDone()) {
            return Optional.empty();
        }
        if (phase == Phase.CLOSING) {
            if (System.nanoTime() - notBefore >= 0) {
                open();
            }
            return Optional.empty();
        }
        var failure = current.failure;
        if (failure != null) {
            again(failure);
            return Optional.empty();
        }
        var reopened = new Reopened(kv, ec, current.workers.orElseThrow());
        telemetry.metrics().count(Counter.WORKER_RESTARTS);
        telemetry.incident("", "workers-restarted", "engine", "worker processes run again");
        LOG.info("worker processes run again");
        kv = Optional.empty();
        ec = Optional.empty();
        task = null;
        phase = Phase.NONE;
        status = "";
        return Optional.of(reopened);
    }

    private void open() {
        try {
            var engine = reopener.nextIncarnation();
            kv = reopener.openKv(engine);
            ec = reopener.openEc(engine);
            phase = Phase.OPENING;
            task = new Task(() -> Optional.of(reopener.openWorkers(engine)));
        } catch (Throwable e) { // the border to plugins
            again(e);
        }
    }

    /// The attempt failed; the next one comes after a pause.
    private void again(Throwable failure) {
        var cause =
                failure instanceof KvFerryException coded
                        ? coded
                        : new KvFerryException(
                                ErrorCode.INTERNAL, "cannot open: " + failure, failure);
        closeHalves();
        if (!mayRestart()) {
            phase = Phase.NONE;
            task = null;
            throw cause;
        }
        tell(cause);
        notBefore = System.nanoTime() + pause.toNanos();
        var next = pause.multipliedBy(2);
        pause = next.compareTo(LONGEST_PAUSE) > 0 ? LONGEST_PAUSE : next;
        closeFirst(() -> {}); // openWorkers has left nothing open
    }

    private void closeHalves() {
        kv.ifPresent(WorkerRestart::closeQuietly);
        ec.ifPresent(WorkerRestart::closeQuietly);
        kv = Optional.empty();
        ec = Optional.empty();
    }

    private static void closeQuietly(AutoCloseable part) {
        try {
            part.close();
        } catch (Throwable e) { // the border to plugins; what follows must be closed as well
            LOG.warn("closing {} failed", part, e);
        }
    }

    /// Ends an attempt that is under way, and closes what it has opened.
    void close() {
        var current = task;
        task = null;
        phase = Phase.NONE;
        if (current != null) {
            current.cancel();
            if (!current.isDone()) {
                LOG.error(
                        "starting workers again does not end; its thread {} is left",
                        current.thread.getName());
            }
            current.workers.ifPresent(WorkerRestart::closeQuietly);
        }
        closeHalves();
    }

    private interface Work {
        Optional<WorkerGroup> run();
    }

    /// Work in a thread of its own.
    private final class Task {
        private final Thread thread;
        private volatile boolean done;
        @Nullable Throwable failure;
        Optional<WorkerGroup> workers = Optional.empty();

        Task(Work work) {
            thread =
                    Thread.ofPlatform()
                            .daemon()
                            .name("kvferry-worker-restart")
                            .unstarted(() -> run(work));
            thread.start();
        }

        private void run(Work work) {
            try {
                workers = work.run();
            } catch (Throwable e) { // goes to the scheduler thread
                failure = e;
            }
            done = true;
            wake.run();
        }

        boolean isDone() {
            return done;
        }

        void cancel() {
            thread.interrupt();
            try {
                thread.join(CLOSE_LIMIT);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
