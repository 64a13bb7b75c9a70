// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.spi.Deadline;

import org.jspecify.annotations.Nullable;

import java.io.EOFException;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;
import java.util.zip.CRC32C;

/// One data connection, blocking, with a small staging buffer in each direction.
///
/// Headers, replies and short ranges pass through the staging buffers, so that many of them share a
/// system call; what is longer than [#DIRECT_FROM] goes between socket and region without a copy.
/// Copying 32 KiB costs about a microsecond, a system call on a loopback socket several. Nothing is
/// allocated per range.
///
/// Threading: one thread at a time uses the connection; [#abort], [#expire] and [#overdue] are for
/// others.
final class Wire implements AutoCloseable {
    static final int STAGING = 64 << 10;

    /// Ranges from this size on bypass the staging buffers.
    static final int DIRECT_FROM = 32 << 10;

    /// One buffer view covers this much of a region; a ByteBuffer cannot cover more than 2 GiB.
    private static final int WINDOW_BITS = 30;

    /// Most bytes of one system call: the stall clock starts anew with each.
    private static final int CALL_LIMIT = 1 << 20;

    /// The same with checksums, so that the bytes are still in the cache when they are summed.
    private static final int CHECKED_CALL_LIMIT = 256 << 10;

    private static final int CACHED_VIEWS = 16;
    private static final long UNARMED = 0;

    private final SocketChannel channel;
    private final long stallNanos;
    private final ByteBuffer in = staging();
    private final ByteBuffer inView = in.duplicate();
    private final MemorySegment inSegment = MemorySegment.ofBuffer(in.duplicate().clear());
    private final ByteBuffer out = staging();
    private final ByteBuffer outView = out.duplicate();
    private final MemorySegment outSegment = MemorySegment.ofBuffer(out.duplicate().clear());
    private final @Nullable Region[] viewRegion = new @Nullable Region[CACHED_VIEWS];
    private final int[] viewWindow = new int[CACHED_VIEWS];
    private final @Nullable ByteBuffer[] view = new @Nullable ByteBuffer[CACHED_VIEWS];

    private long hardLimit = UNARMED;
    private volatile long limit = UNARMED;
    private volatile boolean expired;
    private long received;

    private final Watchdog watchdog;

    /// A wire is watched from here to [#close].
    Wire(SocketChannel channel, long stallNanos, Watchdog watchdog) {
        this.channel = channel;
        this.stallNanos = stallNanos;
        this.watchdog = watchdog;
        in.flip();
        watchdog.watch(this);
    }

    private static ByteBuffer staging() {
        return ByteBuffer.allocateDirect(STAGING).order(ByteOrder.LITTLE_ENDIAN);
    }

    /// Starts the clocks: from now on no call may stall longer than the stall limit, nor pass the
    /// deadline.
    void begin(Deadline deadline) {
        hardLimit = deadline.nanoTime() == UNARMED ? 1 : deadline.nanoTime();
        received = 0;
    }

    /// As [#begin], with the stall limit only.
    void begin() {
        hardLimit = System.nanoTime() + Long.MAX_VALUE / 2;
        received = 0;
    }

    /// Stops the clocks: the connection may now rest as long as it likes.
    void rest() {
        hardLimit = UNARMED;
        limit = UNARMED;
    }

    /// Bytes that arrived since [#begin].
    long received() {
        return received;
    }

    boolean overdue(long now) {
        long seen = limit;
        return seen != UNARMED && seen - now <= 0;
    }

    void expire() {
        expired = true;
        abort();
    }

    boolean isExpired() {
        return expired;
    }

    // ---- receiving

    /// Whether `bytes` can be read without a system call.
    boolean buffered(int bytes) {
        return in.remaining() >= bytes;
    }

    /// Waits, without a limit, until something can be read; false at the end of the stream.
    boolean awaitInput() throws IOException {
        if (in.hasRemaining()) {
            return true;
        }
        in.clear();
        int got = channel.read(in);
        in.flip();
        return got > 0;
    }

    /// A view of the next `bytes` of input, positioned at the first; relative gets consume it.
    ByteBuffer need(int bytes) throws IOException {
        if (in.remaining() < bytes) {
            in.compact();
            try {
                while (in.position() < bytes) {
                    receive(in);
                }
            } finally {
                in.flip();
            }
        }
        return in;
    }

    /// Moves the next `bytes` of input into a region.
    void receive(Region region, long address, long bytes, @Nullable CRC32C sum) throws IOException {
        long offset = address - region.address;
        long left = bytes;
        while (left > 0) {
            int staged = (int) Math.min(left, in.remaining());
            if (staged > 0) {
                unstage(region, offset, staged, sum);
                offset += staged;
                left -= staged;
            } else if (left < DIRECT_FROM) {
                need(1);
            } else {
                int moved = receiveDirect(region, offset, left, sum);
                offset += moved;
                left -= moved;
            }
        }
    }

    private void unstage(Region region, long offset, int bytes, @Nullable CRC32C sum) {
        if (sum != null) {
            sum.update(inView.limit(in.position() + bytes).position(in.position()));
        }
        MemorySegment.copy(inSegment, in.position(), region.memory, offset, bytes);
        in.position(in.position() + bytes);
    }

    private int receiveDirect(Region region, long offset, long left, @Nullable CRC32C sum)
            throws IOException {
        ByteBuffer target =
                window(region, offset, left, sum != null ? CHECKED_CALL_LIMIT : CALL_LIMIT);
        int start = target.position();
        int moved = receive(target);
        if (sum != null) {
            sum.update(target.flip().position(start));
        }
        return moved;
    }

    /// Throws input away, at most `bytes` of it.
    void discard(long bytes) throws IOException {
        long left = bytes;
        while (left > 0) {
            need(1);
            int staged = (int) Math.min(left, in.remaining());
            in.position(in.position() + staged);
            left -= staged;
        }
    }

    private int receive(ByteBuffer target) throws IOException {
        arm();
        int got = channel.read(target);
        if (got < 0) {
            throw new EOFException("the peer closed the connection");
        }
        received += got;
        return got;
    }

    // ---- sending

    /// The output buffer with room for at least `bytes`; what is put there leaves with the next
    /// [#flush].
    ByteBuffer room(int bytes) throws IOException {
        if (out.remaining() < bytes) {
            flush();
        }
        return out;
    }

    /// Sends bytes of a region.
    void send(Region region, long address, long bytes, @Nullable CRC32C sum) throws IOException {
        long offset = address - region.address;
        long left = bytes;
        if (left < DIRECT_FROM || out.position() > 0) {
            // A header that waits here takes the first part of its payload along.
            int staged = (int) Math.min(left, DIRECT_FROM);
            stage(region, offset, staged, sum);
            offset += staged;
            left -= staged;
        }
        while (left > 0) {
            if (left < DIRECT_FROM) {
                stage(region, offset, (int) left, sum);
                return;
            }
            flush();
            ByteBuffer source =
                    window(region, offset, left, sum != null ? CHECKED_CALL_LIMIT : CALL_LIMIT);
            int length = source.remaining();
            if (sum != null) {
                int start = source.position();
                sum.update(source);
                source.position(start);
            }
            transmit(source);
            offset += length;
            left -= length;
        }
    }

    private void stage(Region region, long offset, int bytes, @Nullable CRC32C sum)
            throws IOException {
        room(bytes);
        MemorySegment.copy(region.memory, offset, outSegment, out.position(), bytes);
        if (sum != null) {
            sum.update(outView.limit(out.position() + bytes).position(out.position()));
        }
        out.position(out.position() + bytes);
    }

    void flush() throws IOException {
        if (out.position() > 0) {
            out.flip();
            try {
                transmit(out);
            } finally {
                out.clear();
            }
        }
    }

    private void transmit(ByteBuffer source) throws IOException {
        while (source.hasRemaining()) {
            arm();
            channel.write(source);
        }
    }

    /// Ends the output after a flush, and reads on for a moment, so that a last reply is not lost
    /// to a reset.
    void hangUp(long patienceNanos) throws IOException {
        flush();
        channel.shutdownOutput();
        hardLimit = System.nanoTime() + patienceNanos;
        long left = 64L << 20;
        while (left > 0) {
            in.clear();
            int got = receive(in);
            left -= got;
        }
    }

    // ---- both

    private void arm() {
        if (hardLimit == UNARMED) {
            limit = UNARMED;
            return;
        }
        long stall = System.nanoTime() + stallNanos;
        long next = stall - hardLimit < 0 ? stall : hardLimit;
        limit = next == UNARMED ? 1 : next;
    }

    private ByteBuffer window(Region region, long offset, long bytes, int most) {
        int number = (int) (offset >>> WINDOW_BITS);
        int slot = (System.identityHashCode(region) + number) & (CACHED_VIEWS - 1);
        ByteBuffer cached = view[slot];
        long base = (long) number << WINDOW_BITS;
        if (cached == null || viewRegion[slot] != region || viewWindow[slot] != number) {
            long length = Math.min(1L << WINDOW_BITS, region.bytes - base);
            cached = region.memory.asSlice(base, length).asByteBuffer();
            view[slot] = cached;
            viewRegion[slot] = region;
            viewWindow[slot] = number;
        }
        int from = (int) (offset - base);
        int length = (int) Math.min(Math.min(bytes, most), cached.capacity() - from);
        return cached.limit(from + length).position(from);
    }

    /// Ends whatever call is in progress on this connection.
    void abort() {
        try {
            channel.close();
        } catch (IOException e) {
            throw new IllegalStateException("closing a socket failed", e);
        }
    }

    @Override
    public void close() {
        watchdog.forget(this);
        rest();
        abort();
    }
}
