// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import io.kvferry.backend.mooncake.te.internal.memory.Slice;
import io.kvferry.backend.mooncake.te.internal.samehost.SharedRegions.Mapped;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

/// Copies slices between the memory of two processes of this host, a bounded number of bytes at a
/// time: each call is announced, and each piece of it checked while the announcement stands, see
/// [ControlPage]. The end of a region, a grant or a transfer waits for one call.
///
/// Threading: one thread.
public interface SameHostCopier {
    /// The transfer that [#carry] is part of.
    interface Job {
        boolean write();

        Mapped[] table();

        /// Slot and token of the capability; slot -1 for none.
        int grant();

        long token();

        /// Called before each call.
        ///
        /// @throws KvFerryException when the transfer is to end
        void requireGoingOn();

        void announce(int mark);

        /// Something was copied.
        void touched();

        void failedAt(int range);
    }

    /// False when this way has closed meanwhile; some of the slice may have been copied.
    ///
    /// @throws KvFerryException [ErrorCode#PEER_LOST], [ErrorCode#LEASE_EXPIRED],
    ///   [ErrorCode#PEER_REFUSED] for memory that is not registered any more, [ErrorCode#IO]
    boolean carry(Job job, int mark, Slice slice);

    /// Begins a call.
    static void begin(Job job, int mark, ControlPage control) {
        job.requireGoingOn();
        job.announce(mark);
        if (!control.isOpen()) {
            throw new KvFerryException(ErrorCode.PEER_LOST, "the peer's engine was closed");
        }
    }

    /// The region that a piece of the call that has begun lies in.
    ///
    /// @param last the region of the piece before it in the same call
    static Mapped check(
            Job job,
            ControlPage control,
            @Nullable Mapped last,
            int range,
            long remote,
            long bytes) {
        Mapped region = SharedRegions.find(job.table(), remote, bytes);
        if (region == null
                || region != last && control.regionNumber(region.slot()) != region.number()) {
            job.failedAt(range);
            throw new KvFerryException(
                    ErrorCode.PEER_REFUSED,
                    "the memory at 0x%x is not registered any more".formatted(remote));
        }
        if (job.grant() >= 0 && !control.grantCovers(job.grant(), job.token(), remote, bytes)) {
            job.failedAt(range);
            throw SharedPeer.expired(remote, bytes);
        }
        return region;
    }
}
