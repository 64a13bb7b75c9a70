// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.backend.mooncake.te.internal.memory.Slice;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// Runs the slices of one transfer, whatever copies them: in the calling thread, and in helpers for
/// a large one. All take slices in turn until none is left or the transfer has ended, so that it
/// ends even if no helper ever comes.
///
/// Threading: [#run] once; the rest from any thread.
final class SliceRunner {
    private final Slice[] slices;
    private final long spinNanos;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition helperLeft = lock.newCondition();
    private int nextSlice;

    /// Changed under the lock.
    private volatile int helpers;

    private boolean late;
    private boolean stopped;
    private volatile @Nullable KvFerryException failure;

    /// Whether a thread left what it had claimed, possibly without memory to say why.
    private volatile boolean broken;

    private volatile @Nullable ErrorCode givenUp;

    /// @param spinMicros see [EngineConfig#spinMicros()]. The calling thread spins this long for
    ///   the end of its helpers before it sleeps: they start later by the time it takes to wake a
    ///   thread, and its own slices no longer need its processor
    SliceRunner(Slice[] slices, int spinMicros) {
        this.slices = slices;
        this.spinNanos = TimeUnit.MICROSECONDS.toNanos(spinMicros);
    }

    /// @param threads this one included
    /// @param pool where helpers come from; may refuse
    /// @param body of each thread: it claims slices, and reports failures by [#fail]
    /// @param stop ends what helpers wait in, when this thread is interrupted
    /// @throws KvFerryException what ended it early
    void run(int threads, Executor pool, Runnable body, Runnable stop) {
        for (int i = 1; i < Math.min(threads, slices.length); i++) {
            try {
                pool.execute(() -> help(body));
            } catch (RejectedExecutionException
                    | OutOfMemoryError e) { // no native thread: the latter
                break; // helpers that have started are awaited
            }
        }
        try {
            guarded(body);
        } finally {
            if (slices.length > 1) { // else no helper was asked for
                awaitHelpers(stop);
            }
        }
        KvFerryException ended = failure;
        if (ended != null) {
            throw ended;
        }
        ErrorCode reason = givenUp;
        if (reason != null) {
            // Shares may have been skipped.
            throw new KvFerryException(reason, "the transfer was given up");
        }
        if (broken) {
            throw new KvFerryException(
                    ErrorCode.INTERNAL, "a part of a transfer failed without a description");
        }
    }

    /// A helper that comes when the transfer is over finds nothing to do and touches nothing.
    private void help(Runnable body) {
        lock.lock();
        try {
            if (late) {
                return;
            }
            helpers++;
        } finally {
            lock.unlock();
        }
        try {
            guarded(body);
        } finally {
            lock.lock();
            try {
                helpers--;
                helperLeft.signal();
            } finally {
                lock.unlock();
            }
        }
    }

    private void guarded(Runnable body) {
        try {
            body.run();
        } catch (KvFerryException e) {
            fail(e);
        } catch (RuntimeException | Error e) {
            // Errors too: a slice that did not run must not count as done.
            broken = true;
            fail(new KvFerryException(ErrorCode.INTERNAL, "a part of a transfer failed: " + e, e));
        }
    }

    /// Every helper has a deadline, so this ends soon after it.
    private void awaitHelpers(Runnable stop) {
        letNoMoreCome();
        spin();
        boolean interrupted = false;
        while (!haveLeft()) {
            interrupted = true;
            stop.run();
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void letNoMoreCome() {
        lock.lock();
        try {
            late = true;
        } finally {
            lock.unlock();
        }
    }

    private void spin() {
        if (spinNanos > 0 && helpers > 0) {
            long began = System.nanoTime();
            while (helpers > 0 && System.nanoTime() - began < spinNanos) {
                Thread.yield(); // they may need this very processor
            }
        }
    }

    /// @return false when interrupted first
    private boolean haveLeft() {
        lock.lock();
        try {
            while (helpers > 0) {
                helperLeft.await();
            }
            return true;
        } catch (InterruptedException _) {
            return false;
        } finally {
            lock.unlock();
        }
    }

    /// The next slice, by its index; -1 when there is none, or the transfer has ended.
    int claim() {
        lock.lock();
        try {
            return !stopped && !ended() && nextSlice < slices.length ? nextSlice++ : -1;
        } finally {
            lock.unlock();
        }
    }

    Slice slice(int index) {
        return slices[index];
    }

    int slices() {
        return slices.length;
    }

    /// Hands out no more slices; those in progress continue.
    void stop() {
        lock.lock();
        try {
            stopped = true;
        } finally {
            lock.unlock();
        }
    }

    /// The first failure counts.
    void fail(KvFerryException reason) {
        lock.lock();
        try {
            if (failure == null) {
                failure = reason;
            }
        } finally {
            lock.unlock();
        }
    }

    @Nullable KvFerryException failure() {
        return failure;
    }

    void giveUp(ErrorCode reason) {
        givenUp = reason;
    }

    @Nullable ErrorCode givenUp() {
        return givenUp;
    }

    boolean ended() {
        return failure != null || givenUp != null || broken;
    }
}
