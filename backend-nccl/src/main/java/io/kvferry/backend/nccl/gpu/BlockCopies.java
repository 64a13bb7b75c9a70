// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.gpu.LinkMessage.Piece;
import io.kvferry.backend.nccl.plane.Placement;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32C;

/// Copies between the blocks of a placement and a buffer in which the pieces of a batch lie one
/// behind the other.
final class BlockCopies {
    private BlockCopies() {}

    /// Fills the buffer.
    ///
    /// @return the pieces with their checksums
    static List<Piece> gather(Placement source, List<Piece> pieces, MemorySegment buffer) {
        var summed = new ArrayList<Piece>(pieces.size());
        long at = 0;
        for (var piece : pieces) {
            var bytes = buffer.asSlice(at, piece.bytes());
            copy(source.parts().get(piece.part()), piece, bytes, true);
            summed.add(new Piece(piece.part(), piece.from(), piece.bytes(), crc(bytes)));
            at += piece.bytes();
        }
        return summed;
    }

    /// Empties the buffer into the blocks, after all checksums were found right.
    ///
    /// @return the first piece whose checksum is wrong, or -1; nothing was written then
    static int scatter(MemorySegment buffer, List<Piece> pieces, Placement target) {
        long at = 0;
        for (int i = 0; i < pieces.size(); i++) {
            var piece = pieces.get(i);
            if (crc(buffer.asSlice(at, piece.bytes())) != piece.crc()) {
                return i;
            }
            at += piece.bytes();
        }
        at = 0;
        for (var piece : pieces) {
            var bytes = buffer.asSlice(at, piece.bytes());
            copy(target.parts().get(piece.part()), piece, bytes, false);
            at += piece.bytes();
        }
        return -1;
    }

    private static int crc(MemorySegment bytes) {
        var crc = new CRC32C();
        crc.update(bytes.asByteBuffer());
        return (int) crc.getValue();
    }

    private static void copy(
            Placement.Part part, Piece piece, MemorySegment packed, boolean intoPacked) {
        long blockBytes = part.blockBytes();
        long done = 0;
        while (done < piece.bytes()) {
            long position = piece.from() + done;
            long within = position % blockBytes;
            long length = Math.min(blockBytes - within, piece.bytes() - done);
            long inCache =
                    part.blocks()[(int) (position / blockBytes)] * part.strideBytes() + within;
            if (intoPacked) {
                MemorySegment.copy(part.segment(), inCache, packed, done, length);
            } else {
                MemorySegment.copy(packed, done, part.segment(), inCache, length);
            }
            done += length;
        }
    }
}
