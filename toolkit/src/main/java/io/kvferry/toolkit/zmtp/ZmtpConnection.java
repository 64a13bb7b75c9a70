// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.bounded.GrowSafeQueue;
import io.kvferry.toolkit.net.ClosingAside;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/// A ZMTP connection after its handshake. Messages are single frames; a multipart message is
/// dropped.
///
/// Threading: [#receive] from one thread; the rest from any. A virtual thread sends queued
/// messages; it exists while there are any.
final class ZmtpConnection implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(ZmtpConnection.class);

    /// From the first byte of a frame to its last.
    private static final Duration FRAME_LIMIT = Duration.ofSeconds(30);

    /// How long a peer may take to read what was sent.
    private static final Duration WRITE_LIMIT = Duration.ofSeconds(30);

    /// Unsent bytes of one connection.
    private static final long MOST_UNSENT_BYTES = 2L * SideChannel.MAX_MESSAGE_BYTES;

    /// Unsent bytes that every connection may hold. More comes from a budget shared by all
    /// connections, so that peers that do not read exhaust neither the memory nor the share of
    /// other peers.
    static final long OWN_UNSENT_BYTES = 16 << 10;

    private static final int MOST_UNSENT = 1 << 14;

    /// Frames that leave in one system call.
    private static final int BATCH_BYTES = 24 << 10;

    private static final int MOST_IN_BATCH = 512;

    private final SocketChannel channel;
    private final ZmtpStream stream;
    private final Optional<CurveSession> curve;
    private final boolean shared;
    private final String identity;
    private final ByteBudget unsentRoom;
    private final ScheduledExecutorService clock;
    private final ReentrantLock lock = new ReentrantLock();
    private final GrowSafeQueue<ZmtpStream.Frame> unsent = new GrowSafeQueue<>();
    private long unsentBytes;
    private long sharedBytes;
    private boolean writing;
    private boolean multipart;
    private volatile long lastHeard = System.nanoTime();
    private volatile Runnable sent = () -> {};
    private volatile boolean closed;

    private ZmtpConnection(
            SocketChannel channel,
            ZmtpStream stream,
            ZmtpHandshake.Agreed agreed,
            ByteBudget unsentRoom,
            ScheduledExecutorService clock) {
        this.channel = channel;
        this.stream = stream;
        this.curve = agreed.curve();
        this.shared = agreed.shared();
        this.identity = agreed.identity();
        this.unsentRoom = unsentRoom;
        this.clock = clock;
    }

    /// Makes the handshake on a connected socket, which the caller closes if this throws.
    ///
    /// @param room for what is being received
    /// @param unsentRoom for what is to be sent
    /// @param clock cuts off writes that a peer does not read
    static ZmtpConnection open(
            SocketChannel channel,
            ZmtpHandshake.Terms terms,
            Deadline deadline,
            ReceiveRoom room,
            ByteBudget unsentRoom,
            ScheduledExecutorService clock)
            throws IOException {
        var stream = new ZmtpStream(channel, room);
        var agreed = ZmtpHandshake.run(stream, terms, deadline);
        return new ZmtpConnection(channel, stream, agreed, unsentRoom, clock);
    }

    /// Whether both ends have exchanges share it.
    boolean shared() {
        return shared;
    }

    /// What the peer calls itself; empty for nothing.
    String identity() {
        return identity;
    }

    /// When the last frame came, also one that is no message.
    long lastHeard() {
        return lastHeard;
    }

    /// @param action runs whenever something has left, on the thread that sends
    void onSent(Runnable action) {
        sent = action;
    }

    /// Bytes of messages that have not left.
    long unsentBytes() {
        lock.lock();
        try {
            return unsentBytes;
        } finally {
            lock.unlock();
        }
    }

    /// The next message; waits for it without limit.
    ///
    /// @throws KvFerryException [ErrorCode#PROTOCOL], [ErrorCode#NO_MEMORY]
    byte[] receive() throws IOException {
        return receive(null);
    }

    /// The next message.
    ///
    /// @param wait until it must have come; null for no limit but that of a frame that has begun
    /// @throws KvFerryException [ErrorCode#PROTOCOL], [ErrorCode#NO_MEMORY]
    byte[] receive(@Nullable Deadline wait) throws IOException {
        while (true) {
            var frame = next(wait);
            if (frame.command()) {
                obey(frame.bytes());
                release();
            } else if (frame.more() || multipart) {
                multipart = frame.more();
                release();
            } else {
                return frame.bytes();
            }
        }
    }

    /// Waits until something comes, which [#receive] then takes.
    ///
    /// @return false when nothing has come in time
    boolean awaitByte(Deadline deadline) throws IOException {
        return stream.awaitByte(deadline);
    }

    private ZmtpStream.Frame next(@Nullable Deadline wait) throws IOException {
        // A box adds 33 bytes to a message.
        int most =
                SideChannel.MAX_MESSAGE_BYTES
                        + (shared ? ExchangeFrame.HEADER_BYTES : 0)
                        + (curve.isPresent() ? 33 : 0);
        var frame = stream.frame(wait, FRAME_LIMIT, most, true);
        lastHeard = System.nanoTime();
        return curve.isPresent() ? curve.get().decrypt(frame.bytes()) : frame;
    }

    /// The memory of what was received last is not needed any more.
    void release() {
        stream.release();
    }

    private void obey(byte[] command) {
        if (ZmtpHandshake.isNamed(command, "PING") && command.length >= 7) {
            var context = Arrays.copyOfRange(command, 7, Math.min(command.length, 7 + 16));
            post(ZmtpStream.COMMAND, ZmtpHandshake.command("PONG", context), true);
        } else if (ZmtpHandshake.isNamed(command, "ERROR")) {
            throw new KvFerryException(ErrorCode.PEER_REFUSED, "the peer sent an ERROR");
        }
    }

    /// Queues a message.
    ///
    /// @return false when the connection is closed or the peer does not read
    boolean send(byte[] message) {
        return post(0, message, true);
    }

    /// As [#send], but on the calling thread, which blocks until the peer has room. If another
    /// thread is sending, the message is queued.
    ///
    /// @param limit after which the connection of a peer that does not read is closed
    /// @return as [#send]
    boolean sendHere(byte[] message, Duration limit) {
        lock.lock();
        try {
            if (closed) {
                return false;
            }
            if (writing || !hold(message.length)) {
                return post(0, message, true);
            }
            writing = true;
        } finally {
            lock.unlock();
        }
        try {
            write(List.of(new ZmtpStream.Frame(0, message)), limit);
            sent.run();
        } catch (IOException | RuntimeException | Error e) {
            LOG.debug("connection lost while sending: {}", e.toString());
            close();
        }
        boolean more;
        lock.lock();
        try {
            if (!closed) {
                drop(message.length);
            }
            more = !unsent.isEmpty();
            writing = more;
        } finally {
            lock.unlock();
        }
        if (more) {
            startWriting();
        }
        return !closed;
    }

    /// Whether the connection is open, as far as this end knows, and has no unread input. Must not
    /// be called while another thread receives.
    boolean isQuiet() {
        if (closed || stream.hasUnread()) {
            return false;
        }
        try {
            channel.configureBlocking(false);
            try {
                return channel.read(ByteBuffer.allocate(1)) == 0;
            } finally {
                channel.configureBlocking(true);
            }
        } catch (IOException e) {
            LOG.debug("connection lost at rest: {}", e.toString());
            return false;
        }
    }

    /// As [#send], but if there is no room the message is dropped and the connection stays open.
    boolean offer(byte[] message) {
        return post(0, message, false);
    }

    /// Asks the peer for a sign of life.
    void ping() {
        post(ZmtpStream.COMMAND, ZmtpHandshake.command("PING", new byte[2]), false);
    }

    /// @param must whether want of room ends the connection
    private boolean post(int flags, byte[] body, boolean must) {
        boolean start;
        lock.lock();
        try {
            if (closed) {
                return false;
            }
            if (unsent.size() >= MOST_UNSENT || !hold(body.length)) {
                if (must) {
                    closeSoon(); // who does not read hears at least that there is no more
                }
                return false;
            }
            queue(flags, body);
            start = !writing;
            writing = true;
        } finally {
            lock.unlock();
        }
        return !start || startWriting();
    }

    /// Under the lock, with room held for it.
    private void queue(int flags, byte[] body) {
        boolean queued = false;
        try {
            queued = unsent.add(new ZmtpStream.Frame(flags, body));
        } finally {
            if (!queued) { // no memory
                drop(body.length);
            }
        }
    }

    /// Under the lock.
    private boolean hold(int bytes) {
        long all = unsentBytes + bytes;
        long shared = Math.max(0, all - OWN_UNSENT_BYTES);
        if (all > MOST_UNSENT_BYTES || !unsentRoom.take(shared - sharedBytes)) {
            return false;
        }
        unsentBytes = all;
        sharedBytes = shared;
        return true;
    }

    /// Under the lock.
    private void drop(long bytes) {
        unsentBytes -= bytes;
        long shared = Math.max(0, unsentBytes - OWN_UNSENT_BYTES);
        unsentRoom.give(sharedBytes - shared);
        sharedBytes = shared;
    }

    private boolean startWriting() {
        try {
            var _ = Thread.ofVirtual().name("zmtp-write").start(this::write);
            return true;
        } catch (RejectedExecutionException | OutOfMemoryError e) {
            close();
            return false;
        }
    }

    private void write() {
        try {
            var batch = batchAfter(List.of());
            while (!batch.isEmpty()) {
                write(batch, WRITE_LIMIT);
                batch = batchAfter(batch);
                sent.run();
            }
        } catch (IOException | RuntimeException | Error e) {
            LOG.debug("connection lost while sending: {}", e.toString());
            close();
        }
    }

    /// What leaves next, together; empty for nothing.
    ///
    /// @param gone what has left before
    private List<ZmtpStream.Frame> batchAfter(List<ZmtpStream.Frame> gone) {
        lock.lock();
        try {
            for (var frame : gone) {
                if (unsent.poll() == null) { // closed meanwhile
                    return List.of();
                }
                drop(frame.bytes().length);
            }
            var batch = new ArrayList<ZmtpStream.Frame>();
            int bytes = 0;
            for (var frame : unsent) {
                bytes += frame.bytes().length;
                if (!batch.isEmpty() && (bytes > BATCH_BYTES || batch.size() == MOST_IN_BATCH)) {
                    break;
                }
                batch.add(frame);
            }
            writing = !batch.isEmpty();
            return batch;
        } finally {
            lock.unlock();
        }
    }

    private void write(List<ZmtpStream.Frame> batch, Duration limit) throws IOException {
        var late = clock.schedule(this::closeSoon, limit.toNanos(), TimeUnit.NANOSECONDS);
        try {
            stream.write(curve.isEmpty() ? batch : encrypted(curve.get(), batch));
        } finally {
            late.cancel(false);
        }
    }

    private static List<ZmtpStream.Frame> encrypted(
            CurveSession curve, List<ZmtpStream.Frame> batch) {
        var encrypted = new ArrayList<ZmtpStream.Frame>(batch.size());
        for (var frame : batch) {
            encrypted.add(new ZmtpStream.Frame(0, curve.encrypt(frame.flags(), frame.bytes())));
        }
        return encrypted;
    }

    boolean isClosed() {
        return closed;
    }

    private void closeSoon() { // not on the clock's thread
        ClosingAside.close(this::close);
    }

    @Override
    public void close() {
        lock.lock();
        try {
            closed = true;
            unsent.clear();
            drop(unsentBytes);
        } finally {
            lock.unlock();
        }
        try {
            channel.close();
        } catch (IOException e) {
            LOG.debug("closing a connection failed: {}", e.toString());
        }
    }
}
