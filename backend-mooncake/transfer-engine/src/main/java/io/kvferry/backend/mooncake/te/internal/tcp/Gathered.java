// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.internal.memory.Region;
import io.kvferry.toolkit.net.SocketCalls;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.zip.CRC32C;

/// The buffers of one gathering write or scattering read, in the order of their bytes: pieces of
/// regions, and between them what passes through a staging buffer. Made once for a connection.
///
/// A channel's call over more than one buffer costs two small objects for each, which the JDK makes
/// (40 bytes together); one over a single buffer costs none. So pieces that touch each other share
/// a buffer.
///
/// Threading: the thread that uses the connection.
final class Gathered {
    /// Pieces of regions in one call at most.
    private static final int MOST_PIECES = 16;

    /// Most bytes of regions in one call. The stall clock restarts with each call, the peer can
    /// work on one piece while the next is in flight, and the bytes are still cached when they are
    /// summed. Half the size takes a tenth more time.
    private static final int MOST_BYTES = 512 << 10;

    /// Parts of a staging buffer in one call at most: before each piece and behind the last.
    static final int MOST_STAGED = MOST_PIECES + 1;

    private static final int MOST_BUFFERS = MOST_PIECES + MOST_STAGED;

    private static final int VECTORS_BYTES = MOST_BUFFERS * SocketCalls.VECTOR_BYTES;

    /// What the arguments of a system call take.
    static final int CALL_BYTES = VECTORS_BYTES + SocketCalls.MESSAGE_BYTES;

    private static final ByteBuffer NONE = ByteBuffer.allocate(0);

    private final ByteBuffer[] buffers = new ByteBuffer[MOST_BUFFERS];

    /// Addresses of the first bytes of the buffers.
    private final long[] starts = new long[MOST_BUFFERS];

    /// For system calls, see [WireSocket]; the buffers of a call and its message.
    private final MemorySegment vectors;

    private final MemorySegment message;

    /// Start of the bytes of a piece that are not summed yet, -1 of staged ones.
    private final int[] unsummed = new int[MOST_BUFFERS];

    /// A view for each piece of a call, since two of them may lie in one region.
    private final @Nullable RegionViews[] views = new @Nullable RegionViews[MOST_PIECES];

    private int nextViews;

    /// The region of the last buffer, null where that is no piece.
    private @Nullable Region lastRegion;

    /// Where the last piece ends in it.
    private long lastEnd;

    private int count;
    private int pieces;
    private long bytes;

    /// @param calls memory of [#CALL_BYTES] for system calls
    Gathered(MemorySegment calls) {
        Arrays.fill(buffers, NONE);
        this.vectors = calls.asSlice(0, VECTORS_BYTES);
        this.message = calls.asSlice(VECTORS_BYTES, SocketCalls.MESSAGE_BYTES).fill((byte) 0);
    }

    boolean isEmpty() {
        return count == 0;
    }

    boolean hasPieces() {
        return pieces > 0;
    }

    /// Whether a piece of `least` bytes fits.
    boolean hasRoom(int least) {
        return pieces < MOST_PIECES && bytes + least <= MOST_BYTES;
    }

    /// @param start address of the buffer's first byte
    void addStaged(ByteBuffer staged, long start) {
        lastRegion = null;
        starts[count] = start;
        unsummed[count] = -1;
        buffers[count++] = staged;
    }

    /// Adds as much of a range as fits.
    ///
    /// @return bytes added
    int addPiece(Region region, long offset, long most) {
        int length = region == lastRegion && offset == lastEnd ? extendLast(most) : 0;
        if (length == 0) {
            length = addBuffer(region, offset, most);
        }
        lastRegion = region;
        lastEnd = offset + length;
        bytes += length;
        return length;
    }

    /// @return bytes by which the last buffer grew; 0 at the end of its view
    private int extendLast(long most) {
        ByteBuffer last = buffers[count - 1];
        long room = Math.min(MOST_BYTES - bytes, last.capacity() - last.limit());
        int length = (int) Math.min(most, room);
        last.limit(last.limit() + length);
        return length;
    }

    private int addBuffer(Region region, long offset, long most) {
        RegionViews of = views[nextViews];
        if (of == null) {
            of = new RegionViews();
            views[nextViews] = of;
        }
        nextViews = (nextViews + 1) % MOST_PIECES;
        ByteBuffer piece = of.at(region, offset, Math.min(most, MOST_BYTES - bytes));
        int length = piece.remaining();
        starts[count] = region.address + offset - piece.position();
        unsummed[count] = piece.position();
        buffers[count++] = piece;
        pieces++;
        return length;
    }

    /// One call.
    ///
    /// @return as [SocketChannel#read(ByteBuffer)]
    long read(WireSocket socket) throws IOException {
        return count == 1
                ? socket.read(buffers[0], starts[0])
                : socket.read(buffers, starts, count, vectors);
    }

    /// As [#read(WireSocket)]; what arrives behind all that is expected goes to `behind`.
    ///
    /// @param start address of its first byte
    long read(WireSocket socket, ByteBuffer behind, long start) throws IOException {
        buffers[count] = behind;
        starts[count] = start;
        try {
            return socket.read(buffers, starts, count + 1, vectors);
        } finally {
            buffers[count] = NONE;
        }
    }

    /// One call, which may send a part.
    ///
    /// @return bytes that left
    long write(WireSocket socket) throws IOException {
        return count == 1
                ? socket.write(buffers[0], starts[0])
                : socket.write(buffers, starts, count, vectors, message);
    }

    /// Forgets what has been moved.
    ///
    /// @param sum of pieces, over their bytes in order
    void dropMoved(@Nullable CRC32C sum) {
        int done = 0;
        for (int i = 0; i < count; i++) {
            ByteBuffer buffer = buffers[i];
            if (sum != null && unsummed[i] >= 0 && buffer.position() > unsummed[i]) {
                sum(buffer, unsummed[i], sum);
                unsummed[i] = buffer.position();
            }
            if (buffer.hasRemaining()) {
                break;
            }
            if (unsummed[i] >= 0) {
                pieces--;
            }
            done++;
        }
        count -= done;
        if (count == 0) {
            lastRegion = null;
        }
        System.arraycopy(buffers, done, buffers, 0, count);
        System.arraycopy(starts, done, starts, 0, count);
        System.arraycopy(unsummed, done, unsummed, 0, count);
        Arrays.fill(buffers, count, count + done, NONE);
        bytes = 0;
        for (int i = 0; i < count; i++) {
            bytes += unsummed[i] >= 0 ? buffers[i].remaining() : 0;
        }
    }

    private static void sum(ByteBuffer moved, int from, CRC32C sum) {
        int position = moved.position();
        int limit = moved.limit();
        sum.update(moved.limit(position).position(from));
        moved.limit(limit).position(position);
    }

    /// Forgets everything.
    void clear() {
        Arrays.fill(buffers, 0, count, NONE);
        count = 0;
        pieces = 0;
        bytes = 0;
        lastRegion = null;
    }
}
