// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.gpu.LinkMessage.Piece;
import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.GrantProof;
import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// A transfer that leaves over a link, batch by batch. Its blocks are read only while a batch is
/// gathered, and it ends only when none is.
///
/// Threading: confined to the loop, except what [DataPlane.Sending] says, and where a method says
/// otherwise.
final class NcclSending implements DataPlane.Sending {
    private final Gpu gpu;
    private final OpenTransfers transfers;
    private @Nullable LinkSender by;
    private final GrantProof proof;
    private final Placement source;
    private final TransferEnd end;
    private final Consumer<Outcome> told;
    private volatile @Nullable Future<?> limit;
    private long transfer = -1;
    private boolean proven;
    private int available;
    private boolean committed;
    private boolean endSaid;

    /// The next byte to gather.
    private int part;

    private long offset;

    /// Bytes of each part that have left.
    private final long[] left;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private int sent;
    private boolean over;

    NcclSending(
            Gpu gpu,
            OpenTransfers transfers,
            Grant grant,
            Placement source,
            Consumer<Outcome> end) {
        this.gpu = gpu;
        this.transfers = transfers;
        this.proof = new GrantProof(grant);
        this.source = source;
        this.told = end;
        this.end = new TransferEnd(this::tell);
        this.left = new long[source.parts().size()];
        countSent();
    }

    GrantProof proof() {
        return proof;
    }

    Placement source() {
        return source;
    }

    void limit(Future<?> timer) {
        limit = timer;
        if (end.finished()) {
            timer.cancel(false);
        }
    }

    void leaveBy(LinkSender link) {
        by = link;
    }

    private void advance() {
        if (by != null) {
            by.advance();
        }
    }

    /// The number that the link gave it; -1 while the receiver has not heard of it.
    long transfer() {
        return transfer;
    }

    void opened(long number) {
        transfer = number;
    }

    /// The receiver has proven that it knows the grant; blocks may be announced and sent to it.
    void proven() {
        proven = true;
    }

    boolean ended() {
        return end.finished();
    }

    /// What comes next and is available, at most so many bytes; empty when there is nothing, or
    /// while the receiver has not proven that it knows the grant.
    List<Piece> next(long most) {
        var pieces = new ArrayList<Piece>();
        long room = most;
        while (proven && room > 0 && part < available && pieces.size() < LinkMessage.MOST_PIECES) {
            long bytes = Math.min(room, source.parts().get(part).bytes() - offset);
            if (bytes > 0) {
                pieces.add(new Piece(part, offset, bytes, 0));
                offset += bytes;
                room -= bytes;
            }
            if (offset == source.parts().get(part).bytes()) {
                part++;
                offset = 0;
            }
        }
        return pieces;
    }

    /// @return false when it has ended: its blocks are not to be read any more
    boolean beginGather() {
        return end.beginCopy();
    }

    /// On the thread that gathered.
    void endGather() {
        end.endCopy();
    }

    /// These have left.
    void left(List<Piece> pieces) {
        for (var piece : pieces) {
            left[piece.part()] += piece.bytes();
        }
        countSent();
    }

    private void countSent() {
        lock.lock();
        try {
            while (sent < left.length && left[sent] == source.parts().get(sent).bytes()) {
                sent++;
            }
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /// Whether all has left and the receiver knows that this is all.
    boolean allSent() {
        return endSaid;
    }

    /// Whether to send the end of the transfer now. True only once.
    boolean takeEnd() {
        if (!committed || endSaid || !proven || sent < left.length) {
            return false;
        }
        endSaid = true;
        return true;
    }

    /// Ends it, now or when the gathering has ended that runs. The first outcome counts. Any
    /// thread.
    void finish(Outcome how) {
        var _ = end.finish(how);
    }

    private void tell(Outcome how) {
        lock.lock();
        try {
            over = true;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        var timer = limit;
        if (timer != null) {
            timer.cancel(false);
        }
        transfers.forget(this);
        told.accept(how);
    }

    void giveUp(Failure why) {
        if (end.finished()) {
            return;
        }
        if (by != null) {
            by.end(this, new Outcome.Failed(why));
        } else {
            finish(new Outcome.Failed(why));
        }
    }

    @Override
    public void available(int parts) {
        gpu.post(() -> {
            available = Math.max(available, Math.min(parts, left.length));
            advance();
        });
    }

    @Override
    public boolean awaitSent(int parts, Deadline deadline) {
        lock.lock();
        try {
            while (sent < parts && !over) {
                long nanos = deadline.remainingNanos();
                if (nanos <= 0) {
                    return false;
                }
                var _ = changed.awaitNanos(nanos);
            }
            return sent >= parts;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void commit() {
        gpu.post(() -> {
            available = left.length;
            committed = true;
            advance();
        });
    }

    @Override
    public void abort() {
        gpu.post(() -> giveUp(new Failure(ErrorCode.CANCELLED, "the transfer was given up")));
    }
}
