// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;

/// The frames of ZMTP 3 (RFC 23) on one connection: `flags | u8 size | body`, or `flags | u64 size
/// | body`, big-endian.
///
/// Nothing that a peer announces is trusted: sizes are checked before memory is taken, and memory
/// is taken as bytes arrive, from a budget that all connections share.
///
/// Threading: one thread reads, one at a time writes.
final class ZmtpStream {
    static final int MORE = 1;
    static final int LONG = 2;
    static final int COMMAND = 4;

    private static final int BUFFER_BYTES = 8192;

    /// Most bytes of one system call, which also bounds the JDK's copy of them outside the heap.
    private static final int CALL_BYTES = 32 << 10;

    private static final int MOST_HEADER = 1 + Long.BYTES;

    private final Socket socket;
    private final InputStream in;
    private final OutputStream out;
    private final ReceiveRoom room;
    private final byte[] buffer = new byte[BUFFER_BYTES];
    private int from;
    private int to;
    private long held;

    /// @param body null where it was thrown away
    record Frame(int flags, byte @Nullable [] body) {
        boolean more() {
            return (flags & MORE) != 0;
        }

        boolean command() {
            return (flags & COMMAND) != 0;
        }

        byte[] bytes() {
            var bytes = body;
            if (bytes == null) {
                throw new IllegalStateException("the frame was thrown away");
            }
            return bytes;
        }
    }

    ZmtpStream(SocketChannel channel, ReceiveRoom room) throws IOException {
        this.socket = channel.socket();
        this.in = socket.getInputStream();
        this.out = socket.getOutputStream();
        this.room = room;
    }

    byte[] read(int bytes, Deadline deadline) throws IOException {
        var read = new byte[bytes];
        fill(read, 0, bytes, deadline);
        return read;
    }

    /// Waits for the first byte of a frame; once it is there the rest must come within `limit`.
    ///
    /// @param wait for the first byte; null to wait for ever
    /// @param most bytes of the body
    /// @param keep whether the body is wanted
    /// @throws KvFerryException [ErrorCode#PROTOCOL] for a frame that breaks the protocol,
    ///   [ErrorCode#NO_MEMORY] when too much is being received
    Frame frame(@Nullable Deadline wait, Duration limit, int most, boolean keep)
            throws IOException {
        if (from == to) {
            from = 0;
            to = 0; // so that a failure leaves nothing half read
            to = some(buffer, 0, BUFFER_BYTES, wait);
        }
        var deadline = Deadline.in(limit);
        if (wait != null) {
            deadline = deadline.earlier(wait);
        }
        int flags = next(deadline);
        if ((flags & ~(MORE | LONG | COMMAND)) != 0
                || (flags & (MORE | COMMAND)) == (MORE | COMMAND)) {
            throw new KvFerryException(ErrorCode.PROTOCOL, "ZMTP frame with flags " + flags);
        }
        long size = 0;
        for (int n = (flags & LONG) != 0 ? Long.BYTES : 1; n > 0; n--) {
            size = size << 8 | next(deadline);
        }
        if (size < 0 || size > most) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL,
                    "ZMTP frame of " + Long.toUnsignedString(size) + " bytes; allowed are " + most);
        }
        if (keep) {
            return new Frame(flags, body((int) size, deadline));
        }
        skip((int) size, deadline);
        return new Frame(flags, null);
    }

    private byte[] body(int size, Deadline deadline) throws IOException {
        var body = new byte[Math.min(size, BUFFER_BYTES)];
        int filled = 0;
        while (filled < size) {
            if (filled == body.length) {
                int larger = (int) Math.min(size, body.length * 2L);
                take(larger - body.length, deadline);
                body = Arrays.copyOf(body, larger);
            }
            fill(body, filled, body.length - filled, deadline);
            filled = body.length;
        }
        return body;
    }

    private void take(int bytes, Deadline deadline) {
        if (!room.take(bytes, deadline)) {
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY, "too many bytes of messages are being received");
        }
        held += bytes;
    }

    /// Waits for the first byte of a frame.
    ///
    /// @return false when none has come in time
    boolean awaitByte(Deadline deadline) throws IOException {
        if (from != to) {
            return true;
        }
        from = 0;
        to = 0;
        try {
            to = some(buffer, 0, BUFFER_BYTES, deadline);
            return true;
        } catch (SocketTimeoutException _) {
            return false;
        }
    }

    /// Whether bytes have come that were not part of a frame so far.
    boolean hasUnread() {
        return from != to;
    }

    /// The bodies read so far are not needed any more.
    void release() {
        room.give(held);
        held = 0;
    }

    private void skip(int bytes, Deadline deadline) throws IOException {
        int left = bytes;
        while (left > 0) {
            if (from == to) {
                from = 0;
                to = 0;
                to = some(buffer, 0, BUFFER_BYTES, deadline);
            }
            int skipped = Math.min(left, to - from);
            from += skipped;
            left -= skipped;
        }
    }

    private int next(Deadline deadline) throws IOException {
        if (from == to) {
            from = 0;
            to = 0;
            to = some(buffer, 0, BUFFER_BYTES, deadline);
        }
        return buffer[from++] & 0xFF;
    }

    private void fill(byte[] target, int offset, int bytes, Deadline deadline) throws IOException {
        int buffered = Math.min(bytes, to - from);
        System.arraycopy(buffer, from, target, offset, buffered);
        from += buffered;
        for (int filled = buffered; filled < bytes; ) {
            filled += some(target, offset + filled, bytes - filled, deadline);
        }
    }

    private int some(byte[] target, int offset, int bytes, @Nullable Deadline deadline)
            throws IOException {
        int millis = 0;
        if (deadline != null) {
            long left = deadline.remaining().toMillis();
            if (left <= 0) {
                throw new SocketTimeoutException("no byte in time");
            }
            millis = (int) Math.min(left, Integer.MAX_VALUE);
        }
        socket.setSoTimeout(millis);
        int got = in.read(target, offset, Math.min(bytes, CALL_BYTES));
        if (got < 0) {
            throw new EOFException("the peer closed the connection");
        }
        return got;
    }

    void write(byte[] bytes) throws IOException {
        for (int done = 0; done < bytes.length; done += CALL_BYTES) {
            out.write(bytes, done, Math.min(CALL_BYTES, bytes.length - done));
        }
    }

    void write(int flags, byte[] body) throws IOException {
        write(List.of(new Frame(flags, body)));
    }

    /// Frames that fit leave in one call.
    void write(List<Frame> frames) throws IOException {
        var gathered = ByteBuffer.allocate(callBytes(frames));
        for (var frame : frames) {
            var body = frame.bytes();
            if (gathered.remaining() < MOST_HEADER + body.length) {
                flush(gathered);
            }
            boolean isLong = body.length > 255;
            gathered.put((byte) (isLong ? frame.flags() | LONG : frame.flags()));
            if (isLong) {
                gathered.putLong(body.length);
            } else {
                gathered.put((byte) body.length);
            }
            if (body.length <= gathered.remaining()) {
                gathered.put(body);
            } else {
                flush(gathered);
                write(body);
            }
        }
        flush(gathered);
    }

    private static int callBytes(List<Frame> frames) {
        long bytes = 0;
        for (var frame : frames) {
            bytes += MOST_HEADER + frame.bytes().length;
        }
        return (int) Math.min(bytes, CALL_BYTES);
    }

    private void flush(ByteBuffer written) throws IOException {
        if (written.position() > 0) {
            out.write(written.array(), 0, written.position());
            written.clear();
        }
    }
}
