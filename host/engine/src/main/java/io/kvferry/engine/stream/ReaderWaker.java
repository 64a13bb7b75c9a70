// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.stream;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.invoke.VarHandle;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/// Wakes clients that wait for tokens on a thread of its own: a step with hundreds of readers costs
/// the scheduler thread one wake-up instead of hundreds, and none while that thread is busy.
///
/// Where many wait at once, the thread pauses after each round for as long as the round took. A
/// reader that is woken less often takes more tokens at a time; without the pause, steps that are
/// shorter than a round would have the readers take the processors that the steps need.
///
/// Threading: [#enter] and [#leave] on the readers' threads, the rest on the scheduler thread, or
/// after that has ended.
public final class ReaderWaker implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(ReaderWaker.class);

    /// Readers to be woken at once; the scheduler thread wakes what is beyond that.
    private static final int ROOM = 4096;

    /// Readers of a round after which the thread pauses, and how long at most: a step of a real
    /// model takes longer.
    private static final int CROWD = 32;

    private static final long LONGEST_PAUSE_NANOS = 200_000;
    private static final long CLOSE_MILLIS = 1_000;

    /// Positions [#woken] to [#flushed] belong to the thread that wakes, the others to the
    /// scheduler thread.
    private final @Nullable Generation[] ring = new Generation[ROOM];

    private long added;
    private volatile long flushed;
    private volatile long woken;

    /// Readers that wait for a token, or are about to.
    private final AtomicInteger readers = new AtomicInteger();

    private volatile boolean parked;
    private volatile boolean closed;
    private @Nullable Thread thread;

    /// A reader is about to wait.
    void enter() {
        readers.incrementAndGet();
    }

    void leave() {
        readers.decrementAndGet();
    }

    /// Whether anybody may wait for tokens that were published before this call. A reader that
    /// comes later finds them.
    public boolean hasReaders() {
        // Tokens are published, then this looks; a reader registers, then looks for tokens.
        VarHandle.fullFence();
        return readers.get() > 0;
    }

    /// Has the readers of `generation` woken, after [#flush] at the latest.
    void add(Generation generation) {
        if (closed || added - woken == ROOM) {
            generation.wake();
            return;
        }
        ring[(int) (added % ROOM)] = generation;
        added++;
    }

    /// The step is over: readers may go on.
    public void flush() {
        if (flushed == added) {
            return;
        }
        flushed = added;
        var started = thread;
        if (started == null) {
            start();
        } else if (parked) {
            LockSupport.unpark(started);
        }
    }

    private void start() {
        try {
            thread = Thread.ofPlatform().daemon().name("kvferry-reader-waker").start(this::run);
        } catch (OutOfMemoryError e) { // no thread to be had; the next step tries again
            LOG.warn("the scheduler thread wakes readers itself", e);
            wakeAll();
        }
    }

    private void run() {
        while (!closed) {
            long begin = System.nanoTime();
            if (wakeAll() >= CROWD) {
                LockSupport.parkNanos(
                        this, Math.min(LONGEST_PAUSE_NANOS, System.nanoTime() - begin));
                continue;
            }
            parked = true; // then looks again: flush() writes, then looks whether this is parked
            if (woken == flushed && !closed) {
                LockSupport.park(this);
            }
            parked = false;
        }
        wakeAll();
    }

    /// @return how many
    private long wakeAll() {
        long from = woken;
        long to = flushed;
        for (long at = from; at < to; at++) {
            int slot = (int) (at % ROOM);
            var generation = ring[slot];
            ring[slot] = null;
            woken = at + 1;
            if (generation != null) {
                generation.wake();
            }
        }
        return to - from;
    }

    /// Ends the thread; whoever is to be woken still is.
    @Override
    public void close() {
        flush();
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
