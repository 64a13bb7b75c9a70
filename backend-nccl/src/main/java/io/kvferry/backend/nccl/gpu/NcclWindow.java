// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.gpu.LinkMessage.Piece;
import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.GrantProof;
import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;

import org.jspecify.annotations.Nullable;

import java.util.List;
import java.util.concurrent.Future;
import java.util.function.Consumer;

/// A window of the `nccl` plane. Its blocks are written from a staging buffer, by a copy that the
/// link starts only while the window is open, and it ends only when none runs.
///
/// Threading: confined to the loop, except [#withdraw] and [#withdrawUnused], and where a method
/// says otherwise.
final class NcclWindow implements DataPlane.Window {
    private final Gpu gpu;
    private final OpenTransfers transfers;
    private final GrantProof proof;
    private final Placement target;
    private final TransferEnd end;
    private final Consumer<Outcome> told;
    private final long[] received;
    private @Nullable LinkReceiver by;
    private @Nullable Failure givenUp;
    private volatile @Nullable Future<?> limit;
    private long transfer;
    private long total;
    private long announced = -1;
    private boolean copying;

    NcclWindow(
            Gpu gpu,
            OpenTransfers transfers,
            Grant grant,
            Placement target,
            Consumer<Outcome> end) {
        this.gpu = gpu;
        this.transfers = transfers;
        this.proof = new GrantProof(grant);
        this.target = target;
        this.told = end;
        this.end = new TransferEnd(this::tell);
        this.received = new long[target.parts().size()];
    }

    GrantProof proof() {
        return proof;
    }

    Placement target() {
        return target;
    }

    long transfer() {
        return transfer;
    }

    void limit(Future<?> timer) {
        limit = timer;
        if (end.finished()) {
            timer.cancel(false);
        }
    }

    /// A sender has proven that it knows the grant.
    void adopt(LinkReceiver link, long number) {
        by = link;
        transfer = number;
    }

    /// Whether these pieces are the next ones of their parts.
    ///
    /// @return why not; null when they are
    @Nullable Failure misfit(List<Piece> pieces) {
        var next = received.clone();
        for (var piece : pieces) {
            boolean fits =
                    piece.part() < next.length
                            && piece.from() == next[piece.part()]
                            && piece.bytes()
                                    <= target.parts().get(piece.part()).bytes() - piece.from();
            if (!fits) {
                return new Failure(
                        ErrorCode.PROTOCOL,
                        "piece of part %d, %d bytes from %d, fits no place of the window"
                                .formatted(piece.part(), piece.bytes(), piece.from()));
            }
            next[piece.part()] += piece.bytes();
        }
        return null;
    }

    boolean open() {
        return !end.finished() && givenUp == null;
    }

    /// @return false when it has ended: its blocks are not to be written any more
    boolean beginCopy() {
        copying = end.beginCopy();
        return copying;
    }

    /// On the thread that copied.
    void endCopy() {
        end.endCopy();
    }

    /// Called on the loop when a copy has ended. `pieces` are in place; empty if the copy failed.
    void copied(List<Piece> pieces) {
        copying = false;
        for (var piece : pieces) {
            received[piece.part()] += piece.bytes();
            total += piece.bytes();
        }
    }

    /// The sender has said that this was all.
    void announce(long bytes) {
        announced = bytes;
    }

    boolean announced() {
        return announced >= 0;
    }

    /// What there is to tell once all that was announced is there.
    Outcome result() {
        for (int part = 0; part < received.length; part++) {
            if (received[part] != target.parts().get(part).bytes()) {
                return failed(
                        "the end came after %d of %d bytes of part %d"
                                .formatted(received[part], target.parts().get(part).bytes(), part));
            }
        }
        return total == announced
                ? new Outcome.Done(total)
                : failed("the end says " + announced + " bytes, there were " + total);
    }

    private static Outcome failed(String what) {
        return new Outcome.Failed(new Failure(ErrorCode.PROTOCOL, what));
    }

    @Nullable Failure givenUp() {
        return givenUp;
    }

    boolean copying() {
        return copying;
    }

    /// Ends it now, or when the copy has ended that runs.
    void giveUp(Failure why) {
        if (end.finished() || givenUp != null) {
            return;
        }
        givenUp = why;
        if (copying) {
            return; // the link ends it
        }
        if (by != null) {
            by.endWindow(this, new Outcome.Failed(why));
        } else {
            finish(new Outcome.Failed(why));
        }
    }

    /// Ends it, now or when the copy has ended that runs. The first outcome counts. Any thread.
    void finish(Outcome outcome) {
        var _ = end.finish(outcome);
    }

    private void tell(Outcome outcome) {
        var timer = limit;
        if (timer != null) {
            timer.cancel(false);
        }
        transfers.forget(this);
        told.accept(outcome);
    }

    @Override
    public void withdraw() {
        gpu.post(() -> giveUp(new Failure(ErrorCode.CANCELLED, "the window was withdrawn")));
    }

    @Override
    public void withdrawUnused() {
        gpu.post(() -> {
            if (by == null) {
                giveUp(new Failure(ErrorCode.TIMEOUT, "no sender came in time"));
            }
        });
    }
}
