// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.wire.CacheShape;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

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
    void refuse(SideChannel.Asker asker, Failure failure) {
        asker.answer(new PeerMessage.Refused(epoch, failure).encode());
    }
}
