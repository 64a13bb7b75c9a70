// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.stream;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/// Wakes clients that wait for tokens, on its own thread. The scheduler thread only signals that a
/// step has published tokens, at a cost that does not depend on the number of readers; this thread
/// finds the readers to wake.
///
/// With many waiting readers the thread pauses after each round. A reader that is woken less often
/// takes more tokens at a time. Without the pause, readers would take processor time from steps
/// that are shorter than a round.
///
/// Threading: [#add] on the readers' threads, [#close] after the last step, the rest on the
/// scheduler thread.
public final class ReaderWaker implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(ReaderWaker.class);

    /// Readers of a round after which the thread pauses, and how long at most: a step of a real
    /// model takes longer.
    private static final int CROWD = 32;

    private static final long LONGEST_PAUSE_NANOS = 200_000;

    /// Failed rounds in a row before the thread ends, for example while memory is short, and the
    /// pause after each.
    private static final int MOST_FAILURES = 5;

    private static final long FAILURE_PAUSE_NANOS = 20_000_000;
    private static final long CLOSE_MILLIS = 1_000;

    /// Those who read the tokens of one request. Asked and woken on the waker's thread.
    interface Readers {
        /// Whether a waiting reader has a token to take, or no reader waits any more.
        boolean haveNews();

        /// Wakes those that wait. They add themselves again before they wait again.
        void wake();
    }

    /// Those that began to wait since the last round, then all that wait: each once, whatever the
    /// number of its readers.
    private final Queue<Readers> arrived = new ConcurrentLinkedQueue<>();

    private final List<Readers> waiting = new ArrayList<>();

    /// How many are in either.
    private final AtomicInteger listed = new AtomicInteger();

    /// Steps that published tokens while a reader waited.
    private final AtomicLong steps = new AtomicLong();

    private volatile boolean parked;
    private volatile boolean closed;
    private @Nullable Thread thread;

    /// Why the thread has ended; readers are no longer woken.
    private volatile @Nullable Throwable failure;

    /// Has readers woken when there is news for them. The caller looks for news after this, and
    /// then waits.
    void add(Readers readers) {
        arrived.add(readers);
        listed.incrementAndGet();
    }

    /// Of how many requests readers are to be woken.
    int listed() {
        return listed.get();
    }

    /// A step has published what it had. Readers that wait for it are woken; those that come later
    /// find it.
    ///
    /// @param published whether there was any token
    /// @throws KvFerryException INTERNAL when the thread has failed: readers would wait for tokens
    ///   that are there
    public void stepEnded(boolean published) {
        var cause = failure;
        if (cause != null) {
            throw new KvFerryException(
                    ErrorCode.INTERNAL, "the thread that wakes readers failed: " + cause, cause);
        }
        if (!published) {
            return;
        }
        // Tokens are published, then this looks; a reader is listed, then looks for tokens.
        VarHandle.fullFence();
        if (listed.get() == 0) {
            return;
        }
        steps.incrementAndGet();
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
        } catch (OutOfMemoryError e) { // no thread can be created; the next step tries again
            LOG.warn("the scheduler thread wakes readers itself", e);
            wakeSome();
        }
    }

    private void run() {
        int failures = 0;
        while (!closed) {
            try {
                round();
                failures = 0;
            } catch (Throwable e) { // those that were not woken are still listed
                failures++;
                if (failures == MOST_FAILURES) {
                    failure = e;
                    return;
                }
                LockSupport.parkNanos(this, FAILURE_PAUSE_NANOS);
            }
        }
    }

    private void round() {
        long seen = steps.get();
        long begin = System.nanoTime();
        if (wakeSome() >= CROWD) {
            long pause = Math.min(LONGEST_PAUSE_NANOS, System.nanoTime() - begin);
            LockSupport.parkNanos(this, pause);
            return;
        }
        parked = true; // then looks again: stepEnded() counts, then looks whether this is parked
        if (steps.get() == seen && !closed) {
            LockSupport.park(this);
        }
        parked = false;
    }

    /// Wakes readers that have tokens, and keeps the others.
    ///
    /// @return how many were woken
    private int wakeSome() {
        for (var each = arrived.peek(); each != null; each = arrived.peek()) {
            waiting.add(each);
            arrived.poll();
        }
        int woken = 0;
        for (int i = waiting.size() - 1; i >= 0; i--) {
            var each = waiting.get(i);
            if (each.haveNews()) {
                each.wake(); // what throws stays in the list
                waiting.set(i, waiting.getLast());
                waiting.removeLast();
                listed.decrementAndGet();
                woken++;
            }
        }
        return woken;
    }

    /// Ends the thread. All requests have an outcome by now, and readers that wait are woken with
    /// it.
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
