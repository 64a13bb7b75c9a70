// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.wire;

import io.kvferry.toolkit.zmtp.SideChannel;

import java.util.List;
import java.util.Map;
import java.util.Objects;

/// A prefiller's answer to a [XferMetadata]; one exchange has any number of CONTINUE answers and
/// ends with another.
///
/// @param okReqs decoder request ids whose blocks are written
/// @param errReqs decoder request ids that failed
/// @param errMsg free text, empty for none
/// @param layoutId echo of the request's layout id; unsigned, 0 for none
/// @param offers by decoder request id: where a decoder that reads finds its blocks; opaque here
public record XferResponse(
        Status status,
        List<String> okReqs,
        List<String> errReqs,
        String errMsg,
        long layoutId,
        Map<String, byte[]> offers) {
    /// The place of an answer in its exchange.
    public enum Status {
        FINISH(0),
        CONTINUE(1),
        ERROR(2),
        LAYOUT_MISS(3);

        private final int wire;

        Status(int wire) {
            this.wire = wire;
        }

        public int wire() {
            return wire;
        }

        /// Whether the exchange goes on. The connection serves another one only after its proper
        /// end.
        public SideChannel.Reading reading() {
            return switch (this) {
                case CONTINUE -> SideChannel.Reading.MORE;
                case FINISH -> SideChannel.Reading.DONE;
                case ERROR, LAYOUT_MISS -> SideChannel.Reading.GIVE_UP;
            };
        }
    }

    public XferResponse {
        Objects.requireNonNull(status, "status");
        Objects.requireNonNull(errMsg, "errMsg");
        okReqs = List.copyOf(okReqs);
        errReqs = List.copyOf(errReqs);
        offers = Map.copyOf(offers);
    }

    /// Without offers.
    public XferResponse(
            Status status,
            List<String> okReqs,
            List<String> errReqs,
            String errMsg,
            long layoutId) {
        this(status, okReqs, errReqs, errMsg, layoutId, Map.of());
    }

    /// The whole exchange failed.
    public static XferResponse error(String message) {
        return new XferResponse(Status.ERROR, List.of(), List.of(), message, 0);
    }

    /// The layout has to be sent again.
    public static XferResponse layoutMiss(long layoutId, String peer) {
        var text =
                "Mooncake KV layout 0x"
                        + Long.toHexString(layoutId)
                        + " from "
                        + peer
                        + " is not cached.";
        return new XferResponse(Status.LAYOUT_MISS, List.of(), List.of(), text, 0);
    }
}
