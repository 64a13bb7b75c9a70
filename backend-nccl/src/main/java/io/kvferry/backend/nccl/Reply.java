// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.util.function.Consumer;

/// Receives the one answer to a request. An invalid answer and the loss of the peer are reported as
/// refusals.
///
/// @param taker called once, on a thread of the side channel
record Reply(Consumer<PeerMessage> taker) implements SideChannel.Answers {
    /// Preallocated, for use when memory has run out.
    private static final PeerMessage NOT_HEARD =
            new PeerMessage.Refused(
                    PeerMessage.ANY_EPOCH,
                    new Failure(ErrorCode.NO_MEMORY, "no memory to hear the peer"));

    @Override
    public SideChannel.Reading onAnswer(byte[] message) {
        try {
            taker.accept(PeerMessage.decode(message));
            return SideChannel.Reading.DONE;
        } catch (KvFerryException e) {
            taker.accept(new PeerMessage.Refused(PeerMessage.ANY_EPOCH, protocol(e)));
            return SideChannel.Reading.GIVE_UP;
        }
    }

    private static Failure protocol(KvFerryException e) {
        return new Failure(
                e.code() == ErrorCode.INCOMPATIBLE ? e.code() : ErrorCode.PROTOCOL,
                "answer of the peer: " + e.getMessage());
    }

    /// Reported with [PeerMessage#ANY_EPOCH], which distinguishes a lost peer from one that
    /// refused.
    @Override
    public void onLost(Failure failure) {
        taker.accept(lost(failure));
    }

    private static PeerMessage lost(Failure failure) {
        try {
            return new PeerMessage.Refused(PeerMessage.ANY_EPOCH, failure);
        } catch (OutOfMemoryError _) {
            return NOT_HEARD;
        }
    }
}
