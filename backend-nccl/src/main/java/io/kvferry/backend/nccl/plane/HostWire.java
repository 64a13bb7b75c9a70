// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;

/// What stands on a connection of the host data plane, little endian:
///
/// ```
/// sender:   magic i32, version i32,
///           name 16 bytes, nonce 32 bytes                 of the grant, and what the sender drew
/// receiver: code i32                                      0: go on; else an ErrorCode, and the end
///           nonce 32 bytes, proof 32 bytes                it knows the grant, see GrantProof
/// sender:   proof 32 bytes                                it does too
///           pid i32                                       of the sender as a process, or 0
///           sums i32                                      1: it wants checksums
///           start i64, namespace i64, probe i64           of the process
/// receiver: code i32                                      0: go on; else an ErrorCode, and the end
///           way i32                                       0: the sender sends the blocks
///                                                         1: the receiver copies them, and
///           sums i32                                      1: pieces carry checksums, as one end wants
///           token 32 bytes                                way 1: which the sender puts at its probe
/// sender:   piece*  = part i32, first i32, count i32, crc32c or 0 i32, length i64, and then
///             way 0: the bytes
///             way 1: runs i32, 0 i32, and for each run its address i64 and length i64
///           end     = -1, 0, 0, 0, bytes of all pieces i64
/// receiver: code i32                                      way 1: after each piece; after the end
/// ```
///
/// The pieces come in the order of the blocks and without a gap, and none goes on over the end of
/// its part: so ends whose parts differ find out. The end comes when all pieces have been answered:
/// so what was copied was copied while the sender kept its blocks as they were.
///
/// So neither end says anything of its memory before the other one has proven that it knows the
/// grant. A peer of another version is answered with INCOMPATIBLE.
final class HostWire {
    static final int MAGIC = 0x4b564631;
    static final int VERSION = 4;

    /// Magic, version, name and nonce.
    static final int HELLO_BYTES = 24 + GrantProof.NONCE_BYTES;

    /// Of the receiver's first answer, after the code.
    static final int CHALLENGE_BYTES = GrantProof.NONCE_BYTES + GrantProof.PROOF_BYTES;

    /// Of the sender after its proof.
    static final int PROCESS_BYTES = 32;

    /// Of the receiver's second answer: code, way, sums.
    static final int GO_BYTES = 12;

    static final int PIECE_BYTES = 24;
    static final int RUNS_BYTES = 8;
    static final int RUN_BYTES = 16;
    static final int END = -1;
    static final int WAY_SENT = 0;
    static final int WAY_COPIED = 1;

    static final int MOST_BLOCKS = 512;

    /// Of a piece that the receiver copies, with its runs.
    static final int MOST_RUNS_BYTES = PIECE_BYTES + RUNS_BYTES + MOST_BLOCKS * RUN_BYTES;

    private HostWire() {}

    static ByteBuffer buffer(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    static ByteBuffer hello(GrantProof.Name name, byte[] nonce) {
        return buffer(HELLO_BYTES)
                .putInt(MAGIC)
                .putInt(VERSION)
                .putLong(name.high())
                .putLong(name.low())
                .put(nonce)
                .clear();
    }

    static ByteBuffer challenge(byte[] nonce, byte[] proof) {
        return buffer(Integer.BYTES + CHALLENGE_BYTES).putInt(0).put(nonce).put(proof).clear();
    }

    /// The proof, without the process.
    static ByteBuffer process(byte[] proof, boolean sums) {
        return buffer(GrantProof.PROOF_BYTES + PROCESS_BYTES)
                .put(proof)
                .putInt(0)
                .putInt(sums ? 1 : 0)
                .clear();
    }

    /// @param number room for one, used again and again
    static int readInt(SocketChannel from, ByteBuffer number) throws IOException {
        readFully(from, number.clear().limit(Integer.BYTES));
        return number.flip().getInt();
    }

    static byte[] bytes(ByteBuffer from, int count) {
        var bytes = new byte[count];
        from.get(bytes);
        return bytes;
    }

    static void readFully(SocketChannel from, ByteBuffer into) throws IOException {
        while (into.hasRemaining()) {
            if (from.read(into) < 0) {
                throw new EOFException("the peer closed the connection");
            }
        }
    }

    static void readFully(SocketChannel from, ByteBuffer[] into, int first, int end)
            throws IOException {
        for (int at = first; at < end; ) {
            if (!into[at].hasRemaining()) {
                at++;
            } else if (from.read(into, at, end - at) < 0) {
                throw new EOFException("the peer closed the connection");
            }
        }
    }

    /// @param room for one, used again and again
    static void writeInt(SocketChannel to, ByteBuffer room, int number) throws IOException {
        writeFully(to, room.clear().putInt(number).flip());
    }

    static void writeFully(SocketChannel to, ByteBuffer from) throws IOException {
        while (from.hasRemaining()) {
            var _ = to.write(from);
        }
    }

    static void writeFully(SocketChannel to, ByteBuffer[] from, int first, int end)
            throws IOException {
        for (int at = first; at < end; ) {
            if (from[at].hasRemaining()) {
                var _ = to.write(from, at, end - at);
            } else {
                at++;
            }
        }
    }
}
