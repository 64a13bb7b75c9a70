// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/// Makes calls at the same time, each to another owner. The calls have limits of their own.
///
/// Threading: any thread.
final class FanOut implements AutoCloseable {
    private static final int MOST_THREADS = 256;

    private final ThreadPoolExecutor threads;

    FanOut() {
        this(Thread.ofPlatform().daemon().name("kvferry-store-owners-", 0).factory());
    }

    FanOut(ThreadFactory factory) {
        threads =
                new ThreadPoolExecutor(
                        0, MOST_THREADS, 30, TimeUnit.SECONDS, new SynchronousQueue<>(), factory);
    }

    /// Runs all, the last one on this thread, and returns when all that began have ended, also when
    /// it throws. An interrupt reaches all of them. It does not end the wait: they may be moving
    /// bytes.
    void run(List<? extends Runnable> calls) {
        if (calls.isEmpty()) {
            return;
        }
        var others = new ArrayList<Call>(calls.size());
        RuntimeException failure;
        try {
            for (Runnable call : calls.subList(0, calls.size() - 1)) {
                others.add(begin(call));
            }
            calls.getLast().run();
        } finally {
            failure = awaitAll(others);
        }
        if (failure != null) {
            throw failure;
        }
    }

    private Call begin(Runnable work) {
        var call = new Call(work);
        try {
            threads.execute(call);
        } catch (RejectedExecutionException | OutOfMemoryError _) {
            call.run(); // all threads are taken, none can be made, or it is closed
        }
        return call;
    }

    /// A call on a thread of its own.
    private static final class Call implements Runnable {
        private final FutureTask<Boolean> task;
        private @Nullable Thread thread;
        private boolean interrupted;

        Call(Runnable work) {
            this.task = new FutureTask<>(work, true);
        }

        @Override
        public void run() {
            synchronized (this) {
                thread = Thread.currentThread();
                if (interrupted) {
                    thread.interrupt();
                }
            }
            try {
                task.run();
            } finally {
                synchronized (this) {
                    thread = null;
                    if (interrupted) {
                        var _ = Thread.interrupted(); // the thread has other calls to make
                    }
                }
            }
        }

        synchronized void interrupt() {
            interrupted = true;
            if (thread != null) {
                thread.interrupt();
            }
        }
    }

    private static @Nullable RuntimeException awaitAll(List<Call> calls) {
        RuntimeException failure = null;
        boolean interrupted = false;
        for (Call call : calls) {
            boolean ended = false;
            while (!ended) {
                try {
                    var _ = call.task.get();
                    ended = true;
                } catch (ExecutionException e) {
                    failure = new IllegalStateException("a call to an owner failed", e);
                    ended = true;
                } catch (InterruptedException _) {
                    interrupted = true;
                    calls.forEach(Call::interrupt);
                }
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        return failure;
    }

    @Override
    public void close() {
        threads.shutdown();
    }
}
