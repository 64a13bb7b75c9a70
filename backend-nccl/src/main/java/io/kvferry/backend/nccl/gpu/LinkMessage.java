// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.plane.GrantProof;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;

/// What two planes say to each other over the control connection of a link; the bytes of the cache
/// go over NCCL.
///
/// ```
/// dialer:   Hello                        names the grant of an open window
/// listener: Challenge                    proves that it knows the grant
/// dialer:   Proof                        proves the same
/// listener: Welcome                      0, or why not, which may come at once
/// dialer:   Identity                     the dialer is rank 0 of the communicator
/// both:     Ready                        when the communicator is, on this side
///
/// sender:   Open                         names a grant, and proves that it knows it
/// receiver: Opened                       proves the same
/// sender:   for each batch Batch, then End; or Cancel
/// receiver: Result                       0: all of it is in place; else why not, at any time
///
/// rank 1:   Accept                       rank 0's batch may come
/// rank 0:   Turn                         what both enqueue next on the communicator
/// ```
///
/// A batch is answered whatever became of its transfer: what is of no use is dropped by the
/// receiver when it is there. So the two sides always enqueue the same operations in one order.
sealed interface LinkMessage {
    int MAGIC = 0x4b564e31;
    int VERSION = 2;

    /// Of one frame.
    int MOST_BYTES = 64 << 10;

    /// Pieces of a batch; NCCL takes 2048 operations in a group.
    int MOST_PIECES = 1024;

    /// @param plane drawn anew for each start, so that a peer that was started again is known
    /// @param number of the dial, counted by the plane that dials
    /// @param address where its plane listens
    /// @param slotBytes the largest batch that it takes
    /// @param nonce of the dialer, for this link, see [LinkNonces]
    record Hello(
            PlaneId plane,
            long number,
            String address,
            long slotBytes,
            GrantProof.Name grant,
            byte[] nonce)
            implements LinkMessage {}

    /// @param nonce of the listener, for this link
    record Challenge(byte[] nonce, byte[] proof) implements LinkMessage {}

    record Proof(byte[] proof) implements LinkMessage {}

    /// @param voidDials dials of the answering plane up to this number do not count any more: it
    ///   has taken this one, even if one of them arrives later
    record Welcome(PlaneId plane, int code, long voidDials, long slotBytes)
            implements LinkMessage {}

    /// @param uniqueId of NCCL: whoever has it can join
    record Identity(byte[] uniqueId) implements LinkMessage {}

    record Ready() implements LinkMessage {}

    /// @param transfer number that the sender gave it, unique in its direction
    record Open(long transfer, GrantProof.Name grant, byte[] proof) implements LinkMessage {}

    record Opened(long transfer, byte[] proof) implements LinkMessage {}

    record Batch(long transfer, List<Piece> pieces) implements LinkMessage {
        long bytes() {
            return pieces.stream().mapToLong(Piece::bytes).sum();
        }
    }

    record Accept() implements LinkMessage {}

    /// @param number from 0, without gaps
    /// @param dialerSends the direction
    record Turn(long number, boolean dialerSends) implements LinkMessage {}

    record End(long transfer, long bytes) implements LinkMessage {}

    record Cancel(long transfer) implements LinkMessage {}

    record Result(long transfer, int code) implements LinkMessage {}

    /// Bytes of one part, counted from the beginning of its first block as if its blocks lay one
    /// behind the other. The pieces of a part come in order and without a gap.
    record Piece(int part, long from, long bytes, int crc) {}

    /// Names one start of a plane.
    record PlaneId(long high, long low) implements Comparable<PlaneId> {
        @Override
        public int compareTo(PlaneId other) {
            int highs = Long.compareUnsigned(high, other.high);
            return highs != 0 ? highs : Long.compareUnsigned(low, other.low);
        }
    }

    default byte[] encode() {
        var out = new WireWriter(64);
        switch (this) {
            case Hello(var plane, var number, var address, var slotBytes, var grant, var nonce) ->
                    out.u8(1)
                            .i32(MAGIC)
                            .i32(VERSION)
                            .i64(plane.high)
                            .i64(plane.low)
                            .i64(number)
                            .string(address)
                            .i64(slotBytes)
                            .i64(grant.high())
                            .i64(grant.low())
                            .bytes(nonce);
            case Welcome(var plane, var code, var voidDials, var slotBytes) ->
                    out.u8(2)
                            .i32(MAGIC)
                            .i32(VERSION)
                            .i64(plane.high)
                            .i64(plane.low)
                            .i32(code)
                            .i64(voidDials)
                            .i64(slotBytes);
            case Identity(var uniqueId) -> out.u8(3).bytes(uniqueId);
            case Ready() -> out.u8(4);
            case Open(var transfer, var grant, var proof) ->
                    out.u8(5).i64(transfer).i64(grant.high()).i64(grant.low()).bytes(proof);
            case Batch(var transfer, var pieces) -> {
                out.u8(6).i64(transfer).i32(pieces.size());
                for (var piece : pieces) {
                    out.i32(piece.part).i64(piece.from).i64(piece.bytes).i32(piece.crc);
                }
            }
            case Accept() -> out.u8(7);
            case Turn(var number, var dialerSends) -> out.u8(8).i64(number).bool(dialerSends);
            case End(var transfer, var bytes) -> out.u8(9).i64(transfer).i64(bytes);
            case Cancel(var transfer) -> out.u8(10).i64(transfer);
            case Result(var transfer, var code) -> out.u8(11).i64(transfer).i32(code);
            case Challenge(var nonce, var proof) -> out.u8(12).bytes(nonce).bytes(proof);
            case Proof(var proof) -> out.u8(13).bytes(proof);
            case Opened(var transfer, var proof) -> out.u8(14).i64(transfer).bytes(proof);
        }
        return out.toByteArray();
    }

    /// @throws KvFerryException [ErrorCode#PROTOCOL], [ErrorCode#INCOMPATIBLE] for another version
    static LinkMessage decode(byte[] frame) {
        var in = new WireReader(frame);
        int kind = in.u8();
        var message =
                switch (kind) {
                    case 1 -> {
                        checkVersion(in);
                        yield new Hello(
                                plane(in), in.i64(), in.string(), in.i64(), name(in), nonce(in));
                    }
                    case 2 -> {
                        checkVersion(in);
                        yield new Welcome(plane(in), in.i32(), in.i64(), in.i64());
                    }
                    case 3 -> new Identity(in.bytes());
                    case 4 -> new Ready();
                    case 5 -> new Open(in.i64(), name(in), proof(in));
                    case 6 -> new Batch(in.i64(), pieces(in));
                    case 7 -> new Accept();
                    case 8 -> new Turn(in.i64(), in.bool());
                    case 9 -> new End(in.i64(), in.i64());
                    case 10 -> new Cancel(in.i64());
                    case 11 -> new Result(in.i64(), in.i32());
                    case 12 -> new Challenge(nonce(in), proof(in));
                    case 13 -> new Proof(proof(in));
                    case 14 -> new Opened(in.i64(), proof(in));
                    default -> throw protocol("message of unknown kind " + kind);
                };
        in.end();
        return message;
    }

    private static void checkVersion(WireReader in) {
        if (in.i32() != MAGIC) {
            throw protocol("no peer of the nccl plane");
        }
        int version = in.i32();
        if (version != VERSION) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "peer speaks version " + version + " of the nccl plane, this build " + VERSION);
        }
    }

    private static PlaneId plane(WireReader in) {
        return new PlaneId(in.i64(), in.i64());
    }

    private static GrantProof.Name name(WireReader in) {
        return new GrantProof.Name(in.i64(), in.i64());
    }

    private static byte[] nonce(WireReader in) {
        return exactly(GrantProof.NONCE_BYTES, in.bytes());
    }

    private static byte[] proof(WireReader in) {
        return exactly(GrantProof.PROOF_BYTES, in.bytes());
    }

    private static byte[] exactly(int bytes, byte[] said) {
        if (said.length != bytes) {
            throw protocol(said.length + " bytes where " + bytes + " belong");
        }
        return said;
    }

    private static List<Piece> pieces(WireReader in) {
        int count = in.count(24);
        if (count < 1 || count > MOST_PIECES) {
            throw protocol("a batch of " + count + " pieces");
        }
        var pieces = new ArrayList<Piece>(count);
        for (int i = 0; i < count; i++) {
            var piece = new Piece(in.i32(), in.i64(), in.i64(), in.i32());
            if (piece.part < 0 || piece.from < 0 || piece.bytes < 1 || piece.bytes > 1L << 40) {
                throw protocol("an invalid piece: " + piece);
            }
            pieces.add(piece);
        }
        return pieces;
    }

    /// What a message is answered with that may not come now.
    static KvFerryException unexpected(LinkMessage message) {
        return protocol("the peer said " + message.getClass().getSimpleName() + " out of turn");
    }

    static KvFerryException unproven(String receiver) {
        return new KvFerryException(
                ErrorCode.PEER_REFUSED,
                "who listens at " + receiver + " does not prove that it knows the grant");
    }

    static KvFerryException protocol(String what) {
        return new KvFerryException(ErrorCode.PROTOCOL, what);
    }
}
