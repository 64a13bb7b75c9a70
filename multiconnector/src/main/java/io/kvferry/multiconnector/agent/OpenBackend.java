// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.toolkit.bounded.HeapPause;
import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Optional;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;

/// One open backend of an agent, and the thread rule under which it may be called.
///
/// Threading: any thread; calls to a CONFINED backend go to its loop.
final class OpenBackend {
    private static final Logger LOG = LoggerFactory.getLogger(OpenBackend.class);
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);
    private static final long RETRY_NANOS = TimeUnit.MICROSECONDS.toNanos(500);

    private final String name;
    private final int place;
    private final TransferBackend backend;
    private final BackendCapabilities capabilities;
    private final Optional<OwnerLoop> loop;
    private final BackendStats figures = new BackendStats();

    /// Posts rejected by a full CONCURRENT backend, waiting to be retried. Bounded by the agent's
    /// limit on transfers in flight.
    private final Queue<OwnerLoop.Post> waiting = new ConcurrentLinkedQueue<>();

    /// Whether a retry of [#waiting] is scheduled.
    private final AtomicBoolean retrying = new AtomicBoolean();

    private volatile boolean closed;

    OpenBackend(String name, int place, TransferBackend backend, Optional<OwnerLoop> loop) {
        this.name = name;
        this.place = place;
        this.backend = backend;
        this.capabilities = backend.capabilities();
        this.loop = loop;
    }

    BackendStats figures() {
        return figures;
    }

    String name() {
        return name;
    }

    /// Its place in the list of backends, from 0.
    int place() {
        return place;
    }

    BackendCapabilities capabilities() {
        return capabilities;
    }

    boolean takes(MemoryKind kind) {
        return capabilities.routes().stream()
                .anyMatch(route -> route.local() == kind || route.remote() == kind);
    }

    boolean reachesPeers() {
        return capabilities.routes().stream()
                .anyMatch(route -> route.scope() == Route.Scope.REMOTE);
    }

    /// Calls the backend and waits for the answer.
    <T> T call(String what, Function<TransferBackend, T> body) {
        Supplier<T> call = () -> body.apply(backend);
        return loop.isPresent() ? loop.get().call(name + "." + what, call) : call.get();
    }

    /// Has the backend make something, and waits for it.
    ///
    /// @param discard gives it back when the caller gave up before it was there
    <T> T make(String what, Function<TransferBackend, T> body, Consumer<T> discard) {
        Supplier<T> call = () -> body.apply(backend);
        return loop.isPresent() ? loop.get().make(name + "." + what, call, discard) : call.get();
    }

    /// Releases a resource of the backend, and waits for it. Does nothing if the backend is closed,
    /// because closing it has released everything.
    void release(String what, Runnable body) {
        try {
            call(
                    what,
                    _ -> {
                        body.run();
                        return true;
                    });
        } catch (KvFerryException e) {
            if (e.code() != ErrorCode.CLOSED) {
                throw e;
            }
        }
    }

    /// Frees a prepared list: at once, or for a CONFINED backend when its loop comes to it. Does
    /// not wait for the loop and never throws, since transfers that end do this in their callbacks.
    /// Tried for some seconds where the heap is full.
    void free(Prepared list) {
        if (loop.isEmpty()) {
            close(list);
            return;
        }
        for (int attempt = 1; ; attempt++) {
            try {
                loop.get().release(() -> close(list));
                return;
            } catch (OutOfMemoryError e) {
                if (HeapPause.isLast(attempt)) {
                    LoopReport.WARN.log(LOG, "{}: a prepared list is not closed", name, e);
                    return;
                }
                HeapPause.after(attempt, e);
            }
        }
    }

    /// Closes a list of the backend, on its thread. Never throws.
    void close(Prepared list) {
        try {
            list.close();
        } catch (RuntimeException | Error e) { // the border to the backend
            if (Failure.of(e).code() != ErrorCode.CLOSED) {
                LoopReport.WARN.log(LOG, "{}: a prepared list could not be closed", name, e);
            }
        }
    }

    /// Starts a call without waiting for its result: on the loop of a CONFINED backend, otherwise
    /// on the calling thread.
    ///
    /// @return false when the loop's queue is full or the loop is closed
    boolean start(Runnable body) {
        if (loop.isPresent()) {
            return loop.get().execute(body);
        }
        body.run();
        return true;
    }

    /// Posts a transfer without blocking: on the loop of a CONFINED backend, otherwise on the
    /// calling thread. A transfer that finds the backend's queue full is kept and retried.
    ///
    /// @param patient false to fail with BACKPRESSURE instead of retrying; ignored for a CONFINED
    ///   backend
    /// @return false when the loop's queue is full or the loop is closed
    boolean post(OwnerLoop.Post post, boolean patient) {
        if (loop.isPresent()) {
            return loop.get().post(post);
        }
        if (!post.tryNow(patient)) {
            waiting.add(post);
        }
        if (!waiting.isEmpty()) {
            retryLater();
        }
        return true;
    }

    private void retryLater() {
        if (retrying.compareAndSet(false, true)) {
            try {
                AgentClock.after(RETRY_NANOS, this::retry);
            } catch (OutOfMemoryError e) { // the next post, or the close, tries again
                retrying.set(false);
                LoopReport.ERROR.log(LOG, "{}: no room to wait for room", name, e);
            }
        }
    }

    private void retry() {
        try {
            retryWaiting();
        } catch (RuntimeException | Error e) { // none is meant to throw
            LoopReport.ERROR.log(LOG, "{}: a retry failed", name, e);
        } finally {
            retrying.set(false);
            if (!waiting.isEmpty()) {
                retryLater();
            }
        }
    }

    private void retryWaiting() {
        for (var post = waiting.peek(); post != null; post = waiting.peek()) {
            if (!tried(post, true)) {
                break;
            }
            waiting.remove(post);
        }
        for (var post : waiting) {
            if (post.isOver() && waiting.remove(post)) {
                tried(post, false);
            }
        }
    }

    /// A post that throws is finished, as in [OwnerLoop].
    private boolean tried(OwnerLoop.Post post, boolean canWait) {
        try {
            return post.tryNow(canWait);
        } catch (RuntimeException | Error e) { // none is meant to throw
            LoopReport.ERROR.log(LOG, "{}: a post failed", name, e);
            return true;
        }
    }

    /// Waits until the posts that were waiting have failed with the error of the closed backend,
    /// for at most the close limit.
    private void endWaiting() {
        var limit = Deadline.in(CLOSE_LIMIT);
        while ((retrying.get() || !waiting.isEmpty()) && !limit.passed()) {
            retryLater();
            LockSupport.parkNanos(this, 100_000);
        }
    }

    /// Why [#start] or [#post] returned false.
    Failure unstarted() {
        return loop.isPresent() && loop.get().isClosed()
                ? new Failure(ErrorCode.CLOSED, name + " is closed")
                : new Failure(ErrorCode.BACKPRESSURE, name + ": its loop has no room");
    }

    TransferBackend backend() {
        return backend;
    }

    int poll() {
        return loop.map(OwnerLoop::poll).orElse(0);
    }

    /// Closes the backend on its thread, then ends the thread. When the backend could not be
    /// closed, the thread stays for a later call, which tries again.
    void close() {
        if (closed) {
            return;
        }
        try {
            call(
                    "close",
                    open -> {
                        loop.ifPresent(
                                owner -> owner.progress(() -> 0)); // the loop runs until endLoop()
                        open.close();
                        return true;
                    });
        } catch (KvFerryException e) {
            if (closed) { // by another caller meanwhile, and the loop with it
                return;
            }
            throw e;
        }
        closed = true;
        endLoop();
        endWaiting();
    }

    /// Ends the thread, whether the backend is closed or not.
    void endLoop() {
        loop.ifPresent(OwnerLoop::close);
    }
}
