// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import org.jspecify.annotations.Nullable;

import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/// Makes calls at the same time, each to another owner. The calls have limits of their own.
///
/// Threading: any thread.
final class FanOut implements AutoCloseable {
    private static final int MOST_THREADS = 256;

    private final ThreadPoolExecutor threads =
            new ThreadPoolExecutor(
                    0,
                    MOST_THREADS,
                    30,
                    TimeUnit.SECONDS,
                    new SynchronousQueue<>(),
                    Thread.ofPlatform().daemon().name("kvferry-store-owners-", 0).factory());

    /// Runs all, the last one on this thread, and returns when all have ended. An interrupt does
    /// not end the wait: the calls may be moving bytes.
    void run(List<? extends Runnable> calls) {
        if (calls.isEmpty()) {
            return;
        }
        var others = calls.subList(0, calls.size() - 1).stream().map(this::begin).toList();
        RuntimeException failure;
        try {
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
        } catch (RejectedExecutionException _) {
            task.run(); // all threads are taken, or it is closed
        }
        return task;
    }

    private static @Nullable RuntimeException awaitAll(List<FutureTask<Boolean>> tasks) {
        RuntimeException failure = null;
        boolean interrupted = false;
        for (Future<Boolean> task : tasks) {
            while (true) {
                try {
                    task.get();
                    break;
                } catch (InterruptedException _) {
                    interrupted = true;
                } catch (ExecutionException e) {
                    failure = new IllegalStateException("a call to an owner failed", e);
                    break;
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
