// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// The push of one prompt in one step on this rank. The step thread says what is computed; the send
/// service begins to send once the decoder has granted it.
///
/// Threading: any thread.
final class PushTask {
    private final P2pPlan.Push plan;
    private final CompletableFuture<DataPlane.Outcome> end = new CompletableFuture<>();
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private DataPlane.@Nullable Sending sending;
    private int available;
    private boolean committed;
    private boolean givenUp;

    PushTask(P2pPlan.Push plan) {
        this.plan = plan;
    }

    P2pPlan.Push plan() {
        return plan;
    }

    /// @return false when it was given up; nothing may be sent then
    boolean mayBegin() {
        lock.lock();
        try {
            return !givenUp && !end.isDone();
        } finally {
            lock.unlock();
        }
    }

    /// Whether a receiver is known.
    boolean hasTaker() {
        lock.lock();
        try {
            return sending != null || !plan.decoder().addresses().isEmpty();
        } finally {
            lock.unlock();
        }
    }

    /// Sending has started. If the push was given up meanwhile, it is aborted before it sends
    /// anything, since its blocks may belong to another request by now.
    void begun(DataPlane.Sending begun) {
        boolean stop;
        lock.lock();
        try {
            sending = begun;
            stop = givenUp;
            if (!stop) {
                begun.available(available);
                if (committed) {
                    begun.commit();
                }
            }
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        if (stop) {
            begun.abort();
        }
    }

    /// The first `parts` parts are computed.
    void available(int parts) {
        lock.lock();
        try {
            available = parts;
            if (sending != null) {
                sending.available(parts);
            }
        } finally {
            lock.unlock();
        }
    }

    /// All of it is computed.
    void commit() {
        lock.lock();
        try {
            committed = true;
            if (sending != null) {
                sending.commit();
            }
        } finally {
            lock.unlock();
        }
    }

    /// It is not to be sent, or not any more.
    void giveUp() {
        DataPlane.Sending running;
        lock.lock();
        try {
            givenUp = true;
            running = sending;
        } finally {
            lock.unlock();
        }
        if (running != null) {
            running.abort(); // which says the end
        } else {
            ended(
                    new DataPlane.Outcome.Failed(
                            new Failure(ErrorCode.CANCELLED, "the push was given up")));
        }
    }

    /// The blocks of this push are no longer read.
    void ended(DataPlane.Outcome outcome) {
        lock.lock();
        try {
            end.complete(outcome);
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /// Waits until the first `parts` parts were sent, or it ended, or the deadline passed.
    void awaitSent(int parts, Deadline deadline) {
        var running = awaitBegun(deadline);
        if (running != null) {
            var _ = running.awaitSent(parts, deadline);
        }
    }

    private DataPlane.@Nullable Sending awaitBegun(Deadline deadline) {
        lock.lock();
        try {
            while (sending == null && !end.isDone() && !deadline.passed()) {
                var _ = changed.awaitNanos(deadline.remainingNanos());
            }
            return sending;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return null;
        } finally {
            lock.unlock();
        }
    }

    /// Waits for the end.
    ///
    /// @return null when the deadline passed first
    DataPlane.@Nullable Outcome await(Deadline deadline) {
        try {
            return end.get(Math.max(0, deadline.remainingNanos()), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            return null;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return null;
        } catch (ExecutionException e) {
            throw new AssertionError("only ever completed with a value", e);
        }
    }
}
