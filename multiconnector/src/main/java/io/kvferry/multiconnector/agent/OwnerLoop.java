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
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Deque;
import java.util.List;
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
    static final int QUEUE = 4096;
    private static final long IDLE_NANOS = 100_000;
    private static final long LOOK_NANOS = 1_000_000;

    /// From a look at all that waits to the next it takes so many times as long as the look took.
    private static final int LOOK_REST = 10;

    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);

    /// A transfer to hand to the backend.
    interface Post {
        /// Hands it over.
        ///
        /// @param canWait whether it may be tried again later
        /// @return false when the backend has no room now and `canWait`; otherwise it is settled
        boolean tryNow(boolean canWait);

        /// Whether it was cancelled or its deadline has passed, so that trying it ends it.
        boolean isOver();
    }

    private final String name;
    private final Thread owner;
    private final boolean ownThread;
    private final ArrayBlockingQueue<Runnable> tasks = new ArrayBlockingQueue<>(QUEUE);
    private final Duration callLimit;
    private final ArrayBlockingQueue<Post> posts = new ArrayBlockingQueue<>(QUEUE);

    /// Posts that found the backend full; used by the owner only.
    private final Deque<Post> kept = new ArrayDeque<>();

    /// Whether the backend did something since it was last asked.
    private boolean progressed;

    private long lookedAt;
    private long lookAfter = LOOK_NANOS;

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

    /// Work of [#poll] beside the tasks; set on the owner.
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

    /// Hands a transfer to the backend some time later, or now when called on the owner and nothing
    /// waits before it. While the backend has no room it waits here, in order.
    ///
    /// @return false when too much waits already, or the loop is closed
    boolean post(Post post) {
        if (closed) {
            return false;
        }
        if (Thread.currentThread().equals(owner) && kept.isEmpty() && posts.isEmpty()) {
            if (!tryNow(post, true)) {
                kept.addFirst(post);
            }
            return true;
        }
        if (!posts.offer(post)) {
            return false;
        }
        LockSupport.unpark(owner);
        return !closed || !posts.remove(post);
    }

    boolean isClosed() {
        return closed;
    }

    /// One round: the calls and posts that wait now, then the backend.
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
        done += postWaiting();
        int moved = progress.getAsInt();
        progressed |= moved > 0;
        return done + moved;
    }

    private int postWaiting() {
        int done = 0;
        if (!kept.isEmpty()) {
            // A backend that was full is asked again when it has done something, or now and then.
            long now = System.nanoTime();
            if (now - lookedAt > lookAfter) {
                done = endOver(kept) + endOver(posts);
                lookedAt = System.nanoTime();
                lookAfter = Math.max(LOOK_NANOS, LOOK_REST * (lookedAt - now));
            } else if (!progressed) {
                return 0;
            }
        }
        progressed = false;
        for (int waiting = posts.size() + 1; waiting > 0; waiting--) {
            var post = kept.isEmpty() ? posts.poll() : kept.pollFirst();
            if (post == null) {
                break;
            }
            if (!tryNow(post, true)) {
                kept.addFirst(post);
                break;
            }
            done++;
        }
        return done;
    }

    /// Removes posts that have ended; they do not wait for a full backend.
    private int endOver(Collection<Post> waiting) {
        int done = 0;
        for (var post : List.copyOf(waiting)) {
            if (post.isOver() && waiting.remove(post)) {
                tryNow(post, false);
                done++;
            }
        }
        return done;
    }

    private boolean tryNow(Post post, boolean canWait) {
        try {
            return post.tryNow(canWait);
        } catch (RuntimeException | LinkageError e) { // none is meant to throw
            LOG.error("{}: a post failed", name, e);
            return true;
        }
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
        posts.drainTo(kept);
        for (var post = kept.pollFirst(); post != null; post = kept.pollFirst()) {
            tryNow(post, false); // the backend is closed and says so
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
