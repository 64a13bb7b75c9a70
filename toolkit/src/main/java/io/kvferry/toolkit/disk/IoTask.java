// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import java.util.concurrent.atomic.AtomicLong;

/// One reusable request to an [IoPool], and its states.
///
/// ```
/// FREE -> QUEUED -> MEMORY <-> IO -> FREE     the I/O thread serves it
///            \                   \
///             -> ABANDONED         -> HANGING -> FREE   its deadline passed first: the caller was told TIMEOUT
/// ```
///
/// In MEMORY the thread copies to or from the caller's segments, or has the kernel copy from the
/// page cache. That takes microseconds, so the deadline waits for it. In IO the caller's segments
/// are never written, so an abandoned load never touches them again, however long its system call
/// hangs. A system call of an abandoned save may still read them: its output is a temporary file
/// that is never published, and reading unmapped memory only fails the call. The upper bits of the
/// state hold a use count, so that a deadline check of an earlier use cannot end a later one.
///
/// Threading: prepared by the thread that claimed it, served by one I/O thread, expired by the
/// deadline thread.
public abstract class IoTask {
    private static final int FREE = 0;
    private static final int QUEUED = 1;
    private static final int MEMORY = 2;
    private static final int IO = 3;
    private static final int ABANDONED = 4;
    private static final int HANGING = 5;
    private static final long PHASE_MASK = 7;
    private static final int PHASE_BITS = 3;

    private final AtomicLong state = new AtomicLong(FREE);
    private volatile long deadlineNanos;

    /// The last step of preparing a claimed task, which [IoPool#submit] then queues.
    protected final void prepared(long newDeadlineNanos) {
        deadlineNanos = newDeadlineNanos;
        state.set((((state.get() >>> PHASE_BITS) + 1) << PHASE_BITS) | QUEUED);
    }

    /// Creates the callback that reports the timeout to the caller. Called before it is certain
    /// that the task times out, while the task still holds what the caller prepared.
    ///
    /// @param inIo whether the I/O thread hangs in the file system; false when the task is queued
    protected abstract Runnable expiry(boolean inIo);

    /// Forgets the caller's objects.
    protected abstract void clear();

    /// I/O thread: takes the request up; false when its deadline passed in the queue.
    public final boolean start() {
        return move(QUEUED, MEMORY);
    }

    /// I/O thread: enters the I/O phase; from here on the deadline thread may abandon the request.
    public final void enterIo() {
        if (!move(MEMORY, IO)) {
            throw new IllegalStateException("request is not in its memory phase: " + state.get());
        }
    }

    /// I/O thread: leaves the I/O phase; false when the request was abandoned, and the caller's
    /// memory must not be touched.
    public final boolean leaveIo() {
        return move(IO, MEMORY);
    }

    /// Whether the deadline took the request; a long protocol asks between its steps.
    public final boolean abandoned() {
        return (state.get() & PHASE_MASK) >= ABANDONED;
    }

    /// I/O thread: claims the right to call back; false when the deadline thread has already done
    /// so.
    public final boolean finish() {
        return move(MEMORY, FREE) || move(IO, FREE);
    }

    /// I/O thread: the deadline of the request, as [System#nanoTime].
    public final long deadlineNanos() {
        return deadlineNanos;
    }

    /// Whether its thread hangs in the file system: the deadline has passed, whether it could take
    /// the request or waits for it.
    public final boolean stalled(long now) {
        long phase = state.get() & PHASE_MASK;
        return phase == HANGING || phase == MEMORY && deadlineNanos - now < 0;
    }

    /// Whether the caller was not answered yet: the request may use the caller's segments, now or
    /// later.
    public final boolean isLive() {
        long phase = state.get() & PHASE_MASK;
        return phase == QUEUED || phase == MEMORY || phase == IO;
    }

    /// Deadline thread: ends the request if its time has passed; whether the deadline is to be
    /// looked at again: it has not passed, or waits for the I/O thread.
    final boolean expire(long now) {
        long seen = state.get();
        long phase = seen & PHASE_MASK;
        if (phase == FREE || phase >= ABANDONED) {
            return false;
        }
        if (phase == MEMORY || deadlineNanos - now > 0) {
            return true;
        }
        // Made first: after the exchange the I/O thread may come back and recycle the request. What
        // it refers to belongs to this use if the exchange succeeds, because the number of the use
        // is part of the state.
        Runnable expiry = expiry(phase == IO);
        if (state.compareAndSet(seen, (seen & ~PHASE_MASK) | (phase == IO ? HANGING : ABANDONED))) {
            expiry.run();
            return false;
        }
        return true;
    }

    /// Pool: the request is no longer in use.
    final void free() {
        clear();
        state.set(state.get() & ~PHASE_MASK);
    }

    private boolean move(int from, int to) {
        long seen = state.get();
        return (seen & PHASE_MASK) == from && state.compareAndSet(seen, (seen & ~PHASE_MASK) | to);
    }
}
