// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.recovery.OpeningParts;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingDeque;
import java.util.concurrent.LinkedBlockingDeque;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// The threads for calls of one kind. A caller takes one, fills its memory, has it make the call,
/// and gives it back; with all of them in calls that are overdue, there is none at once.
///
/// Threading: any thread.
final class CallThreads {
    /// How often a waiting caller looks whether all calls have become overdue.
    private static final long LOOK_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

    private final int size;

    /// Used last is taken first: what is not needed keeps no memory.
    private final BlockingDeque<CallThread> idle;

    private final AtomicInteger overdue = new AtomicInteger();
    private final List<CallThread> drained = new ArrayList<>(); // only the thread that drains
    private volatile boolean closed;
    private volatile boolean used;
    private volatile long lastUse;

    /// @throws OutOfMemoryError when a thread cannot be had
    CallThreads(int size, ThreadFactory factory) {
        this.size = size;
        this.idle = new LinkedBlockingDeque<>(size);
        try (var parts = new OpeningParts()) {
            for (int i = 0; i < size; i++) {
                idle.add(parts.add(new CallThread(this, factory), CallThread::close));
            }
            parts.keep();
        }
    }

    /// Null when none comes free in time, after [#drain] began, or when the thread is interrupted.
    @Nullable CallThread take(Deadline limit) {
        lastUse = System.nanoTime();
        used = true;
        CallThread thread = closed ? null : idle.poll();
        while (thread == null && !closed && mayComeFree(limit)) {
            thread = poll(limit);
        }
        return thread;
    }

    private boolean mayComeFree(Deadline limit) {
        return overdue.get() < size && !limit.passed() && !Thread.currentThread().isInterrupted();
    }

    private @Nullable CallThread poll(Deadline limit) {
        try {
            return idle.poll(Math.min(LOOK_NANOS, limit.remainingNanos()), TimeUnit.NANOSECONDS);
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            return null;
        }
    }

    /// Whether a caller has asked for a thread within the last so much time.
    boolean usedWithin(Duration time) {
        return used && System.nanoTime() - lastUse < time.toNanos();
    }

    void give(CallThread thread) {
        thread.memory().reset();
        idle.addFirst(thread);
    }

    /// A caller does not wait for its call any more.
    void lose() {
        overdue.incrementAndGet();
    }

    /// It had come back after all.
    void found() {
        overdue.decrementAndGet();
    }

    /// An overdue call has returned.
    void recover(CallThread thread) {
        overdue.decrementAndGet();
        give(thread);
    }

    /// Calls whose caller has timed out.
    int overdue() {
        return overdue.get();
    }

    /// Takes all threads, for good, when their calls have ended.
    ///
    /// @return false when one did not return in time: then the library must stay as it is
    boolean drain(Deadline limit) {
        closed = true;
        while (drained.size() < size) {
            CallThread thread = idle.poll();
            if (thread == null && mayComeFree(limit)) {
                thread = poll(limit);
            } else if (thread == null) {
                return false;
            }
            if (thread != null) {
                drained.add(thread);
            }
        }
        return true;
    }

    /// Ends the threads that were drained, after the library has ended what used their memory.
    void free() {
        drained.forEach(CallThread::close);
        drained.clear();
    }
}
