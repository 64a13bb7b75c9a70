// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import io.kvferry.backend.mooncake.te.internal.memory.Slice;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedRegions.Mapped;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.crossmemory.IoVectors;
import io.kvferry.toolkit.crossmemory.PeerProcess;
import io.kvferry.toolkit.crossmemory.ProcessVm;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;

/// Copies slices of transfers between this process's memory and a peer's, a few MiB per system
/// call. Before each call the copy is announced again, and region and capability are checked. So
/// the owner waits for at most one call, and a region or capability that it closes is not used by
/// the next.
///
/// Threading: the thread that holds the mark.
public final class CmaCopier implements SameHostCopier {
    /// Most bytes that one call copies.
    private static final long CALL_BYTES = 4 << 20;

    private final ControlPage control;
    private final PeerProcess process;
    private final PeerProcess.Hand hand;
    private final IoVectors pieces = new IoVectors(Arena.ofAuto());
    private final Slice.Cursor cursor = new Slice.Cursor();

    /// The rest of the cursor's piece: its offset there, and its length.
    private long restOffset;

    private long rest;

    CmaCopier(ControlPage control, PeerProcess process) {
        this.control = control;
        this.process = process;
        this.hand = process.newHand();
    }

    @Override
    public boolean carry(Job job, int mark, Slice slice) {
        cursor.start(slice);
        rest = 0;
        while (rest > 0 || cursor.hasNext()) {
            SameHostCopier.begin(job, mark, control);
            gather(job);
            long bytes = pieces.bytes();
            int error = hand.copy(job.write(), pieces);
            if (pieces.bytes() < bytes) {
                job.touched();
            }
            if (error == -ProcessVm.EPERM) {
                process.forbid();
                return false;
            }
            if (error != 0) {
                throw failed(job, error);
            }
        }
        return true;
    }

    /// Collects the pieces of the next call, and checks each.
    private void gather(Job job) {
        pieces.clear();
        @Nullable Mapped last = null;
        while (!pieces.isFull() && pieces.bytes() < CALL_BYTES) {
            if (rest == 0) {
                if (!cursor.next()) {
                    return;
                }
                restOffset = 0;
                rest = cursor.bytes();
            }
            long part = Math.min(rest, CALL_BYTES - pieces.bytes());
            long remote = cursor.remoteAddress() + restOffset;
            last = SameHostCopier.check(job, control, last, cursor.range(), remote, part);
            pieces.add(cursor.range(), cursor.localAddress() + restOffset, remote, part);
            restOffset += part;
            rest -= part;
        }
    }

    private KvFerryException failed(Job job, int error) {
        job.failedAt(pieces.range());
        String what =
                "range %d: the kernel stopped at 0x%x of the peer, "
                        .formatted(pieces.range(), pieces.remoteAddress());
        return switch (-error) {
            case ProcessVm.EFAULT ->
                    new KvFerryException(
                            ErrorCode.IO,
                            what + "memory that is registered but not accessible (EFAULT)");
            case ProcessVm.ENOMEM ->
                    new KvFerryException(ErrorCode.NO_MEMORY, what + "out of memory (ENOMEM)");
            default -> new KvFerryException(ErrorCode.IO, what + "errno " + -error);
        };
    }
}
