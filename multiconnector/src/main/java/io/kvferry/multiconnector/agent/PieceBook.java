// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.multiconnector.agent.Pieces.Piece;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;

import org.jspecify.annotations.Nullable;

import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/// The pieces of one transfer: which is next, which are in flight, and what the whole comes to.
///
/// Threading: any thread; calls out to nobody.
final class PieceBook {
    private final ReentrantLock lock = new ReentrantLock();
    private final List<Piece> pieces;

    /// At most so many in flight.
    private final int most;

    /// The last piece waits for all others, since it announces them.
    private final boolean lastAnnounces;

    private final boolean perDescriptor;
    private final long started = System.nanoTime();
    private final @Nullable Transfer[] live;
    private final boolean[] moved;
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

    PieceBook(List<Piece> pieces, int most, boolean lastAnnounces, boolean perDescriptor) {
        this.pieces = pieces;
        this.most = most;
        this.lastAnnounces = lastAnnounces;
        this.perDescriptor = perDescriptor;
        this.live = new Transfer[pieces.size()];
        this.moved = new boolean[pieces.getLast().to()];
    }

    private <T> T locked(Supplier<T> body) {
        lock.lock();
        try {
            return body.get();
        } finally {
            lock.unlock();
        }
    }

    /// The piece to post now, or -1. Whoever claims one calls [#posted] or [#refused].
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

    /// The backend did not take the piece claimed last. While others are in flight, a full queue is
    /// no reason to give up: the end of one is the next chance.
    ///
    /// @return whether the others are to be cancelled
    boolean refused(Failure failure) {
        return locked(() -> {
            flying--;
            if (failure.code() == ErrorCode.BACKPRESSURE && flying > 0) {
                next--;
                return false;
            }
            return stoppedBy(new TransferOutcome.Failed(failure));
        });
    }

    /// Nobody will post any more. Of no matter while a piece is in flight, whose end is the next
    /// chance.
    void stuck(Failure failure) {
        locked(() -> flying == 0 && stoppedBy(new TransferOutcome.Failed(failure)));
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
                    Arrays.fill(moved, piece.from(), piece.to(), true);
                    yield false;
                }
                case TransferOutcome.Failed(_, boolean[] known) -> {
                    int told = Math.min(known.length, piece.to() - piece.from());
                    System.arraycopy(known, 0, moved, piece.from(), told);
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
                ? new TransferOutcome.Failed(failure, moved.clone())
                : obstacle;
    }

    /// The caller wants an end. What is not posted yet never will be.
    ///
    /// @return false when that comes too late: another end is certain
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

    /// What is in flight now.
    List<Transfer> live() {
        return locked(() -> Arrays.stream(live).filter(Objects::nonNull).toList());
    }
}
