// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntSupplier;
import java.util.function.Supplier;

/// The one thread that a CONFINED backend is called from: a thread of its own, or whoever opened it
/// and calls [#poll].
final class OwnerLoop implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(OwnerLoop.class);
    private static final long LOG_EVERY = 100_000;
    private static final int QUEUE = 4096;
    private static final long IDLE_NANOS = 100_000;
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);

    private final String name;
    private final Thread owner;
    private final boolean ownThread;
    private final ArrayBlockingQueue<Runnable> tasks = new ArrayBlockingQueue<>(QUEUE);
    private final Duration callLimit;
    private IntSupplier progress = () -> 0;
    private volatile boolean closed;

    private OwnerLoop(String name, @Nullable Thread caller, Duration callLimit) {
        this.name = name;
        this.callLimit = callLimit;
        this.ownThread = caller == null;
        this.owner =
                caller == null
                        ? Thread.ofPlatform().daemon().name(name).unstarted(this::run)
                        : caller;
    }

    static OwnerLoop threaded(String name, Duration callLimit) {
        var loop = new OwnerLoop(name, null, callLimit);
        loop.owner.start();
        return loop;
    }

    /// A loop that makes progress only when the current thread calls [#poll].
    static OwnerLoop ofCaller(String name, Duration callLimit) {
        return new OwnerLoop(name, Thread.currentThread(), callLimit);
    }

    /// What [#poll] does beside the tasks; set on the owner.
    void progress(IntSupplier more) {
        progress = more;
    }

    /// Runs `body` on the owner and waits for it, at most the call limit.
    <T> T call(String what, Supplier<T> body) {
        if (Thread.currentThread().equals(owner)) {
            return body.get();
        }
        var result = new CompletableFuture<T>();
        boolean accepted =
                execute(() -> {
                    try {
                        result.complete(body.get());
                    } catch (RuntimeException | LinkageError e) { // thrown by the waiting thread
                        result.completeExceptionally(e);
                    }
                });
        if (!accepted && closed) {
            throw new KvFerryException(ErrorCode.CLOSED, name + " has ended; " + what + " refused");
        }
        if (!accepted) {
            throw new KvFerryException(
                    ErrorCode.BACKPRESSURE,
                    name
                            + ": "
                            + QUEUE
                            + " calls wait for this loop already; "
                            + what
                            + " refused");
        }
        return await(what, result);
    }

    private <T> T await(String what, CompletableFuture<T> result) {
        try {
            return result.get(callLimit.toNanos(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new KvFerryException(
                    ErrorCode.CANCELLED, name + ": interrupted while waiting for " + what, e);
        } catch (ExecutionException e) {
            var cause = e.getCause() == null ? e : e.getCause();
            var failure = Failure.of(cause);
            throw new KvFerryException(failure.code(), failure.message(), cause);
        } catch (TimeoutException e) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    name
                            + ": "
                            + what
                            + " was not done within "
                            + callLimit
                            + (ownThread
                                    ? ""
                                    : "; the thread that opened the agent must call poll()"),
                    e);
        }
    }

    /// Runs `body` on the owner some time later, or now when called on it.
    ///
    /// @return false when too much waits already, or the loop is closed
    boolean execute(Runnable body) {
        if (closed) {
            return false;
        }
        if (Thread.currentThread().equals(owner)) {
            body.run();
            return true;
        }
        if (!tasks.offer(body)) {
            return false;
        }
        LockSupport.unpark(owner);
        // A loop that ended meanwhile may have looked for the last time before this came.
        return !closed || !tasks.remove(body);
    }

    /// One round: the tasks that wait now, then the backend.
    int poll() {
        if (!Thread.currentThread().equals(owner)) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    name
                            + ": poll() from "
                            + Thread.currentThread().getName()
                            + ", the owner is "
                            + owner.getName());
        }
        int done = 0;
        for (int waiting = tasks.size(); waiting > 0; waiting--) {
            var task = tasks.poll();
            if (task == null) {
                break;
            }
            run(task);
            done++;
        }
        return done + progress.getAsInt();
    }

    /// A task that throws, which none is meant to, must not keep the others from running.
    private void run(Runnable task) {
        try {
            task.run();
        } catch (RuntimeException | LinkageError e) {
            LOG.error("{}: a task failed", name, e);
        }
    }

    private void runLeftOver() {
        for (var task = tasks.poll(); task != null; task = tasks.poll()) {
            run(task); // somebody may wait for it
        }
    }

    private void run() {
        long failures = 0;
        while (!closed) {
            int done = 0;
            try {
                done = poll();
            } catch (RuntimeException | LinkageError e) {
                // A defect of the backend must not take the agent's thread with it.
                if (failures++ % LOG_EVERY == 0) {
                    LOG.error("{}: poll failed, {} times by now", name, failures, e);
                }
            }
            if (done == 0) {
                LockSupport.parkNanos(this, IDLE_NANOS);
            }
        }
        runLeftOver();
    }

    /// Ends the loop; close what it drives before, by [#call].
    @Override
    public void close() {
        closed = true;
        if (!ownThread) {
            runLeftOver();
            return;
        }
        LockSupport.unpark(owner);
        var limit = Deadline.in(CLOSE_LIMIT);
        try {
            owner.join(limit.remaining());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
