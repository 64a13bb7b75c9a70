// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.backend.mooncake.te.internal.memory.Region;
import io.kvferry.spi.Deadline;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.EOFException;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32C;

/// One data connection, blocking, with a small staging buffer in each direction.
///
/// Headers, replies and short ranges pass through the staging buffers, so that many of them share a
/// system call; what is longer than [#DIRECT_FROM] goes between socket and region without a copy.
/// Copying 32 KiB costs about a microsecond, a system call on a loopback socket several. The head
/// of a batch leaves in one gathering write with the first of its ranges. Nothing is allocated per
/// range, which rules out more of these, and scattering reads: the JDK makes two objects for each
/// buffer over a memory segment that it sees in one.
///
/// Threading: one thread at a time uses the connection; [#abort], [#expire] and [#overdue] are for
/// others.
public final class Wire implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Wire.class);
    static final int STAGING = Staging.BYTES;

    /// Ranges from this size on bypass the staging buffers.
    static final int DIRECT_FROM = 32 << 10;

    /// While long ranges arrive, no more than this is read ahead, for it has to be copied.
    private static final int READ_AHEAD = 4 << 10;

    /// Most bytes of one system call: the stall clock starts anew with each, the peer can start on
    /// them while the next is under way, and they are still in the cache when they are summed.
    private static final int CALL_LIMIT = 256 << 10;

    private static final long UNARMED = 0;

    private final SocketChannel channel;
    private final long stallNanos;
    private final long spinNanos;
    private final ByteBuffer in;
    private final ByteBuffer inView;
    private final MemorySegment inSegment;
    private final ByteBuffer out;
    private final ByteBuffer outView;
    private final MemorySegment outSegment;
    private final RegionViews views = new RegionViews();
    private final ByteBuffer[] gathered;

    /// Whether the last range that arrived was a long one.
    private boolean bulk;

    /// Whether the last wait for input was so short that looking again and again would have beaten
    /// sleeping.
    private boolean spinPays = true;

    private long hardLimit = UNARMED;
    private volatile long limit = UNARMED;
    private volatile boolean expired;
    private long received;
    private boolean sent;

    private final Watchdog watchdog;

    /// A wire is watched from here to [#close].
    public Wire(
            SocketChannel channel, EngineConfig config, Watchdog watchdog, Staging.Pair staging) {
        this.channel = channel;
        this.in = staging.in();
        this.inView = in.duplicate();
        this.inSegment = MemorySegment.ofBuffer(in.duplicate().clear());
        this.out = staging.out();
        this.outView = out.duplicate();
        this.gathered = new ByteBuffer[] {out, out};
        this.outSegment = MemorySegment.ofBuffer(out.duplicate().clear());
        this.stallNanos = config.stallTimeout().toNanos();
        this.spinNanos = TimeUnit.MICROSECONDS.toNanos(config.spinMicros());
        this.watchdog = watchdog;
        in.flip();
        watchdog.watch(this);
    }

    /// Starts the clocks: from now on no call may stall longer than the stall limit, nor pass the
    /// deadline.
    public void begin(Deadline deadline) {
        hardLimit = deadline.nanoTime() == UNARMED ? 1 : deadline.nanoTime();
        received = 0;
        sent = false;
    }

    /// As [#begin], with the stall limit only.
    public void begin() {
        hardLimit = System.nanoTime() + Long.MAX_VALUE / 2;
        received = 0;
        sent = false;
    }

    /// Stops the clocks: the connection may now rest as long as it likes.
    public void rest() {
        hardLimit = UNARMED;
        limit = UNARMED;
    }

    /// Whether the peer is on this host.
    public boolean withinHost() {
        try {
            return SocketBuffers.withinHost(channel);
        } catch (IOException e) {
            return false; // closed: the next call says so
        }
    }

    /// Bytes that arrived since [#begin].
    public long received() {
        return received;
    }

    /// Whether any byte may have left since [#begin].
    public boolean hasSent() {
        return sent;
    }

    /// Of a resting connection: whether the peer has closed it, or sent what nobody asked for.
    public boolean isStale() {
        if (in.hasRemaining()) {
            return true;
        }
        try {
            channel.configureBlocking(false);
            try {
                in.clear();
                return channel.read(in) != 0;
            } finally {
                in.flip();
                channel.configureBlocking(true);
            }
        } catch (IOException e) {
            LOG.debug("resting connection is gone: {}", e.toString());
            return true;
        }
    }

    boolean overdue(long now) {
        long seen = limit;
        return seen != UNARMED && seen - now <= 0;
    }

    void expire() {
        expired = true;
        abort();
    }

    public boolean isExpired() {
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
        in.clear().limit(readAhead());
        int got = readSoon(in);
        in.flip();
        return got > 0;
    }

    /// A view of the next `bytes` of input, positioned at the first; relative gets consume it.
    ByteBuffer need(int bytes) throws IOException {
        if (in.remaining() < bytes) {
            in.compact().limit(Math.max(bytes, readAhead()));
            try {
                while (in.position() < bytes) {
                    arm();
                    count(readSoon(in));
                }
            } finally {
                in.flip();
            }
        }
        return in;
    }

    /// The connection as [PeerAuth] sees it; the clocks must run.
    public PeerAuth.Bytes bytes() {
        return new PeerAuth.Bytes() {
            @Override
            public byte[] read(int count) throws IOException {
                var bytes = new byte[count];
                need(count).get(bytes);
                return bytes;
            }

            @Override
            public void write(byte[] bytes) throws IOException {
                room(bytes.length).put(bytes);
                flush();
            }
        };
    }

    private int readAhead() {
        return bulk ? READ_AHEAD : STAGING;
    }

    /// Moves the next `bytes` of input into a region.
    void receive(Region region, long address, long bytes, @Nullable CRC32C sum) throws IOException {
        long offset = address - region.address;
        long left = bytes;
        bulk = bytes >= DIRECT_FROM;
        while (left > 0) {
            int staged = (int) Math.min(left, in.remaining());
            if (staged > 0) {
                unstage(region, offset, staged, sum);
                offset += staged;
                left -= staged;
            } else if (!bulk) {
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
        ByteBuffer target = views.at(region, offset, Math.min(left, CALL_LIMIT));
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
        return count(channel.read(target));
    }

    private int count(int got) throws EOFException {
        if (got < 0) {
            throw new EOFException("the peer closed the connection");
        }
        received += got;
        return got;
    }

    /// Reads what comes first: looks again and again for a moment while that pays, because putting
    /// a thread to sleep and waking it costs more than a short range itself, and then sleeps.
    private int readSoon(ByteBuffer target) throws IOException {
        if (spinNanos > 0 && spinPays && !bulk) {
            int got = readWithoutSleep(target);
            if (got != 0) {
                return got;
            }
        }
        long began = System.nanoTime();
        int got = channel.read(target);
        spinPays = System.nanoTime() - began < spinNanos;
        return got;
    }

    private int readWithoutSleep(ByteBuffer target) throws IOException {
        channel.configureBlocking(false);
        try {
            long end = System.nanoTime() + spinNanos;
            int got = channel.read(target);
            while (got == 0 && System.nanoTime() - end < 0) {
                // Not Thread.yield(): it may give the processor away for milliseconds.
                Thread.onSpinWait();
                got = channel.read(target);
            }
            return got;
        } finally {
            channel.configureBlocking(true);
        }
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
        send(region, address, bytes, sum, false);
    }

    /// As [#send], in one call with what waits in the output buffer.
    void sendWithHead(Region region, long address, long bytes, @Nullable CRC32C sum)
            throws IOException {
        send(region, address, bytes, sum, true);
    }

    /// The sum of a piece is taken once it is on its way, so that the peer works on it meanwhile.
    private void send(
            Region region, long address, long bytes, @Nullable CRC32C sum, boolean gathers)
            throws IOException {
        long offset = address - region.address;
        long left = bytes;
        while (left >= DIRECT_FROM) {
            if (!gathers) {
                flush();
            }
            ByteBuffer source = views.at(region, offset, Math.min(left, CALL_LIMIT));
            int start = source.position();
            int length = source.remaining();
            transmitBehindHead(source);
            if (sum != null) {
                sum.update(source.position(start));
            }
            offset += length;
            left -= length;
        }
        if (left > 0) {
            stage(region, offset, (int) left, sum);
        }
    }

    private void transmitBehindHead(ByteBuffer source) throws IOException {
        if (out.position() > 0) {
            gathered[0] = out.flip();
            gathered[1] = source;
            try {
                while (out.hasRemaining()) {
                    arm();
                    sent = true;
                    channel.write(gathered);
                }
            } finally {
                out.clear();
            }
        }
        transmit(source);
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
            sent = true;
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

    /// Ends whatever call is in progress on this connection, and what was written and has not left
    /// yet is thrown away instead of sent.
    public void abort() {
        try {
            channel.setOption(StandardSocketOptions.SO_LINGER, 0);
        } catch (IOException e) {
            LOG.debug("closed already, or never connected: {}", e.toString());
        }
        end();
    }

    private void end() {
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
        end();
    }
}
