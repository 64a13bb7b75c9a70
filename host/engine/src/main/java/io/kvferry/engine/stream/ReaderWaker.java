// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.stream;

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
import java.util.function.Consumer;

/// Wakes clients that wait for tokens, on a thread of its own. The scheduler thread says that a
/// step has published tokens, which costs the same with one reader and with hundreds; the thread
/// here looks for whom there is one.
///
/// Where many wait at once, the thread pauses after each round. A reader that is woken less often
/// takes more tokens at a time; without the pause, steps that are shorter than a round would have
/// the readers take the processors that the steps need.
///
/// Threading: [#add] on the readers' threads, [#close] after the last step, the rest on the
/// scheduler thread.
public final class ReaderWaker implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(ReaderWaker.class);

    /// Readers of a round after which the thread pauses, and how long at most: a step of a real
    /// model takes longer.
    private static final int CROWD = 32;

    private static final long LONGEST_PAUSE_NANOS = 200_000;
    private static final long CLOSE_MILLIS = 1_000;

    /// Those who read the tokens of one request. Asked and woken on the waker's thread.
    interface Readers {
        /// Whether one that waits has a token to take, or none waits any more.
        boolean haveNews();

        /// Wakes those that wait. They add themselves again before they wait again.
        void wake();
    }

    private final Consumer<Throwable> broken;

    /// Those that began to wait since the last round, then all that wait: each once, whatever the
    /// number of its readers.
    private final Queue<Readers> arrived = new ConcurrentLinkedQueue<>();

    private final List<Readers> waiting = new ArrayList<>();

    /// How many are in either.
    private final AtomicInteger listed = new AtomicInteger();

    /// Steps after which somebody waited.
    private final AtomicLong steps = new AtomicLong();

    private volatile boolean parked;
    private volatile boolean closed;
    private @Nullable Thread thread;

    /// @param broken told when the thread ends because of what was thrown in it: nobody is woken
    ///   any more
    public ReaderWaker(Consumer<Throwable> broken) {
        this.broken = broken;
    }

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
    public void stepEnded() {
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
        } catch (OutOfMemoryError e) { // no thread to be had; the next step tries again
            LOG.warn("the scheduler thread wakes readers itself", e);
            wakeSome();
        }
    }

    private void run() {
        try {
            while (!closed) {
                round();
            }
            wakeSome();
        } catch (Throwable e) { // readers would wait for ever
            broken.accept(e);
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

    /// Wakes those that have news, and keeps the others.
    ///
    /// @return how many
    private int wakeSome() {
        for (var each = arrived.poll(); each != null; each = arrived.poll()) {
            waiting.add(each);
        }
        int kept = 0;
        for (var each : waiting) {
            if (each.haveNews()) {
                each.wake();
            } else {
                waiting.set(kept++, each);
            }
        }
        int woken = waiting.size() - kept;
        waiting.subList(kept, waiting.size()).clear();
        listed.addAndGet(-woken);
        return woken;
    }

    /// Ends the thread. Everybody has an outcome by now, and whoever waits for one is woken with
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
