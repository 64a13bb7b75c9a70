// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import java.time.Duration;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/// Copies out of the staging memory into the blocks of loads.
///
/// Threading: any thread.
final class StagedCopies implements AutoCloseable {
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);

    private final Executor executor;
    private final AtomicInteger running = new AtomicInteger();
    private volatile boolean closed;

    /// @param executor runs them
    StagedCopies(Executor executor) {
        this.executor = executor;
    }

    /// Copies the last blocks of each part of `from` to `to`.
    ///
    /// @param end called once, on the thread that copied or on this one; not called if the executor
    ///   is closed before the copy starts
    void copy(Placement from, Placement to, Consumer<Outcome> end) {
        try {
            executor.execute(() -> end.accept(run(from, to)));
        } catch (RuntimeException | Error e) { // no memory for a thread, for one
            end.accept(Outcome.Failed.of(e));
        }
    }

    private Outcome run(Placement from, Placement to) {
        running.incrementAndGet();
        try {
            if (closed) {
                return new Outcome.Failed(new Failure(ErrorCode.CLOSED, "the worker is closed"));
            }
            from.copyTailTo(to);
            return new Outcome.Done(to.bytes());
        } catch (RuntimeException | Error e) { // any failure must end the transfer
            return Outcome.Failed.of(e);
        } finally {
            running.decrementAndGet();
        }
    }

    /// Begins none any more, and waits (bounded) until none runs.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when one still does: the memory must stay in
    ///   place
    @Override
    public void close() {
        closed = true;
        var limit = Deadline.in(CLOSE_LIMIT);
        while (running.get() > 0) {
            if (limit.passed()) {
                throw new KvFerryException(
                        ErrorCode.TIMEOUT, "a copy still uses blocks after " + CLOSE_LIMIT);
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
        }
    }
}
