// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;

/// The time limits of a data plane.
///
/// Threading: any thread sets a limit; one thread runs what is due, which must not wait.
public final class PlaneClock implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(PlaneClock.class);

    private final ScheduledThreadPoolExecutor executor;

    public PlaneClock(String name) {
        this(Thread.ofPlatform().name(name).daemon(true).factory());
    }

    /// @param threads make its one thread, when the first limit is set
    PlaneClock(ThreadFactory threads) {
        executor = new ScheduledThreadPoolExecutor(1, threads);
        executor.setRemoveOnCancelPolicy(true);
        executor.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
    }

    /// Runs it after that time, unless it is cancelled or the clock is closed before.
    public Future<?> after(Duration time, Runnable work) {
        try {
            return executor.schedule(
                    () -> guarded(work), Math.max(1, time.toNanos()), TimeUnit.NANOSECONDS);
        } catch (RejectedExecutionException e) {
            LOG.debug("the plane is closed: {}", e.toString());
            return CompletableFuture.completedFuture(null);
        }
    }

    /// Runs it again and again, with that time between, until the clock is closed.
    public void every(Duration time, Runnable work) {
        long nanos = Math.max(1, time.toNanos());
        var _ =
                executor.scheduleWithFixedDelay(
                        LastingLoop.repeated(() -> guarded(work)),
                        nanos,
                        nanos,
                        TimeUnit.NANOSECONDS);
    }

    private static void guarded(Runnable work) {
        try {
            work.run();
        } catch (RuntimeException | Error e) { // would be lost otherwise
            LoopReport.ERROR.log(LOG, "what was due failed", e);
        }
    }

    @Override
    public void close() {
        executor.shutdownNow();
    }
}
