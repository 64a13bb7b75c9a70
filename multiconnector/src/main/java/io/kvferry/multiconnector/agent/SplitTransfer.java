// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.multiconnector.agent.PieceTracker.Piece;
import io.kvferry.spi.Failure;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

/// A transfer with more descriptors or bytes than its backend accepts at once. It is posted in
/// pieces, at most [#IN_FLIGHT] at a time. The last piece carries the notification and is posted
/// after all others are done. If a piece fails, no more are posted, and the transfer completes once
/// none is in flight.
///
/// Threading: any thread, as [Transfer]. Pieces are posted on the backend's thread.
final class SplitTransfer implements Transfer {
    /// Enough to keep a backend busy while one piece ends and the next is posted; few enough that
    /// one long transfer does not fill the queue that others share.
    static final int IN_FLIGHT = 8;

    private static final Logger LOG = LoggerFactory.getLogger(SplitTransfer.class);

    private final OpenBackend slot;
    private final TransferRequest whole;
    private final List<Piece> pieces;
    private final PieceTracker book;
    private final CompletableFuture<TransferOutcome> completion = new CompletableFuture<>();
    private final CompletableFuture<Void> quiesced = new CompletableFuture<>();

    /// Number of pieces that may still touch a buffer, plus one until the transfer has an outcome.
    private final AtomicInteger unquiet = new AtomicInteger(1);

    /// Calls of [#pump] not yet handled. Only one thread posts at a time; other callers increment
    /// this counter and return.
    private final AtomicInteger calls = new AtomicInteger();

    /// Whether [#nextPiece] waits in the slot.
    private final AtomicBoolean parked = new AtomicBoolean();

    private SplitTransfer(OpenBackend slot, TransferRequest whole, List<Piece> pieces) {
        this.slot = slot;
        this.whole = whole;
        this.pieces = pieces;
        this.book =
                new PieceTracker(
                        pieces,
                        IN_FLIGHT,
                        whole.notification().isPresent(),
                        slot.capabilities()
                                .has(BackendCapabilities.Feature.PER_DESCRIPTOR_RESULTS));
    }

    /// Submits a request, in one piece if it fits. Call on the backend's thread. An exception from
    /// the first piece is rethrown; nothing was started then.
    static Transfer submit(OpenBackend slot, TransferRequest request) {
        var pieces = PieceTracker.cut(slot.capabilities(), request.local().descriptors());
        if (pieces.size() == 1) {
            return slot.backend().submit(request);
        }
        var split = new SplitTransfer(slot, request, pieces);
        int first = split.book.claim();
        split.begin(first, split.post(first));
        return split;
    }

    /// Throws nothing: the first piece is in flight, and an exception of [#submit] would say that
    /// nothing was started. What cannot be followed for want of memory is never quiesced.
    private void begin(int first, Transfer posted) {
        try {
            follow(first, posted);
            pump();
        } catch (RuntimeException | Error e) {
            LoopReport.ERROR.log(LOG, "{}: a piece cannot be followed", slot.name(), e);
        }
    }

    /// Posts what may be posted now.
    private void pump() {
        if (calls.getAndIncrement() > 0) {
            return;
        }
        try {
            int answered = 1;
            while (answered > 0) {
                while (postNext()) {
                    // until nothing is left, or enough is in flight
                }
                answered = calls.addAndGet(-answered);
            }
        } catch (RuntimeException | Error e) { // where the heap is full
            calls.set(0);
            giveUp(e);
            return;
        }
        try {
            park();
        } catch (RuntimeException | Error e) { // where the heap is full
            parked.set(false);
            giveUp(e);
        }
    }

    /// Posts no more, unless a piece is in flight: its end triggers the next post.
    private void giveUp(Throwable why) {
        LoopReport.ERROR.log(LOG, "{}: no more pieces can be posted", slot.name(), why);
        book.stuck(RunningTransfer.NO_MEMORY);
        settle();
    }

    private boolean postNext() {
        int index = book.claim();
        if (index < 0) {
            return false;
        }
        Transfer posted;
        try {
            posted = post(index);
        } catch (RuntimeException | Error e) { // the border to the backend
            if (book.refused(Failure.of(e))) {
                cancelLive();
            }
            return false;
        }
        follow(index, posted);
        return true;
    }

    /// Queues the next piece when the backend's queue is full and none of our pieces is in flight.
    private void park() {
        if (!book.starves()) {
            settle(); // a cancellation may have come since the last call
        } else if (parked.compareAndSet(false, true) && !slot.post(nextPiece, true)) {
            parked.set(false);
            book.stuck(new TransferOutcome.Failed(slot.unstarted()));
            settle();
        }
    }

    private final OwnerLoop.Post nextPiece =
            new OwnerLoop.Post() {
                @Override
                public boolean tryNow(boolean canWait) {
                    if (whole.deadline().passed()) {
                        book.stuck(new TransferOutcome.TimedOut());
                    }
                    pump();
                    if (canWait && book.starves()) {
                        return false;
                    }
                    parked.set(false);
                    park(); // it may starve again since
                    return true;
                }

                @Override
                public boolean isOver() {
                    return whole.deadline().passed() || !book.starves();
                }
            };

    private Transfer post(int index) {
        var backend = slot.backend();
        var piece = pieces.get(index);
        boolean last = index == pieces.size() - 1;
        Prepared local = part(backend, whole.local(), piece);
        try {
            Prepared remote = part(backend, whole.remote(), piece);
            try {
                return backend.submit( // a transfer holds what it needs
                        new TransferRequest(
                                whole.operation(),
                                local,
                                remote,
                                last ? whole.notification() : Optional.empty(),
                                whole.deadline(),
                                whole.tag()));
            } finally {
                slot.close(remote); // what it throws must not hide the transfer
            }
        } finally {
            slot.close(local);
        }
    }

    private static Prepared part(TransferBackend backend, Prepared all, Piece piece) {
        if (piece.length() == 0) {
            return backend.select(all, IntStream.range(piece.from(), piece.to()).toArray());
        }
        var list = all.descriptors();
        return backend.prepare(
                all.peer(),
                DescriptorList.of(
                        list.kind(),
                        list.device(piece.from()),
                        list.address(piece.from()) + piece.offset(),
                        piece.length()));
    }

    private void follow(int index, Transfer posted) {
        unquiet.incrementAndGet();
        if (book.posted(index, posted)) {
            posted.cancel();
        }
        Attached.to(posted.completion(), outcome -> ended(index, outcome));
        Attached.to(posted.quiesced(), _ -> quiet());
    }

    private void ended(int index, TransferOutcome outcome) {
        if (book.ended(index, outcome)) {
            cancelLive();
        }
        settle();
        if (!completion.isDone() && !slot.start(this::pump)) {
            book.stuck(new TransferOutcome.Failed(slot.unstarted()));
            settle();
        }
    }

    private void settle() {
        book.outcome()
                .ifPresent(outcome -> {
                    completion.complete(outcome);
                    quiet();
                });
    }

    private void quiet() {
        if (unquiet.decrementAndGet() == 0) {
            quiesced.complete(null);
        }
    }

    private boolean cancelLive() {
        boolean any = false;
        for (var transfer : book.live()) {
            any |= transfer.cancel();
        }
        return any;
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

    /// Drops the pieces that were not posted. A piece that cannot be cancelled runs to completion.
    @Override
    public boolean cancel() {
        return book.ask() && (cancelLive() | book.promised());
    }
}
