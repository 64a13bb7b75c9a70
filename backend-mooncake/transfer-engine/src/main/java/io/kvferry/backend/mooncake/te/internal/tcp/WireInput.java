// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.internal.memory.Region;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.zip.CRC32C;

/// What arrives over a [Wire]. Ranges that follow each other arrive in one scattering read, see
/// [Gathered].
///
/// Threading: the thread that uses the connection.
final class WireInput {
    private static final Logger LOG = LoggerFactory.getLogger(WireInput.class);

    /// While long ranges arrive, no more than this is read ahead, for it has to be copied.
    private static final int READ_AHEAD = 4 << 10;

    private final WireSocket socket;
    private final CallClock clock;
    private final long spinNanos;
    private final ProcessorRoom processors;
    private final ByteBuffer staging;
    private final ByteBuffer view;
    private final MemorySegment segment;
    private final Gathered incoming;
    private @Nullable CRC32C incomingSum;

    /// A head that arrives in one call with the range behind it. It lies at the end of the staging
    /// buffer, beyond what is read ahead in such calls.
    private final ByteBuffer head;

    /// Bytes of the next expected range that are expected already.
    private long early;

    /// Whether the last range that arrived was a long one.
    private boolean bulk;

    /// Whether the last wait for input was so short that looking again and again would have beaten
    /// sleeping.
    private boolean spinPays = true;

    /// See [#arriving()].
    private @Nullable InputStream arriving;

    private long received;

    /// @param spinNanos how long a wait spins before it sleeps, while [ProcessorRoom] permits it
    WireInput(
            WireSocket socket,
            CallClock clock,
            ByteBuffer staging,
            MemorySegment calls,
            long spinNanos,
            ProcessorRoom processors) {
        this.socket = socket;
        this.incoming = new Gathered(calls);
        this.clock = clock;
        this.spinNanos = spinNanos;
        this.processors = processors;
        this.staging = staging;
        this.view = staging.duplicate();
        this.segment = MemorySegment.ofBuffer(staging.duplicate().clear());
        this.head = staging.duplicate().order(staging.order());
        staging.flip();
    }

    void begin() {
        received = 0;
    }

    /// Bytes that arrived since [#begin].
    long received() {
        return received;
    }

    /// On an idle connection: whether the peer has closed it or sent unrequested bytes.
    boolean isStale() {
        if (staging.hasRemaining()) {
            return true;
        }
        SocketChannel channel = socket.channel;
        try {
            channel.configureBlocking(false);
            try {
                staging.clear();
                return channel.read(staging) != 0;
            } finally {
                staging.flip();
                channel.configureBlocking(true);
            }
        } catch (IOException e) {
            LOG.debug("resting connection is gone: {}", e.toString());
            return true;
        }
    }

    /// On an idle connection: whether the peer has sent unrequested bytes. One system call, where
    /// [#isStale] takes five; does not detect a close.
    boolean hasUnasked() {
        try {
            return staging.hasRemaining() || arriving().available() > 0;
        } catch (IOException e) {
            LOG.debug("resting connection is gone: {}", e.toString());
            return true;
        }
    }

    /// Whether `bytes` can be read without a system call.
    boolean buffered(int bytes) {
        return staging.remaining() >= bytes;
    }

    /// Waits, without a limit, until something can be read; false at the end of the stream.
    boolean await() throws IOException {
        if (staging.hasRemaining()) {
            return true;
        }
        staging.clear().limit(readAhead());
        long got = readFirst();
        staging.flip();
        return got > 0;
    }

    /// A view of the next `bytes` of input, positioned at the first; relative gets consume it.
    ByteBuffer need(int bytes) throws IOException {
        if (staging.remaining() < bytes) {
            staging.compact().limit(Math.max(bytes, readAhead()));
            try {
                while (staging.position() < bytes) {
                    clock.arm();
                    count(readFirst());
                }
            } finally {
                staging.flip();
            }
        }
        return staging;
    }

    /// As [#need], but also receives the start of the range that follows, for which [#expect] is
    /// called next. This saves a system call when both have arrived, and none of the range is
    /// copied. Only if nothing else than that range can follow; a peer that sends a header of
    /// another meaning closes the connection or sends no more.
    ///
    /// @param bytes of the header
    /// @param size of the range
    ByteBuffer needBefore(int bytes, Region region, long address, long size, @Nullable CRC32C sum)
            throws IOException {
        if (staging.hasRemaining() || size < Wire.DIRECT_FROM) {
            return need(bytes);
        }
        socket.expectBulk();
        int start = staging.capacity() - bytes;
        incoming.addStaged(head.clear().position(start), segment.address());
        early = incoming.addPiece(region, address - region.address, size);
        incomingSum = sum;
        long began = spin();
        receiveSome();
        spun(began);
        while (head.hasRemaining()) {
            spinForMore();
            receiveSome();
        }
        return head.position(start);
    }

    private int readAhead() {
        return bulk ? READ_AHEAD : Wire.STAGING;
    }

    /// Moves the next `bytes` of input into a region.
    void receive(Region region, long address, long bytes, @Nullable CRC32C sum) throws IOException {
        expect(region, address, bytes, sum);
        receiveExpected();
    }

    /// As [#receive], but long ranges may arrive until [#receiveExpected] returns, together with
    /// those that are expected next.
    void expect(Region region, long address, long bytes, @Nullable CRC32C sum) throws IOException {
        long offset = address - region.address + early;
        long left = bytes - early;
        early = 0;
        bulk = bytes >= Wire.DIRECT_FROM;
        if (bulk) {
            socket.expectBulk();
        } else {
            receiveExpected(); // short ranges pass through the staging buffer, behind those
        }
        incomingSum = sum;
        while (left > 0) {
            int staged = (int) Math.min(left, staging.remaining());
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
                spinForMore();
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
        clock.arm();
        spinForMore();
        staging.clear().limit(READ_AHEAD); // empty, or nothing would be expected
        long got;
        try {
            got = incoming.read(socket, staging, segment.address());
        } finally {
            staging.flip();
        }
        count(got);
        incoming.dropMoved(incomingSum);
    }

    private void receiveSome() throws IOException {
        clock.arm();
        count(incoming.read(socket));
        incoming.dropMoved(incomingSum);
    }

    private void unstage(Region region, long offset, int bytes, @Nullable CRC32C sum) {
        if (sum != null) {
            sum.update(view.limit(staging.position() + bytes).position(staging.position()));
        }
        MemorySegment.copy(segment, staging.position(), region.memory, offset, bytes);
        staging.position(staging.position() + bytes);
    }

    /// Throws input away, at most `bytes` of it.
    void discard(long bytes) throws IOException {
        long left = bytes;
        while (left > 0) {
            need(1);
            int staged = (int) Math.min(left, staging.remaining());
            staging.position(staging.position() + staged);
            left -= staged;
        }
    }

    /// Throws away what arrives until `bytes` have, or the peer closes the connection.
    ///
    /// @throws EOFException when it does
    void drain(long bytes) throws IOException {
        long left = bytes;
        while (left > 0) {
            staging.clear();
            try {
                clock.arm();
                left -= count(socket.read(staging, segment.address()));
            } finally {
                staging.clear().limit(0);
            }
        }
    }

    private long count(long got) throws EOFException {
        if (got < 0) {
            throw new EOFException("the peer closed the connection");
        }
        received += got;
        clock.moved(got);
        return got;
    }

    /// Reads what comes first into the staging buffer. Looks again and again for a moment while
    /// that pays and there are processors for it, because putting a thread to sleep and waking it
    /// costs more than a short range itself.
    private long readFirst() throws IOException {
        if (!mayLook()) {
            return socket.read(staging, segment.address());
        }
        long began = System.nanoTime();
        long got = spinPays ? lookAndRead(began) : 0;
        if (got == 0) {
            got = socket.read(staging, segment.address());
        }
        spun(began);
        return got;
    }

    /// A look that finds something has read it: one call less.
    private long lookAndRead(long began) throws IOException {
        if (!socket.canLook()) {
            look(began);
            return 0;
        }
        long got;
        do {
            got = socket.readNow(staging, segment.address());
        } while (got == 0 && mayLookAgain(began));
        return got;
    }

    /// Before a read of what comes first into a region, likewise.
    ///
    /// @return when it began, for [#spun]; 0 where it may not
    private long spin() throws IOException {
        if (!mayLook()) {
            return 0;
        }
        long began = System.nanoTime();
        if (spinPays) {
            look(began);
        }
        return began;
    }

    /// Before a read of more of a long range, likewise: within a host the peer is about to send it.
    private void spinForMore() throws IOException {
        if (spinPays && socket.isNear() && mayLook()) {
            look(System.nanoTime());
        }
    }

    /// A look is one call, which says how much can be read; at the end of the stream that is
    /// nothing, and the read behind says so.
    private void look(long began) throws IOException {
        InputStream input = arriving();
        while (input.available() == 0 && mayLookAgain(began)) {}
    }

    private boolean mayLook() {
        return spinNanos != 0 && processors.leaveRoomToSpin();
    }

    private boolean mayLookAgain(long began) {
        if (!processors.leaveRoomToSpin() || System.nanoTime() - began >= spinNanos) {
            return false;
        }
        Thread.yield(); // the peer may need this very processor
        return true;
    }

    /// Asked what can be read, and nothing else. Made once, for the JDK makes one for each call.
    private InputStream arriving() throws IOException {
        if (arriving == null) {
            arriving = socket.channel.socket().getInputStream();
        }
        return arriving;
    }

    /// Behind that read.
    private void spun(long began) {
        if (began != 0) {
            spinPays = System.nanoTime() - began < spinNanos;
        }
    }
}
