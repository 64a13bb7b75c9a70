// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Queue;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;

/// Questions of the scheduler half to the store: answered on the spot where the store is in this
/// process, else on a thread of their own, so that the scheduler thread never waits for a network.
///
/// Threading: [#ask] and [#deliver] on the scheduler thread.
final class StoreQueries implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(StoreQueries.class);
    private static final int MOST_WAITING = 4096;

    private final boolean near;
    private final Runnable wake;
    private final ThreadPoolExecutor thread;
    private final Queue<Runnable> answers = new ConcurrentLinkedQueue<>();

    StoreQueries(Store store, Runnable wake) {
        this.near = store.features().contains(Store.Feature.IN_PROCESS);
        this.wake = wake;
        this.thread =
                new ThreadPoolExecutor(
                        1,
                        1,
                        10,
                        TimeUnit.SECONDS,
                        new ArrayBlockingQueue<>(MOST_WAITING),
                        Thread.ofPlatform().daemon().name("kvferry-store-lookup").factory());
        thread.allowCoreThreadTimeOut(true);
    }

    /// Whether answers come before [#ask] returns.
    boolean areImmediate() {
        return near;
    }

    /// Asks a question and hands the answer to `then`, on the scheduler thread. A question that
    /// fails, or finds too many waiting, is answered with `otherwise`.
    <T> void ask(Supplier<T> question, T otherwise, Consumer<T> then) {
        if (near) {
            then.accept(question.get());
            return;
        }
        try {
            thread.execute(() -> {
                T answer = otherwise;
                try {
                    answer = question.get();
                } catch (RuntimeException | Error e) {
                    LoopReport.WARN.log(LOG, "a question to the store failed", e);
                }
                T told = answer;
                post(() -> then.accept(told));
            });
        } catch (RejectedExecutionException _) {
            then.accept(otherwise);
        }
    }

    /// Has something done on the scheduler thread, from any thread.
    void post(Runnable action) {
        answers.add(action);
        wake.run();
    }

    boolean hasAnswers() {
        return !answers.isEmpty();
    }

    /// Hands over the answers that have come.
    void deliver() {
        for (Runnable answer = answers.poll(); answer != null; answer = answers.poll()) {
            answer.run();
        }
    }

    @Override
    public void close() {
        thread.shutdownNow();
        answers.clear();
    }
}
