// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/// The pieces of one transfer: which is next, which are in flight, and what the whole comes to.
///
/// Threading: any thread; calls out to nobody.
final class PieceTracker {
    /// Ranges `from` (inclusive) to `to` (exclusive) of both lists; or, where `length` is not 0,
    /// that many bytes from `offset` of the single range `from`.
    record Piece(int from, int to, long offset, long length) {
        private Piece(int from, int to) {
            this(from, to, 0, 0);
        }
    }

    /// Cuts a list into what a backend takes at once: as few pieces as its limits allow, one if the
    /// list fits.
    static List<Piece> cut(BackendCapabilities can, DescriptorList list) {
        if (list.count() <= can.maxDescriptors() && list.bytes() <= can.maxBytes()) {
            return List.of(new Piece(0, list.count()));
        }
        long most = Math.max(can.alignment(), can.maxBytes() & -(long) can.alignment());
        var pieces = new ArrayList<Piece>();
        int from = 0;
        long size = 0;
        for (int i = 0; i < list.count(); i++) {
            long length = list.length(i);
            if (i > from && (i - from == can.maxDescriptors() || size + length > most)) {
                pieces.add(new Piece(from, i));
                from = i;
                size = 0;
            }
            size += length;
            if (length > most) { // it is alone: what came before was closed off
                for (long at = 0; at < length; at += most) {
                    pieces.add(new Piece(i, i + 1, at, Math.min(most, length - at)));
                }
                from = i + 1;
                size = 0;
            }
        }
        if (from < list.count()) {
            pieces.add(new Piece(from, list.count()));
        }
        return pieces;
    }

    private final ReentrantLock lock = new ReentrantLock();
    private final List<Piece> pieces;

    /// At most so many in flight.
    private final int most;

    /// Whether the last piece carries the notification and must therefore wait for all others.
    private final boolean lastAnnounces;

    private final boolean perDescriptor;
    private final long started = System.nanoTime();
    private final @Nullable Transfer[] live;

    /// Per range, how many of its pieces have not moved.
    private final int[] missing;

    private long bytes;
    private boolean applied = true;

    /// The next piece to post.
    private int next;

    /// Pieces that were claimed and have not ended.
    private int flying;

    /// The first outcome that keeps the whole from being done; nothing is posted after it.
    private @Nullable TransferOutcome obstacle;

    /// The caller wants it to stop, and whether it was told that it will.
    private boolean asked;

    private boolean promised;
    private boolean over;

    PieceTracker(List<Piece> pieces, int most, boolean lastAnnounces, boolean perDescriptor) {
        this.pieces = pieces;
        this.most = most;
        this.lastAnnounces = lastAnnounces;
        this.perDescriptor = perDescriptor;
        this.live = new Transfer[pieces.size()];
        this.missing = new int[pieces.getLast().to()];
        for (var piece : pieces) {
            for (int range = piece.from(); range < piece.to(); range++) {
                missing[range]++;
            }
        }
    }

    private <T> T locked(Supplier<T> body) {
        lock.lock();
        try {
            return body.get();
        } finally {
            lock.unlock();
        }
    }

    /// The piece to post now, or -1. The caller must then call [#posted] or [#refused].
    int claim() {
        return locked(() -> {
            boolean announces = lastAnnounces && next == pieces.size() - 1;
            if (next == pieces.size()
                    || obstacle != null
                    || promised
                    || flying == most
                    || (announces && flying > 0)) {
                return -1;
            }
            flying++;
            return next++;
        });
    }

    /// A claimed piece is in flight.
    ///
    /// @return whether it is to be cancelled at once
    boolean posted(int index, Transfer transfer) {
        return locked(() -> {
            live[index] = transfer;
            return asked || obstacle != null;
        });
    }

    /// The backend rejected the piece claimed last. If its queue was full, the piece can be claimed
    /// again; any other failure ends the transfer.
    ///
    /// @return whether the pieces in flight must be cancelled
    boolean refused(Failure failure) {
        lock.lock(); // without a lambda: it must count also where the heap is full
        try {
            flying--;
            if (failure.code() == ErrorCode.BACKPRESSURE) {
                next--;
                return false;
            }
            return stoppedBy(new TransferOutcome.Failed(failure));
        } finally {
            lock.unlock();
        }
    }

    /// Whether pieces remain but none is in flight, so that no completion will trigger the next
    /// post.
    boolean starves() {
        return locked(() -> flying == 0 && obstacle == null && !promised && next < pieces.size());
    }

    /// Ends the transfer with this outcome because no more pieces can be posted. Ignored while a
    /// piece is in flight: its completion triggers the next post.
    void stuck(TransferOutcome why) {
        lock.lock(); // without a lambda, as in `refused`
        try {
            if (flying == 0) {
                stoppedBy(why);
            }
        } finally {
            lock.unlock();
        }
    }

    /// A piece ended.
    ///
    /// @return whether the others are to be cancelled
    boolean ended(int index, TransferOutcome outcome) {
        var piece = pieces.get(index);
        return locked(() -> {
            flying--;
            live[index] = null;
            return switch (outcome) {
                case TransferOutcome.Done done -> {
                    bytes += done.bytes();
                    applied &= done.applied();
                    for (int range = piece.from(); range < piece.to(); range++) {
                        missing[range]--;
                    }
                    yield false;
                }
                case TransferOutcome.Failed(_, boolean[] known) -> {
                    int told = Math.min(known.length, piece.to() - piece.from());
                    for (int i = 0; i < told; i++) {
                        missing[piece.from() + i] -= known[i] ? 1 : 0;
                    }
                    yield stoppedBy(outcome);
                }
                case TransferOutcome.Cancelled _ -> {
                    promised |= asked;
                    yield stoppedBy(outcome);
                }
                case TransferOutcome.TimedOut _ -> stoppedBy(outcome);
            };
        });
    }

    private boolean stoppedBy(TransferOutcome outcome) {
        boolean first = obstacle == null;
        obstacle = first ? outcome : obstacle;
        return first;
    }

    /// The outcome of the whole, once: when nothing is in flight and nothing will be.
    Optional<TransferOutcome> outcome() {
        return locked(() -> {
            boolean done = obstacle != null || promised || next == pieces.size();
            if (over || !done || flying > 0) {
                return Optional.empty();
            }
            over = true;
            return Optional.of(total());
        });
    }

    private TransferOutcome total() {
        if (promised) {
            return new TransferOutcome.Cancelled();
        }
        if (obstacle == null) {
            return new TransferOutcome.Done(bytes, applied, System.nanoTime() - started);
        }
        return perDescriptor && obstacle instanceof TransferOutcome.Failed(var failure, _)
                ? new TransferOutcome.Failed(failure, moved())
                : obstacle;
    }

    private boolean[] moved() {
        var moved = new boolean[missing.length];
        for (int range = 0; range < moved.length; range++) {
            moved[range] = missing[range] == 0;
        }
        return moved;
    }

    /// Requests cancellation. Pieces not posted yet are dropped.
    ///
    /// @return false when it is too late: another outcome is already certain
    boolean ask() {
        return locked(() -> {
            if (over || (obstacle != null && !promised)) {
                return false;
            }
            asked = true;
            boolean posting = flying > Arrays.stream(live).filter(Objects::nonNull).count();
            promised |= posting || next < pieces.size();
            return true;
        });
    }

    /// Whether the whole will end as Cancelled.
    boolean promised() {
        return locked(() -> promised);
    }

    /// The transfers in flight.
    List<Transfer> live() {
        return locked(() -> Arrays.stream(live).filter(Objects::nonNull).toList());
    }
}
