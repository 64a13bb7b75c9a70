// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.toolkit.bounded.GrowSafeQueue;
import io.kvferry.toolkit.bounded.LoopReport;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.concurrent.ThreadFactory;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;

/// Runs pieces of work one after the other, on a virtual thread that lives while there are any.
///
/// Threading: any thread.
final class Strand {
    private static final Logger LOG = LoggerFactory.getLogger(Strand.class);

    private final String name;
    private final int most;
    private final ThreadFactory threads;
    private final ReentrantLock lock = new ReentrantLock();
    private final GrowSafeQueue<Runnable> waiting = new GrowSafeQueue<>();
    private boolean running;

    /// @param most pieces that may wait
    Strand(String name, int most) {
        this(name, most, Thread.ofVirtual().name(name).factory());
    }

    Strand(String name, int most, ThreadFactory threads) {
        this.name = name;
        this.most = most;
        this.threads = threads;
    }

    /// Queues work; refuses it if too much is queued or no thread can be created.
    ///
    /// @return false if it will not run
    boolean offer(Runnable work) {
        lock.lock();
        try {
            if (waiting.size() >= most) {
                return false;
            }
            waiting.add(work);
            start();
            return true;
        } catch (RuntimeException | Error e) { // no memory for a thread, for one
            var _ = waiting.remove(work);
            LoopReport.WARN.log(LOG, "{}: no thread for a piece of work", name, e);
            return false;
        } finally {
            lock.unlock();
        }
    }

    /// Runs it however many wait: the owner's own work. Where no thread can be had, which this
    /// throws for, it runs before the next one.
    void add(Runnable work) {
        lock.lock();
        try {
            waiting.add(work);
            start();
        } finally {
            lock.unlock();
        }
    }

    private void start() {
        if (!running) {
            threads.newThread(this::run).start();
            running = true;
        }
    }

    /// Whether nothing runs or is queued, and `condition` holds at that moment.
    boolean idle(BooleanSupplier condition) {
        lock.lock();
        try {
            return !running && condition.getAsBoolean();
        } finally {
            lock.unlock();
        }
    }

    private void run() {
        for (Runnable work; (work = next()) != null; ) {
            try {
                work.run();
            } catch (RuntimeException | Error e) { // a defect in one ends no other
                LoopReport.ERROR.log(LOG, "{}: a piece of work failed", name, e);
            }
        }
    }

    private @Nullable Runnable next() {
        lock.lock();
        try {
            var work = waiting.poll();
            running = work != null;
            return work;
        } finally {
            lock.unlock();
        }
    }
}
