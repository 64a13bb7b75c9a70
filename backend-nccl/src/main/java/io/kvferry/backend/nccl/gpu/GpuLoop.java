// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/// The thread that owns a GPU. Runs posted tasks in order, and polls operations on the device in
/// between.
///
/// Threading: any thread may post; a posted task must not wait for a peer. A driver call may still
/// hang; [#stuckFor] reports this to the thread that monitors the loop.
///
/// Bounds: work for new connections and new transfers is refused when too much is queued
/// ([#isFull]). Everything else follows from accepted work, a few tasks for each transfer.
final class GpuLoop {
    private static final Logger LOG = LoggerFactory.getLogger(GpuLoop.class);
    private static final int SPINS = 200;
    private static final int MOST_WAITING = 1 << 14;
    private static final long IDLE = Long.MIN_VALUE;

    private final ConcurrentLinkedQueue<Runnable> posted = new ConcurrentLinkedQueue<>();
    private final Thread thread;
    private final AtomicInteger waiting = new AtomicInteger();
    private volatile boolean stopping;

    /// By [System#nanoTime], when the piece of work began that runs.
    private volatile long begun = IDLE;

    /// How soon it is worth looking again.
    enum Pace {
        /// When something is posted.
        NONE(Long.MAX_VALUE),
        /// A limit may have passed.
        SLOW(TimeUnit.MILLISECONDS.toNanos(50)),
        /// A communicator is being made.
        STEADY(TimeUnit.MILLISECONDS.toNanos(1)),
        /// An operation runs.
        FAST(TimeUnit.MICROSECONDS.toNanos(20));

        private final long nanos;

        Pace(long nanos) {
            this.nanos = nanos;
        }

        Pace faster(Pace other) {
            return ordinal() >= other.ordinal() ? this : other;
        }
    }

    /// What the thread does beside what is posted.
    interface Duties {
        /// Called once, first.
        void begin();

        /// Called whenever something may have changed.
        Pace look();

        /// Whether something of the device is in use: the thread does not end before. Whoever makes
        /// this untrue posts something.
        boolean needed();

        /// Called once, last.
        void end();
    }

    GpuLoop(String name, Duties duties) {
        LoopReport.load();
        thread = Thread.ofPlatform().name(name).daemon(true).unstarted(() -> run(duties));
    }

    void start() {
        thread.start();
    }

    void post(Runnable work) {
        waiting.incrementAndGet();
        boolean queued = false;
        try {
            queued = posted.add(work);
        } finally {
            if (!queued) { // no memory
                waiting.decrementAndGet();
            }
        }
        LockSupport.unpark(thread);
    }

    /// Whether so much waits that nothing new should begin.
    boolean isFull() {
        return waiting.get() >= MOST_WAITING;
    }

    /// How long the piece of work has run that runs now.
    Duration stuckFor() {
        long since = begun;
        return since == IDLE ? Duration.ZERO : Duration.ofNanos(System.nanoTime() - since);
    }

    private void beginWork() {
        long now = System.nanoTime();
        begun = now == IDLE ? now + 1 : now;
    }

    private void run(Duties duties) {
        beginWork();
        guarded(duties::begin);
        int idle = 0;
        while (!stopping || duties.needed()) {
            boolean worked = false;
            for (Runnable work; (work = posted.poll()) != null; ) {
                waiting.decrementAndGet();
                beginWork();
                guarded(work);
                worked = true;
            }
            var pace = Pace.SLOW;
            beginWork();
            try {
                pace = duties.look();
            } catch (RuntimeException | Error e) { // ends no other link
                LoopReport.ERROR.log(LOG, "looking after the GPU failed", e);
            }
            begun = IDLE;
            idle = worked ? 0 : idle + 1;
            if (!posted.isEmpty()) {
                continue;
            }
            if (pace == Pace.FAST && idle < SPINS) {
                Thread.onSpinWait();
            } else if (pace == Pace.NONE) {
                LockSupport.park(this);
            } else {
                LockSupport.parkNanos(this, pace.nanos);
            }
        }
        for (Runnable work; (work = posted.poll()) != null; ) {
            guarded(work);
        }
        guarded(duties::end);
    }

    private static void guarded(Runnable work) {
        try {
            work.run();
        } catch (RuntimeException | Error e) { // a defect in one piece of work ends no other
            LoopReport.ERROR.log(LOG, "a piece of work failed", e);
        }
    }

    /// Ends the thread after the pieces of work that were posted.
    ///
    /// @return whether it ended within the limit
    boolean stop(Duration limit) {
        stopping = true;
        LockSupport.unpark(thread);
        try {
            return thread.join(limit);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }
}
