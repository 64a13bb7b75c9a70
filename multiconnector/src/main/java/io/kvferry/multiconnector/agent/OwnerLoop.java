// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.bounded.LoopReport;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Deque;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.IntSupplier;
import java.util.function.Supplier;

/// The only thread that calls a CONFINED backend: either a dedicated thread, or the thread that
/// created the loop and drives it by calling [#poll].
final class OwnerLoop implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(OwnerLoop.class);
    private static final long LOG_EVERY = 100_000;
    static final int QUEUE = 4096;
    private static final long IDLE_NANOS = 100_000;
    private static final long LOOK_NANOS = 1_000_000;

    /// Limits the cost of scanning the waiting posts: the pause between two scans is at least this
    /// many times as long as the last scan took.
    private static final int LOOK_REST = 10;

    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);

    /// A transfer to hand to the backend.
    interface Post {
        /// Submits the transfer.
        ///
        /// @param canWait whether the loop may retry later
        /// @return false when `canWait` and the backend's queue is full; otherwise the post is
        ///   finished, successfully or not
        boolean tryNow(boolean canWait);

        /// Whether the transfer was cancelled or its deadline has passed; [#tryNow] then only
        /// completes it.
        boolean isOver();
    }

    private final String name;
    private final Thread owner;
    private final boolean ownThread;
    private final ArrayBlockingQueue<Runnable> tasks = new ArrayBlockingQueue<>(QUEUE);
    private final Duration callLimit;
    private final ArrayBlockingQueue<Post> posts = new ArrayBlockingQueue<>(QUEUE);

    /// Handles to free. Has no limit of its own: a handle is freed once, and the caller who made it
    /// waited for that call.
    private final Queue<Runnable> releases = new ConcurrentLinkedQueue<>();

    /// Posts that found the backend full; used by the owner only.
    private final Deque<Post> kept = new ArrayDeque<>();

    /// Whether the backend has made progress since posts were last retried.
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
                        ? Thread.ofPlatform()
                                .daemon()
                                .name(name)
                                .unstarted(new LastingLoop(this::run))
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

    /// Sets what [#poll] runs in addition to tasks and posts. Call on the owner thread.
    void progress(IntSupplier more) {
        progress = more;
    }

    /// Runs `body` on the owner thread and waits for its result, for at most the call limit. It
    /// runs also when its caller has given up by then.
    <T> T call(String what, Supplier<T> body) {
        return ask(what, result -> result.complete(body.get()));
    }

    /// The same for what makes something: it does not run when its caller has given up by then.
    ///
    /// @param discard gives back what was made when the caller gave up in between
    <T> T make(String what, Supplier<T> body, Consumer<T> discard) {
        return ask(
                what,
                result -> {
                    if (result.isDone()) {
                        return;
                    }
                    T made = body.get();
                    if (!result.complete(made)) {
                        discard.accept(made);
                    }
                });
    }

    private <T> T ask(String what, Consumer<CompletableFuture<T>> body) {
        var result = new CompletableFuture<T>();
        if (Thread.currentThread().equals(owner)) {
            runReleases(); // a list that was closed before memory is deregistered
            body.accept(result);
            return result.join();
        }
        boolean accepted =
                execute(() -> {
                    try {
                        body.accept(result);
                    } catch (RuntimeException | Error e) { // thrown by the waiting thread
                        if (!result.completeExceptionally(e)) {
                            LoopReport.WARN.log(LOG, "{}: {} failed later", name, what, e);
                        }
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

    /// A result that comes while the caller gives up is the caller's: whoever ends `result` first
    /// decides.
    private <T> T await(String what, CompletableFuture<T> result) {
        try {
            return result.get(callLimit.toNanos(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            if (!result.cancel(false)) {
                return ended(result);
            }
            throw new KvFerryException(
                    ErrorCode.CANCELLED, name + ": interrupted while waiting for " + what, e);
        } catch (ExecutionException _) {
            return ended(result);
        } catch (TimeoutException e) {
            if (!result.cancel(false)) {
                return ended(result);
            }
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

    private static <T> T ended(CompletableFuture<T> result) {
        if (result.state() == Future.State.SUCCESS) {
            return result.resultNow();
        }
        var cause = result.exceptionNow();
        var failure = Failure.of(cause);
        throw new KvFerryException(failure.code(), failure.message(), cause);
    }

    /// Queues `body` for the owner thread; runs it at once when called on the owner thread.
    ///
    /// @return false when the queue is full or the loop is closed
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
        // If the loop closed after the first check, its last drain may have missed this task.
        return !closed || !tasks.remove(body);
    }

    /// Frees a handle on the owner thread, without waiting for it: a transfer that ends on one loop
    /// frees handles on the others, and two loops must not wait for each other. Ignored once the
    /// loop is closed, because closing the backend has freed everything.
    void release(Runnable body) {
        if (Thread.currentThread().equals(owner)) {
            run(body);
            return;
        }
        releases.add(body);
        if (closed) {
            releases.clear();
        }
        LockSupport.unpark(owner);
    }

    /// Queues a transfer for the backend; submits it at once when called on the owner thread with
    /// nothing queued before it. Transfers stay queued, in order, while the backend's queue is
    /// full.
    ///
    /// @return false when the queue is full or the loop is closed
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

    /// Runs one round: the queued calls and posts, then the backend's own progress.
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
            done += runReleases(); // a list that was closed before memory is deregistered
            run(task);
            done++;
        }
        done += runReleases();
        done += postWaiting();
        int moved = progress.getAsInt();
        progressed |= moved > 0;
        return done + moved;
    }

    private int runReleases() {
        int done = 0;
        for (var next = releases.poll(); next != null; next = releases.poll()) {
            run(next);
            done++;
        }
        return done;
    }

    private int postWaiting() {
        int done = 0;
        if (!kept.isEmpty()) {
            // Retry a full backend when it has made progress; otherwise after `lookAfter`
            // nanoseconds.
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

    /// Completes posts that were cancelled or timed out, without waiting for the backend.
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
        } catch (RuntimeException | Error e) { // none is meant to throw
            LoopReport.ERROR.log(LOG, "{}: a post failed", name, e);
            return true;
        }
    }

    /// Runs a task. Tasks should not throw; an exception is logged so that later tasks still run.
    private void run(Runnable task) {
        try {
            task.run();
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "{}: a task failed", name, e);
        }
    }

    private void runLeftOver() {
        releases.clear(); // the backend is closed
        for (var task = tasks.poll(); task != null; task = tasks.poll()) {
            run(task); // a caller may be waiting for its result
        }
        posts.drainTo(kept);
        for (var post = kept.pollFirst(); post != null; post = kept.pollFirst()) {
            tryNow(post, false); // fails with the error of the closed backend
        }
    }

    private void run() {
        long failures = 0;
        while (!closed) {
            int done = 0;
            try {
                done = poll();
            } catch (RuntimeException | Error e) {
                // A bug in the backend must not end the agent's thread, nor must a full heap.
                if (failures++ % LOG_EVERY == 0) {
                    LoopReport.ERROR.log(LOG, "{}: poll failed", name, e);
                }
            }
            if (done == 0) {
                LockSupport.parkNanos(this, IDLE_NANOS);
            }
        }
        runLeftOver();
    }

    /// Ends the loop. Close the backend first, through [#call].
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
