// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.Failure;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;

/// One transfer in the queue of a backend. Its progress belongs to the thread that drives the
/// backend; outcome and cancellation meet in one atomic state.
final class MemoryTransfer implements Transfer {
    private enum State {
        ACTIVE,
        CANCELLING,
        ENDED
    }

    private final TransferRequest request;
    private final BooleanSupplier cancellable;
    private final long submitted = System.nanoTime();
    private final AtomicReference<State> state = new AtomicReference<>(State.ACTIVE);
    private final CompletableFuture<TransferOutcome> completion = new CompletableFuture<>();
    private final CompletableFuture<Void> quiesced = new CompletableFuture<>();
    private final boolean[] moved;
    private int next;
    private long nextOffset;
    private boolean notified;
    private long targetTurns = -1;

    MemoryTransfer(TransferRequest request, BooleanSupplier cancellable) {
        this.request = request;
        this.cancellable = cancellable;
        this.moved = new boolean[request.local().descriptors().count()];
    }

    TransferRequest request() {
        return request;
    }

    @Override
    public CompletionStage<TransferOutcome> completion() {
        return completion.minimalCompletionStage();
    }

    @Override
    public CompletionStage<Void> quiesced() {
        return quiesced.minimalCompletionStage();
    }

    @Override
    public Optional<TransferOutcome> poll() {
        return completion.isDone() ? Optional.of(completion.join()) : Optional.empty();
    }

    @Override
    public boolean cancel() {
        return cancellable.getAsBoolean()
                && (state.compareAndSet(State.ACTIVE, State.CANCELLING)
                        || state.get() == State.CANCELLING);
    }

    boolean isCancelling() {
        return state.get() == State.CANCELLING;
    }

    /// The descriptor to go on with.
    int index() {
        return next;
    }

    /// Bytes of it that have been moved.
    long offset() {
        return nextOffset;
    }

    boolean allMoved() {
        return next == moved.length;
    }

    void advance(long bytes) {
        nextOffset += bytes;
        if (nextOffset == request.local().descriptors().length(next)) {
            moved[next++] = true;
            nextOffset = 0;
        }
    }

    /// Whether the target had its turn since the last piece, or since the start.
    boolean targetTookTurn(long turns) {
        boolean took = targetTurns >= 0 && turns != targetTurns;
        targetTurns = turns;
        return took;
    }

    boolean needsNotification() {
        return request.notification().isPresent() && !notified;
    }

    void notificationSent() {
        notified = true;
    }

    void done() {
        if (state.compareAndSet(State.ACTIVE, State.ENDED)) {
            end(
                    new TransferOutcome.Done(
                            request.local().descriptors().bytes(),
                            true,
                            System.nanoTime() - submitted));
        } else {
            cancelled();
        }
    }

    void cancelled() {
        state.set(State.ENDED);
        end(new TransferOutcome.Cancelled());
    }

    /// Fails it, unless a cancellation promised another end.
    void fail(Failure failure, boolean perDescriptor) {
        if (state.compareAndSet(State.ACTIVE, State.ENDED)) {
            end(
                    perDescriptor
                            ? new TransferOutcome.Failed(failure, moved.clone())
                            : new TransferOutcome.Failed(failure));
        } else {
            cancelled();
        }
    }

    void timedOut() {
        if (state.compareAndSet(State.ACTIVE, State.ENDED)) {
            end(new TransferOutcome.TimedOut());
        } else {
            cancelled();
        }
    }

    private void end(TransferOutcome outcome) {
        completion.complete(outcome);
        quiesced.complete(
                null); // copies are synchronous: nothing can be on its way after the outcome
    }
}
