// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.EngineTransfer;
import io.kvferry.backend.mooncake.te.Guarantee;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.toolkit.bounded.LoopReport;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

/// An engine's transfer as the contract wants it.
final class MooncakeTransfer implements Transfer {
    private enum State {
        ACTIVE,
        CANCELLING,
        LOSING,
        ENDED
    }

    private static final Logger LOG = LoggerFactory.getLogger(MooncakeTransfer.class);

    private static final TransferOutcome NO_MEMORY =
            new TransferOutcome.Failed(
                    new Failure(
                            ErrorCode.NO_MEMORY, "no heap memory to tell how a transfer ended"));

    private final EngineTransfer transfer;
    private final Deadline deadline;
    private final boolean claimsApplied;
    private final long submitted = System.nanoTime();
    private final AtomicReference<State> state = new AtomicReference<>(State.ACTIVE);
    private final CompletableFuture<TransferOutcome> completion = new CompletableFuture<>();
    private final CompletableFuture<Void> quiesced = new CompletableFuture<>();

    /// @param claimsApplied whether the backend may say that bytes are applied
    MooncakeTransfer(EngineTransfer transfer, Deadline deadline, boolean claimsApplied) {
        this.claimsApplied = claimsApplied;
        this.transfer = transfer;
        this.deadline = deadline;
    }

    /// Called once, before the transfer starts.
    ///
    /// @param ended receives the outcome before the completion is completed
    void follow(Consumer<TransferOutcome> ended) {
        var _ =
                transfer.outcome()
                        .thenAccept(outcome -> {
                            TransferOutcome translated = translate(outcome);
                            try {
                                tell(ended, translated);
                            } finally { // the log may lack memory
                                completion.complete(translated);
                            }
                        });
        var _ = transfer.quiesced().thenAccept(_ -> quiesced.complete(null));
    }

    private static void tell(Consumer<TransferOutcome> ended, TransferOutcome outcome) {
        try {
            ended.accept(outcome);
        } catch (RuntimeException | Error e) { // the completion must be completed
            LoopReport.WARN.log(LOG, "the end of a transfer was not noted as a whole", e);
        }
    }

    private TransferOutcome translate(EngineOutcome outcome) {
        try {
            return translated(outcome);
        } catch (RuntimeException | Error _) { // not even a class could be loaded, perhaps
            return NO_MEMORY;
        }
    }

    private TransferOutcome translated(EngineOutcome outcome) {
        return switch (state.getAndSet(State.ENDED)) {
            case CANCELLING -> new TransferOutcome.Cancelled();
            case LOSING ->
                    new TransferOutcome.Failed(
                            new Failure(ErrorCode.PEER_LOST, "the peer was dropped"));
            case ACTIVE, ENDED ->
                    switch (outcome) {
                        case Completed(long bytes, Guarantee guarantee, _) ->
                                new TransferOutcome.Done(
                                        bytes,
                                        claimsApplied && guarantee == Guarantee.APPLIED,
                                        System.nanoTime() - submitted);
                        case Failed(Failure failure, _) -> failed(failure);
                    };
        };
    }

    private TransferOutcome failed(Failure failure) {
        return failure.code() == ErrorCode.TIMEOUT && deadline.passed()
                ? new TransferOutcome.TimedOut()
                : new TransferOutcome.Failed(failure);
    }

    /// Its peer was dropped.
    void lose() {
        if (state.compareAndSet(State.ACTIVE, State.LOSING)) {
            transfer.cancel();
        }
    }

    @Override
    public CompletionStage<TransferOutcome> completion() {
        return completion.minimalCompletionStage();
    }

    @Override
    public CompletionStage<Void> quiesced() {
        return quiesced.minimalCompletionStage();
    }

    /// As [#poll], without memory; null where it has not ended.
    @Nullable TransferOutcome endedSoFar() {
        return completion.getNow(null);
    }

    @Override
    public Optional<TransferOutcome> poll() {
        return completion.isDone() ? Optional.of(completion.join()) : Optional.empty();
    }

    /// A repeated call cancels again, since the first attempt may have run out of memory.
    @Override
    public boolean cancel() {
        boolean cancels =
                state.compareAndSet(State.ACTIVE, State.CANCELLING)
                        || state.get() == State.CANCELLING;
        if (cancels) {
            transfer.cancel();
        }
        return cancels;
    }
}
