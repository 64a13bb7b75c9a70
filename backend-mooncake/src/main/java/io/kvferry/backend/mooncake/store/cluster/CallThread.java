// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.spi.Deadline;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.LongSupplier;

/// A thread that calls the library, and the memory of its call. The thread starts at construction,
/// so that a failure to create it fails the opening and not a call.
///
/// Threading: the caller that took it from its [CallThreads], until it gives it back.
final class CallThread {
    /// The call has not returned in time. The thread goes back by itself when it does, and the
    /// caller must not use it any more.
    static final long ABANDONED = Long.MIN_VALUE;

    private static final Logger LOG = LoggerFactory.getLogger(CallThread.class);

    private final CallThreads threads;
    private final CallMemory memory = new CallMemory();
    private final ThreadPoolExecutor thread;

    /// @throws OutOfMemoryError when no thread can be had
    CallThread(CallThreads threads, ThreadFactory factory) {
        this.threads = threads;
        this.thread =
                new ThreadPoolExecutor(
                        1, 1, 0, TimeUnit.NANOSECONDS, new LinkedBlockingQueue<>(), factory);
        thread.prestartCoreThread();
    }

    CallMemory memory() {
        return memory;
    }

    /// Has the thread make a call, and waits for it.
    ///
    /// @return what it answers, INTERNAL for an exception, or [#ABANDONED]
    long run(LongSupplier call, Deadline limit) {
        var task = new Task(call);
        try {
            thread.execute(task);
        } catch (RejectedExecutionException | OutOfMemoryError e) { // then the task is not queued
            LOG.warn("a call into Mooncake's store was not made: {}", e.toString());
            return StoreCode.INTERNAL.number();
        }
        return task.await(limit);
    }

    /// After no call runs any more.
    void close() {
        thread.shutdown();
        memory.free();
    }

    private enum State {
        RUNNING,
        RETURNED,
        ABANDONED
    }

    private final class Task implements Runnable {
        private final LongSupplier call;
        private final AtomicReference<State> state = new AtomicReference<>(State.RUNNING);
        private final CountDownLatch returned = new CountDownLatch(1);
        private volatile long answer = StoreCode.INTERNAL.number();

        Task(LongSupplier call) {
            this.call = call;
        }

        @Override
        public void run() {
            try {
                answer = call.getAsLong();
            } catch (RuntimeException | Error e) {
                LOG.error("a call into Mooncake's store failed", e);
            } finally {
                if (state.compareAndSet(State.RUNNING, State.RETURNED)) {
                    returned.countDown();
                } else {
                    threads.recover(CallThread.this);
                }
            }
        }

        long await(Deadline limit) {
            try {
                if (returned.await(limit.remainingNanos(), TimeUnit.NANOSECONDS)) {
                    return answer;
                }
            } catch (InterruptedException _) {
                Thread.currentThread().interrupt();
            }
            threads.lose();
            if (state.compareAndSet(State.RUNNING, State.ABANDONED)) {
                return ABANDONED;
            }
            threads.found();
            return answer;
        }
    }
}
