// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.transfer.Capabilities;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.stream.IntStream;

/// A transfer of more descriptors or bytes than its backend takes at once, posted piece after
/// piece. The notification goes with the last piece. Any piece that fails ends the whole.
///
/// Threading: any thread, as [Transfer].
final class SplitTransfer implements Transfer {
    /// Ranges `from` (inclusive) to `to` (exclusive) of both lists.
    private record Piece(int from, int to) {
        int[] indices() {
            return IntStream.range(from, to).toArray();
        }
    }

    private final BackendSlot slot;
    private final TransferRequest whole;
    private final List<Piece> pieces;
    private final CompletableFuture<TransferOutcome> completion = new CompletableFuture<>();
    private final CompletableFuture<Void> quiesced = new CompletableFuture<>();
    private final long started = System.nanoTime();
    private volatile @Nullable Transfer current;
    private volatile boolean cancelled;
    private long bytes;
    private boolean applied = true;

    private SplitTransfer(BackendSlot slot, TransferRequest whole, List<Piece> pieces) {
        this.slot = slot;
        this.whole = whole;
        this.pieces = pieces;
    }

    /// Posts a request, in one piece if it fits. Call it on the backend's thread.
    static Transfer submit(BackendSlot slot, TransferRequest request) {
        var list = request.local().descriptors();
        if (fits(slot.capabilities(), list)) {
            return slot.backend().submit(request);
        }
        var split = new SplitTransfer(slot, request, pieces(slot.capabilities(), list));
        split.post(0); // what the backend throws at the first piece is thrown here: nothing was
        // started
        return split;
    }

    private static boolean fits(Capabilities can, DescriptorList list) {
        return list.count() <= can.maxDescriptors() && list.bytes() <= can.maxBytes();
    }

    private static List<Piece> pieces(Capabilities can, DescriptorList list) {
        var pieces = new ArrayList<Piece>();
        int from = 0;
        long size = 0;
        for (int i = 0; i < list.count(); i++) {
            long length = list.length(i);
            if (i > from && (i - from == can.maxDescriptors() || size + length > can.maxBytes())) {
                pieces.add(new Piece(from, i));
                from = i;
                size = 0;
            }
            size += length;
        }
        pieces.add(new Piece(from, list.count()));
        return pieces;
    }

    private void post(int index) {
        var piece = pieces.get(index);
        boolean last = index == pieces.size() - 1;
        TransferBackend backend = slot.backend();
        var local = backend.select(whole.local(), piece.indices());
        Prepared remote;
        Transfer posted;
        try {
            remote = backend.select(whole.remote(), piece.indices());
            posted =
                    backend.submit(
                            new TransferRequest(
                                    whole.operation(),
                                    local,
                                    remote,
                                    last ? whole.notification() : Optional.empty(),
                                    whole.deadline(),
                                    whole.tag()));
        } catch (RuntimeException e) {
            local.close();
            throw e;
        }
        local.close(); // a transfer holds what it needs
        remote.close();
        current = posted;
        if (cancelled) {
            posted.cancel();
        }
        posted.completion().thenAccept(outcome -> ended(index, posted, outcome));
    }

    private void ended(int index, Transfer posted, TransferOutcome outcome) {
        if (!(outcome instanceof TransferOutcome.Done done)) {
            complete(outcome, posted.quiesced());
            return;
        }
        bytes += done.bytes();
        applied &= done.applied();
        if (index == pieces.size() - 1) {
            complete(
                    new TransferOutcome.Done(bytes, applied, System.nanoTime() - started),
                    posted.quiesced());
            return;
        }
        if (cancelled) {
            complete(new TransferOutcome.Cancelled(), posted.quiesced());
            return;
        }
        boolean accepted =
                slot.start(() -> {
                    try {
                        post(index + 1);
                    } catch (RuntimeException e) { // the border to the backend
                        complete(new TransferOutcome.Failed(Failure.of(e)), posted.quiesced());
                    }
                });
        if (!accepted) {
            var full =
                    new Failure(
                            ErrorCode.BACKPRESSURE,
                            slot.name() + ": its loop has no room for the next piece");
            complete(new TransferOutcome.Failed(full), posted.quiesced());
        }
    }

    private void complete(TransferOutcome outcome, CompletionStage<Void> quiet) {
        completion.complete(outcome);
        quiet.thenRun(() -> quiesced.complete(null));
    }

    @Override
    public long id() {
        var piece = current;
        return piece == null ? 0 : piece.id();
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
        return Optional.ofNullable(completion.getNow(null));
    }

    @Override
    public boolean cancel() {
        if (completion.isDone()) {
            return false;
        }
        cancelled = true;
        var piece = current;
        // A piece that cannot be stopped runs to its end; no other follows it.
        return piece == null || piece.cancel() || !completion.isDone();
    }
}
