// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.wire.CacheShape;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.util.concurrent.locks.LockSupport;

/// What both directions of one rank share. The [P2pWorker] owns it.
///
/// @param loop owns the state of both services
/// @param rank number of the rank
/// @param epoch of this engine
record RankParts(
        SerialLoop loop,
        SideChannel channel,
        DataPlane plane,
        CacheBlocks blocks,
        CacheShape shape,
        int rank,
        long epoch,
        P2pSettings settings,
        Outbox outbox) {
    /// Of work that needs memory: five seconds in all.
    private static final int MOST_ATTEMPTS = 500;

    private static final long PAUSE_NANOS = 10_000_000;

    /// Runs work on the loop, and repeats it while there is no memory for it. For work that is not
    /// requested again, and that may run twice.
    void postUntilDone(Runnable work) {
        loop.post(() -> {
            for (int attempt = 1; ; attempt++) {
                try {
                    work.run();
                    return;
                } catch (OutOfMemoryError e) {
                    if (attempt == MOST_ATTEMPTS) {
                        throw e;
                    }
                    LockSupport.parkNanos(PAUSE_NANOS);
                }
            }
        });
    }

    void refuse(SideChannel.Asker asker, Failure failure) {
        asker.answer(new PeerMessage.Refused(epoch, failure).encode());
    }
}
