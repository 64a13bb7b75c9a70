// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import io.kvferry.toolkit.bounded.Uninterrupted;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
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
    /// it throws. An interrupt does not end the wait: the calls may be moving bytes.
    void run(List<? extends Runnable> calls) {
        if (calls.isEmpty()) {
            return;
        }
        var others = new ArrayList<FutureTask<Boolean>>(calls.size());
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

    private FutureTask<Boolean> begin(Runnable call) {
        var task = new FutureTask<>(call, true);
        try {
            threads.execute(task);
        } catch (RejectedExecutionException | OutOfMemoryError _) {
            task.run(); // all threads are taken, none can be made, or it is closed
        }
        return task;
    }

    private static @Nullable RuntimeException awaitAll(List<FutureTask<Boolean>> tasks) {
        RuntimeException failure = null;
        for (Future<Boolean> task : tasks) {
            try {
                Uninterrupted.run(task::get);
            } catch (ExecutionException e) {
                failure = new IllegalStateException("a call to an owner failed", e);
            }
        }
        return failure;
    }

    @Override
    public void close() {
        threads.shutdown();
    }
}
