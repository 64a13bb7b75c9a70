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
/// Copying 32 KiB costs about a microsecond, a system call on a loopback socket several. Headers,
/// replies and ranges that follow each other leave in one gathering write, and ranges that follow
/// each other arrive in one scattering read, see [Gathered].
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
    private final Gathered incoming = new Gathered();
    private final Gathered outgoing = new Gathered();

    /// Parts of the output buffer that lie between pieces of regions.
    private final @Nullable ByteBuffer[] outParts = new @Nullable ByteBuffer[Gathered.MOST_STAGED];

    private int outPartsUsed;

    /// Up to here the output buffer is among what goes out.
    private int outQueued;

    private @Nullable CRC32C incomingSum;
    private @Nullable CRC32C outgoingSum;

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
        expect(region, address, bytes, sum);
        receiveExpected();
    }

    /// As [#receive], but long ranges may arrive until [#receiveExpected] returns, together with
    /// those that are expected next.
    void expect(Region region, long address, long bytes, @Nullable CRC32C sum) throws IOException {
        long offset = address - region.address;
        long left = bytes;
        bulk = bytes >= DIRECT_FROM;
        if (!bulk) {
            receiveExpected(); // short ranges pass through the staging buffer, behind those
        }
        incomingSum = sum;
        while (left > 0) {
            int staged = (int) Math.min(left, in.remaining());
            if (staged > 0) {
                unstage(region, offset, staged, sum);
                offset += staged;
                left -= staged;
            } else if (!bulk) {
                need(1);
            } else if (incoming.hasRoom(1)) {
                int length = incoming.addPiece(region, offset, left);
                offset += length;
                left -= length;
            } else {
                receiveSome();
            }
        }
    }

    /// Waits until all that was expected is in place.
    void receiveExpected() throws IOException {
        while (!incoming.isEmpty()) {
            receiveLast();
        }
    }

    /// As [#receiveSome], and with it what comes behind, the next header most likely: it would take
    /// a call of its own.
    private void receiveLast() throws IOException {
        arm();
        in.clear().limit(READ_AHEAD); // empty, or nothing would be expected
        long got;
        try {
            got = incoming.read(channel, in);
        } finally {
            in.flip();
        }
        count(got);
        incoming.dropMoved(incomingSum);
    }

    private void receiveSome() throws IOException {
        arm();
        count(incoming.read(channel));
        incoming.dropMoved(incomingSum);
    }

    private void unstage(Region region, long offset, int bytes, @Nullable CRC32C sum) {
        if (sum != null) {
            sum.update(inView.limit(in.position() + bytes).position(in.position()));
        }
        MemorySegment.copy(inSegment, in.position(), region.memory, offset, bytes);
        in.position(in.position() + bytes);
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

    private long receive(ByteBuffer target) throws IOException {
        arm();
        return count(channel.read(target));
    }

    private long count(long got) throws EOFException {
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

    /// Sends bytes of a region, long ones at [#sendPieces] or [#flush] at the latest; until then
    /// the region must be held.
    ///
    /// @param sum of the bytes, taken once they are on their way, so that the peer works on them
    ///   meanwhile
    void send(Region region, long address, long bytes, @Nullable CRC32C sum) throws IOException {
        long offset = address - region.address;
        long left = bytes;
        while (left >= DIRECT_FROM) {
            if (!outgoing.hasRoom(DIRECT_FROM)) {
                flush();
            }
            outgoingSum = sum;
            queueStaged();
            int length = outgoing.addPiece(region, offset, left);
            offset += length;
            left -= length;
        }
        if (left > 0) {
            stage(region, offset, (int) left, sum);
        }
    }

    private void stage(Region region, long offset, int bytes, @Nullable CRC32C sum)
            throws IOException {
        if (sum != null) {
            sendPieces(); // they are summed first
        }
        room(bytes);
        MemorySegment.copy(region.memory, offset, outSegment, out.position(), bytes);
        if (sum != null) {
            sum.update(outView.limit(out.position() + bytes).position(out.position()));
        }
        out.position(out.position() + bytes);
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

    void flush() throws IOException {
        try {
            if (outgoing.isEmpty()) {
                transmit(out.flip());
            } else {
                queueStaged();
                transmitQueued();
            }
        } finally {
            outgoing.clear();
            outPartsUsed = 0;
            outQueued = 0;
            out.clear();
        }
    }

    /// The content of the output buffer comes before the next piece.
    private void queueStaged() {
        if (out.position() > outQueued) {
            ByteBuffer part = outParts[outPartsUsed];
            if (part == null) {
                part = out.duplicate();
                outParts[outPartsUsed] = part;
            }
            outPartsUsed++;
            outgoing.addStaged(part.limit(out.position()).position(outQueued));
            outQueued = out.position();
        }
    }

    private void transmitQueued() throws IOException {
        while (!outgoing.isEmpty()) {
            arm();
            sent = true;
            outgoing.write(channel);
            outgoing.dropMoved(outgoingSum);
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
            left -= receive(in);
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
