// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.transfer;

import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.bounded.GrowSafeQueue;
import io.kvferry.toolkit.bounded.LoopReport;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.locks.ReentrantLock;

/// Transfers that wait for a thread, in one bounded queue per peer, so that a stalled peer does not
/// block the others.
public final class SubmitQueues {
    private static final Logger LOG = LoggerFactory.getLogger(SubmitQueues.class);

    private static final class Queue {
        final GrowSafeQueue<TransferTask> waiting = new GrowSafeQueue<>();
        int running;
    }

    private final Executor threads;
    private final int atOnce;
    private final int capacity;
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<String, Queue> queues = new HashMap<>();
    private boolean closed;

    /// @param atOnce transfers to one peer that run at the same time
    /// @param capacity further ones that may wait
    public SubmitQueues(Executor threads, int atOnce, int capacity) {
        this.threads = threads;
        this.atOnce = atOnce;
        this.capacity = capacity;
    }

    private enum Place {
        RUNS,
        WAITS,
        CLOSED,
        FULL
    }

    /// Who follows the transfer is called without the lock when it fails.
    public void submit(String peer, TransferTask task) {
        Place place;
        try {
            place = place(peer, task);
        } catch (OutOfMemoryError e) {
            task.fail(ErrorCode.NO_MEMORY, "no heap memory to queue a transfer");
            return;
        }
        if (place == Place.RUNS) { // a switch would load a class first
            start(peer, task);
        } else if (place == Place.CLOSED) {
            task.fail(ErrorCode.CLOSED, "the transfer engine is closed");
        } else if (place == Place.FULL) {
            task.fail(ErrorCode.BACKPRESSURE, capacity + " transfers already wait for " + peer);
        }
    }

    /// Counts the transfer as running, or queues it, if there is room.
    private Place place(String peer, TransferTask task) {
        lock.lock();
        try {
            if (closed) {
                return Place.CLOSED;
            }
            Queue queue = queues.computeIfAbsent(peer, _ -> new Queue());
            if (queue.running < atOnce) {
                queue.running++;
                return Place.RUNS;
            }
            if (queue.waiting.size() >= capacity) {
                return Place.FULL;
            }
            queue.waiting.add(task);
            return Place.WAITS;
        } finally {
            lock.unlock();
        }
    }

    private void start(String peer, TransferTask first) {
        for (TransferTask task = first; task != null; task = next(peer)) {
            TransferTask turn = task;
            try {
                threads.execute(() -> runAndGoOn(peer, turn));
                return;
            } catch (RejectedExecutionException | OutOfMemoryError e) { // the latter: no thread
                failForThread(task);
            }
        }
    }

    /// Whatever those who follow it throw: the next one's turn must come.
    private static void failForThread(TransferTask task) {
        try {
            task.fail(ErrorCode.BACKPRESSURE, "no thread left for a transfer");
        } catch (RuntimeException | Error e) {
            report("a failed transfer was not told", e);
        }
    }

    private void runAndGoOn(String peer, TransferTask first) {
        TransferTask task = first;
        while (task != null) {
            run(task);
            task = next(peer);
        }
    }

    private static void run(TransferTask task) {
        try {
            task.run();
        } catch (Throwable t) { // its outcome is there; the next one's turn must come
            report("a transfer left its thread with an error", t);
        }
    }

    private static void report(String what, Throwable failure) {
        try {
            LoopReport.WARN.log(LOG, what, failure);
        } catch (RuntimeException | Error _) { // its text, used for the first time, takes memory
            Thread.onSpinWait();
        }
    }

    private @Nullable TransferTask next(String peer) {
        lock.lock();
        try {
            Queue queue = queues.get(peer);
            TransferTask task = queue == null || closed ? null : queue.waiting.poll();
            if (task == null) {
                leave(peer);
            }
            return task;
        } finally {
            lock.unlock();
        }
    }

    private void leave(String peer) {
        lock.lock();
        try {
            Queue queue = queues.get(peer);
            if (queue != null && --queue.running == 0 && queue.waiting.isEmpty()) {
                queues.remove(peer);
            }
        } finally {
            lock.unlock();
        }
    }

    /// Ends what was given up or ran out of time while it waited for its turn; whoever is ahead may
    /// have more time. False once closed.
    public boolean endOverdue() {
        for (TransferTask over = takeOverdue(); over != null; over = takeOverdue()) {
            end(over);
        }
        lock.lock();
        try {
            return !closed;
        } finally {
            lock.unlock();
        }
    }

    /// One at a time: what has left its queue needs no memory to be ended.
    private @Nullable TransferTask takeOverdue() {
        lock.lock();
        try {
            for (Queue queue : queues.values()) {
                for (TransferTask task : queue.waiting) {
                    if (task.isOver()) {
                        queue.waiting.remove(task);
                        return task;
                    }
                }
            }
            return null;
        } finally {
            lock.unlock();
        }
    }

    /// Away from the clock's thread, where what depends on the outcome could hold up everybody's
    /// deadlines.
    private void end(TransferTask over) {
        try {
            threads.execute(over);
        } catch (RejectedExecutionException | OutOfMemoryError e) { // no native thread: the latter
            run(over);
        }
    }

    /// No more submits; what waits fails.
    public void close() {
        lock.lock();
        try {
            closed = true;
        } finally {
            lock.unlock();
        }
        for (TransferTask left = takeAny(); left != null; left = takeAny()) {
            left.fail(ErrorCode.CLOSED, "the transfer engine was closed");
        }
    }

    private @Nullable TransferTask takeAny() {
        lock.lock();
        try {
            for (Queue queue : queues.values()) {
                TransferTask first = queue.waiting.poll();
                if (first != null) {
                    return first;
                }
            }
            return null;
        } finally {
            lock.unlock();
        }
    }
}
