// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.stream;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.concurrent.locks.LockSupport;

/// Wakes clients that wait for tokens on a thread of its own: a step with hundreds of readers costs
/// the scheduler thread one wake-up instead of hundreds.
///
/// Threading: [#add] and [#flush] on the scheduler thread, [#close] on any.
public final class ReaderWaker implements AutoCloseable {
    /// Readers to be woken at once; the scheduler thread wakes what is beyond that.
    private static final int ROOM = 4096;

    private static final long CLOSE_MILLIS = 1_000;

    private final AtomicReferenceArray<@Nullable Generation> ring =
            new AtomicReferenceArray<>(ROOM);
    private volatile long added;
    private volatile long woken;
    private volatile boolean closed;
    private @Nullable Thread thread;
    private boolean unflushed;

    /// Has the readers of `generation` woken, after [#flush] at the latest.
    void add(Generation generation) {
        long at = added;
        if (at - woken == ROOM) {
            generation.wake();
            return;
        }
        ring.set((int) (at % ROOM), generation);
        added = at + 1;
        unflushed = true;
    }

    /// The step is over: readers may go on.
    public void flush() {
        if (!unflushed) {
            return;
        }
        unflushed = false;
        var started = thread;
        if (closed) {
            wakeAll();
        } else if (started == null) {
            thread = Thread.ofPlatform().daemon().name("kvferry-reader-waker").start(this::run);
        } else {
            LockSupport.unpark(started);
        }
    }

    private void run() {
        while (!closed) {
            wakeAll();
            if (woken == added && !closed) {
                LockSupport.park(this);
            }
        }
        wakeAll();
    }

    private void wakeAll() {
        for (long at = woken; at < added; at++) {
            var generation = ring.getAndSet((int) (at % ROOM), null);
            woken = at + 1;
            if (generation != null) {
                generation.wake();
            }
        }
    }

    /// Ends the thread; whoever is to be woken still is.
    @Override
    public void close() {
        closed = true;
        var started = thread;
        if (started == null) {
            return;
        }
        LockSupport.unpark(started);
        try {
            started.join(CLOSE_MILLIS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
