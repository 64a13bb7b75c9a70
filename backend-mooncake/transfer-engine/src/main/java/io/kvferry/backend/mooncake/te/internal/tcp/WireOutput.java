// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.internal.memory.Region;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.zip.CRC32C;

/// What leaves over a [Wire]. Headers, replies and ranges that follow each other go out in one
/// gathering write, see [Gathered].
///
/// Threading: the thread that uses the connection.
final class WireOutput {
    private final WireSocket socket;
    private final CallClock clock;
    private final ByteBuffer staging;
    private final ByteBuffer view;
    private final MemorySegment segment;
    private final Gathered outgoing;

    /// Parts of the staging buffer that lie between pieces of regions.
    private final @Nullable ByteBuffer[] parts = new @Nullable ByteBuffer[Gathered.MOST_STAGED];

    private int partsUsed;

    /// Up to here the staging buffer is among what goes out.
    private int queued;

    private @Nullable CRC32C sum;
    private boolean sent;
    private long flushes;

    WireOutput(WireSocket socket, CallClock clock, ByteBuffer staging, MemorySegment calls) {
        this.socket = socket;
        this.outgoing = new Gathered(calls);
        this.clock = clock;
        this.staging = staging;
        this.view = staging.duplicate();
        this.segment = MemorySegment.ofBuffer(staging.duplicate().clear());
    }

    void begin() {
        sent = false;
    }

    /// Whether any byte may have left since [#begin].
    boolean hasSent() {
        return sent;
    }

    /// The staging buffer with room for at least `bytes`; what is put there leaves with the next
    /// [#flush].
    ByteBuffer room(int bytes) throws IOException {
        if (staging.remaining() < bytes) {
            flush();
        }
        return staging;
    }

    /// Sends bytes of a region, long ones at [#sendPieces] or [#flush] at the latest; until then
    /// the region must be held.
    ///
    /// @param checksum of the bytes, taken once they are on their way, so that the peer works on
    ///   them meanwhile
    void send(Region region, long address, long bytes, @Nullable CRC32C checksum)
            throws IOException {
        long offset = address - region.address;
        long left = bytes;
        while (left >= Wire.DIRECT_FROM) {
            if (!outgoing.hasRoom(Wire.DIRECT_FROM)) {
                flush();
            }
            socket.expectBulk();
            sum = checksum;
            queueStaged();
            int length = outgoing.addPiece(region, offset, left);
            offset += length;
            left -= length;
        }
        if (left > 0) {
            stage(region, offset, (int) left, checksum);
        }
    }

    private void stage(Region region, long offset, int bytes, @Nullable CRC32C checksum)
            throws IOException {
        if (checksum != null) {
            sendPieces(); // they are summed first
        }
        room(bytes);
        MemorySegment.copy(region.memory, offset, segment, staging.position(), bytes);
        if (checksum != null) {
            checksum.update(view.limit(staging.position() + bytes).position(staging.position()));
        }
        staging.position(staging.position() + bytes);
    }

    /// Whether some of what was sent has not been copied out of its region.
    boolean hasPieces() {
        return outgoing.hasPieces();
    }

    /// Sends what has not been copied out of regions, and what comes before it.
    void sendPieces() throws IOException {
        if (outgoing.hasPieces()) {
            flush();
        }
    }

    /// Counts up when all that was put here has left, or the connection has failed.
    long flushes() {
        return flushes;
    }

    /// Whether nothing waits for a flush.
    boolean isEmpty() {
        return staging.position() == 0 && outgoing.isEmpty();
    }

    void flush() throws IOException {
        try {
            if (outgoing.isEmpty()) {
                transmit(staging.flip());
            } else {
                queueStaged();
                transmitQueued();
            }
        } finally {
            outgoing.clear();
            partsUsed = 0;
            queued = 0;
            staging.clear();
            flushes++;
        }
    }

    /// The content of the staging buffer comes before the next piece.
    private void queueStaged() {
        if (staging.position() > queued) {
            ByteBuffer part = parts[partsUsed];
            if (part == null) {
                part = staging.duplicate();
                parts[partsUsed] = part;
            }
            partsUsed++;
            outgoing.addStaged(part.limit(staging.position()).position(queued), segment.address());
            queued = staging.position();
        }
    }

    private void transmitQueued() throws IOException {
        while (!outgoing.isEmpty()) {
            clock.arm();
            sent = true;
            clock.moved(outgoing.write(socket));
            outgoing.dropMoved(sum);
        }
    }

    private void transmit(ByteBuffer source) throws IOException {
        while (source.hasRemaining()) {
            clock.arm();
            sent = true;
            clock.moved(socket.write(source, segment.address()));
        }
    }
}
