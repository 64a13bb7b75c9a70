// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.copy;

import io.kvferry.spi.Failure;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import java.lang.foreign.MemorySegment;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicBoolean;

/// A transfer in the queue of its backend, and how far it is.
///
/// Threading: what [Transfer] has, from any thread; the rest on the backend's thread.
final class CopyTransfer implements Transfer {
    private final TransferRequest request;
    private final DescriptorList from;
    private final DescriptorList to;
    private final long start = System.nanoTime();
    private final AtomicBoolean cancelled = new AtomicBoolean();
    private final CompletableFuture<TransferOutcome> completion = new CompletableFuture<>();
    private final CompletableFuture<Void> quiesced = new CompletableFuture<>();
    private int range;
    private long moved;

    CopyTransfer(TransferRequest request) {
        this.request = request;
        boolean write = request.operation() == Operation.WRITE;
        from = (write ? request.local() : request.remote()).descriptors();
        to = (write ? request.remote() : request.local()).descriptors();
    }

    boolean isWhole() {
        return range == from.count();
    }

    /// Address of what is copied next, and where it goes.
    long source() {
        return from.address(range) + moved;
    }

    long target() {
        return to.address(range) + moved;
    }

    /// Bytes left of this range.
    long left() {
        return from.length(range) - moved;
    }

    void copy(MemoryRange source, MemoryRange target, long most) {
        long bytes = Math.min(most, left());
        var read = source.hostSegment();
        var written = target.hostSegment();
        MemorySegment.copy(
                read, source() - read.address(), written, target() - written.address(), bytes);
        moved += bytes;
        if (left() == 0) {
            range++;
            moved = 0;
        }
    }

    /// Ends a transfer that was cancelled or is late.
    boolean endedEarly() {
        if (cancelled.get() || request.deadline().passed()) {
            end(new TransferOutcome.TimedOut());
        }
        return completion.isDone();
    }

    boolean endIfWhole() {
        if (isWhole()) {
            end(new TransferOutcome.Done(from.bytes(), true, System.nanoTime() - start));
        }
        return completion.isDone();
    }

    void fail(Failure failure) {
        end(new TransferOutcome.Failed(failure));
    }

    /// An accepted cancellation is the outcome, whatever happened meanwhile. Only the backend's
    /// thread touches memory, and it is done with it, so completed and quiesced coincide here.
    private void end(TransferOutcome outcome) {
        completion.complete(
                cancelled.compareAndSet(false, true) ? outcome : new TransferOutcome.Cancelled());
        quiesced.complete(null);
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
        return !completion.isDone() && cancelled.compareAndSet(false, true);
    }
}
