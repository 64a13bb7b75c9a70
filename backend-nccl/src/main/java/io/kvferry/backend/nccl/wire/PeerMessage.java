// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.wire;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

/// The messages of protocol 1. A frame begins with a byte that no msgpack value begins with, so
/// that one port serves protocol 0 too; then come version, kind and the fields, little endian.
///
/// A transfer is one prompt on one rank. Counts are blocks per KV cache group, from the last block
/// of the prompt backwards: both sides know where a prompt ends, and where each of them begins is
/// its own affair.
///
/// Every message carries the epoch of its sender, which differs for each start of an engine; a
/// message for an epoch that is over is refused.
public sealed interface PeerMessage {
    /// Never the first byte of a msgpack value.
    int MARK = 0xc1;

    int VERSION = 1;

    /// An engine that has not been heard of yet.
    long ANY_EPOCH = 0;

    /// What a transfer is, in the words of the side that asks.
    ///
    /// @param to epoch of the engine that is meant, or [#ANY_EPOCH]
    /// @param prompt which tokens they are
    /// @param counts blocks per group that are offered or asked for
    record Transfer(
            String id, long epoch, long to, CacheShape shape, PromptMark prompt, int[] counts) {
        private void write(WireWriter out) {
            out.string(id).i64(epoch).i64(to);
            shape.write(out);
            prompt.write(out);
            out.ints(counts);
        }

        private static Transfer read(WireReader in) {
            return new Transfer(
                    in.string(),
                    in.i64(),
                    in.i64(),
                    CacheShape.read(in),
                    PromptMark.read(in),
                    in.ints());
        }
    }

    /// A prefiller has, or is computing, blocks for the decoder. Answered by [Granted] or
    /// [Refused].
    record Offer(Transfer transfer) implements PeerMessage {}

    /// A decoder wants blocks, into a window that is open. Answered by [Sent] or [Refused] when the
    /// transfer has ended, which may be long after: the prompt may still be computed.
    ///
    /// @param address where the decoder's data plane listens
    record Pull(Transfer transfer, Grant grant, String address) implements PeerMessage {}

    /// A decoder does not want the blocks any more. Answered by [Sent] with no bytes.
    record Release(String id, long epoch, long to) implements PeerMessage {}

    /// A prefiller does not use what it was granted: its push has failed, or was given up. Answered
    /// by [Sent] with no bytes.
    record Unused(String id, long epoch, Grant grant) implements PeerMessage {}

    /// The offered blocks may be sent.
    ///
    /// @param credit bytes that the window takes: exactly those of the blocks in `counts`
    record Granted(long epoch, Grant grant, String address, int[] counts, long credit)
            implements PeerMessage {}

    /// The credit is 0, for this reason.
    record Refused(long epoch, Failure failure) implements PeerMessage {}

    /// All was sent.
    record Sent(long epoch, long bytes) implements PeerMessage {}

    /// Whether a frame claims to be of this protocol.
    static boolean isFramed(byte[] frame) {
        return frame.length > 0 && (frame[0] & 0xff) == MARK;
    }

    default byte[] encode() {
        var out = new WireWriter(256).u8(MARK).u8(VERSION);
        switch (this) {
            case Offer(var transfer) -> transfer.write(out.u8(1));
            case Pull(var transfer, var grant, var address) -> {
                transfer.write(out.u8(2));
                grant.write(out);
                out.string(address);
            }
            case Release(var id, var epoch, var to) -> out.u8(3).string(id).i64(epoch).i64(to);
            case Granted(var epoch, var grant, var address, var counts, var credit) -> {
                out.u8(4).i64(epoch);
                grant.write(out);
                out.string(address).ints(counts).i64(credit);
            }
            case Refused(var epoch, var failure) ->
                    out.u8(5).i64(epoch).i32(failure.code().wire()).string(failure.message());
            case Sent(var epoch, var bytes) -> out.u8(6).i64(epoch).i64(bytes);
            case Unused(var id, var epoch, var grant) ->
                    grant.write(out.u8(7).string(id).i64(epoch));
        }
        return out.toByteArray();
    }

    /// @throws KvFerryException [ErrorCode#PROTOCOL], [ErrorCode#INCOMPATIBLE] for another version
    static PeerMessage decode(byte[] frame) {
        var in = new WireReader(frame);
        if (in.u8() != MARK) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "not a frame of protocol 1");
        }
        int version = in.u8();
        if (version != VERSION) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "peer speaks version " + version + " of the protocol, this build " + VERSION);
        }
        int kind = in.u8();
        var message =
                switch (kind) {
                    case 1 -> new Offer(Transfer.read(in));
                    case 2 -> new Pull(Transfer.read(in), Grant.read(in), in.string());
                    case 3 -> new Release(in.string(), in.i64(), in.i64());
                    case 4 ->
                            new Granted(in.i64(), Grant.read(in), in.string(), in.ints(), in.i64());
                    case 5 -> new Refused(in.i64(), failure(in));
                    case 6 -> new Sent(in.i64(), in.i64());
                    case 7 -> new Unused(in.string(), in.i64(), Grant.read(in));
                    default ->
                            throw new KvFerryException(
                                    ErrorCode.PROTOCOL, "message of unknown kind " + kind);
                };
        in.end();
        return message;
    }

    private static Failure failure(WireReader in) {
        int code = in.i32();
        var text = in.string();
        return new Failure(
                ErrorCode.ofWire(code).orElse(ErrorCode.PEER_REFUSED),
                text.length() > 1000 ? text.substring(0, 1000) : text);
    }
}
