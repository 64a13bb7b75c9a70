// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import io.kvferry.backend.mooncake.te.internal.memory.UseGate;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.net.DataSockets;
import io.kvferry.toolkit.net.SocketCalls;
import io.kvferry.toolkit.net.SocketDescriptors;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.channels.spi.AbstractInterruptibleChannel;
import java.time.Duration;

/// The socket of a [Wire]: a channel and, once it carries long ranges or many short ones, system
/// calls on the channel's own descriptor. The channel's calls take locks and allocate, which cost a
/// READ of 64 KiB 6 % of its processor time.
///
/// After the channel is closed its descriptor may be reused for another file, and the channel
/// cannot end a call that it does not know of. So a direct call holds a gate, and the channel is
/// closed only after all calls have left it:
///
/// - Reads block in the kernel. A close shuts the input down first, which wakes them and sends
///   nothing to the peer. An interrupt of the reading thread closes as for a channel.
/// - Sends do not block; what does not fit into the socket buffer goes through the channel.
///
/// Virtual threads use the channel, which releases their carrier while it waits.
///
/// Threading: one thread at a time reads and writes; [#close], [#shutdownOutput] and
/// [#resetOnClose] may be called from any.
final class WireSocket extends AbstractInterruptibleChannel {
    private static final Logger LOG = LoggerFactory.getLogger(WireSocket.class);

    /// For a thread that has been woken to leave a call.
    private static final Duration LONGEST_WAKING = Duration.ofSeconds(1);

    /// A connection that has been waited for so often carries requests again and again.
    private static final int LOOKS_WITHOUT_SEARCH = 16;

    /// No system call was made, or the channel must be used instead.
    private static final long FAILED = Long.MIN_VALUE;

    final SocketChannel channel;
    private final UseGate calls = new UseGate();
    private int descriptor = SocketDescriptors.NONE;
    private boolean searched;
    private int looks;
    private boolean bulk;
    private boolean near;

    WireSocket(SocketChannel channel) {
        this.channel = channel;
    }

    /// Before the first long range, in either direction. Requests and receipts for what comes wait
    /// for no timer either from then on.
    void expectBulk() {
        if (!bulk) {
            bulk = true;
            searched = true;
            search(true);
        }
    }

    /// Finds the descriptor and whether the peer is near.
    private void search(boolean forBulk) {
        if (!calls.enter()) {
            return; // closed: the next call says so
        }
        try {
            int found = descriptor;
            if (found == SocketDescriptors.NONE) {
                found = SocketDescriptors.find(channel);
                near = DataSockets.isWithinHost(channel);
                descriptor = SocketCalls.available() ? found : SocketDescriptors.NONE;
            }
            if (forBulk) {
                DataSockets.expectBulk(channel, found);
            }
        } catch (IOException e) {
            LOG.debug("a connection has no descriptor: {}", e.toString());
        } finally {
            leave();
        }
    }

    /// Whether the peer is on this host; known since [#expectBulk] at the latest.
    boolean isNear() {
        return near;
    }

    /// Whether [#readNow] can be called by this thread. Not at first: searching for a descriptor
    /// costs more than a few looks, and any stranger can open a connection.
    boolean canLook() {
        if (!searched && ++looks > LOOKS_WITHOUT_SEARCH) {
            searched = true;
            search(false);
        }
        return isDirect();
    }

    /// Whether system calls are made for this thread. An interrupt in a call of the channel has
    /// closed it past the gate when that call returns, and its descriptor may be another
    /// connection's.
    boolean isDirect() {
        return descriptor >= 0 && channel.isOpen() && !Thread.currentThread().isVirtual();
    }

    /// As [SocketChannel#read(ByteBuffer)].
    ///
    /// @param start address of the buffer's first byte
    long read(ByteBuffer target, long start) throws IOException {
        if (isDirect()) {
            long got = receive(start + target.position(), target.remaining(), false);
            if (got != FAILED) {
                advance(target, got);
                return got == 0 ? -1 : got;
            }
        }
        return channel.read(target);
    }

    /// As [SocketChannel#read(ByteBuffer)], but only reads what has arrived. Only while calls are
    /// direct.
    ///
    /// @param start address of the buffer's first byte
    /// @return 0 when nothing has arrived, and at the end of the stream, which only a blocking read
    ///   reports
    long readNow(ByteBuffer target, long start) throws IOException {
        if (!calls.enter()) {
            return 0;
        }
        long got;
        try {
            got = SocketCalls.readNow(descriptor, start + target.position(), target.remaining());
        } finally {
            leave();
        }
        if (got > 0) {
            advance(target, got);
            return got;
        }
        if (got == 0 || isPassing(got)) {
            return 0;
        }
        throw SocketCalls.failure(got);
    }

    /// As [SocketChannel#read(ByteBuffer[], int, int)], of buffers of which there are several.
    ///
    /// @param starts addresses of their first bytes
    /// @param vectors room for one for each
    long read(ByteBuffer[] targets, long[] starts, int count, MemorySegment vectors)
            throws IOException {
        if (isDirect()) {
            setVectors(targets, starts, count, vectors);
            long got = receive(vectors.address(), count, true);
            if (got != FAILED) {
                advance(targets, got);
                return got == 0 ? -1 : got;
            }
        }
        return channel.read(targets, 0, count);
    }

    /// Into `count` bytes from there, or into the memory of `count` vectors that are there.
    ///
    /// @return bytes, 0 at the end of the stream, or [#FAILED]
    private long receive(long address, int count, boolean vectors) throws IOException {
        long got = FAILED;
        begin(); // before the call holds the gate: an interrupt that has been closes here
        try {
            if (calls.enter()) {
                try {
                    got =
                            vectors
                                    ? SocketCalls.readVectors(descriptor, address, count)
                                    : SocketCalls.read(descriptor, address, count);
                } finally {
                    leave();
                }
            }
        } finally {
            end(got > 0);
        }
        return checked(got);
    }

    private long checked(long got) throws IOException {
        if (got >= 0 || got == FAILED) {
            return got;
        }
        if (isPassing(got)) {
            // Of a descriptor that does not wait, as one is that a virtual thread has used, each
            // call would fail.
            descriptor = SocketDescriptors.NONE;
            return FAILED;
        }
        throw SocketCalls.failure(got); // the channel would not see this error again
    }

    private static boolean isPassing(long got) {
        return got == -SocketCalls.EAGAIN || got == -SocketCalls.EINTR;
    }

    /// As [SocketChannel#write(ByteBuffer)], but may send a part.
    ///
    /// @param start address of the buffer's first byte
    long write(ByteBuffer source, long start) throws IOException {
        if (isDirect() && calls.enter()) {
            long put = FAILED;
            try {
                put =
                        SocketCalls.sendNow(
                                descriptor, start + source.position(), source.remaining());
            } finally {
                leave();
            }
            if (put > 0) {
                advance(source, put);
                return put;
            }
        }
        return channel.write(source);
    }

    /// As [SocketChannel#write(ByteBuffer[], int, int)], of buffers of which there are several, but
    /// may send a part.
    ///
    /// @param starts addresses of their first bytes
    /// @param vectors room for one for each
    /// @param message of zeros
    long write(
            ByteBuffer[] sources,
            long[] starts,
            int count,
            MemorySegment vectors,
            MemorySegment message)
            throws IOException {
        if (isDirect() && calls.enter()) {
            long put = FAILED;
            try {
                setVectors(sources, starts, count, vectors);
                SocketCalls.setMessage(message, vectors.address(), count);
                put = SocketCalls.sendMessageNow(descriptor, message.address());
            } finally {
                leave();
            }
            if (put > 0) {
                advance(sources, put);
                return put;
            }
        }
        return channel.write(sources, 0, count);
    }

    private static void setVectors(
            ByteBuffer[] buffers, long[] starts, int count, MemorySegment vectors) {
        for (int i = 0; i < count; i++) {
            ByteBuffer buffer = buffers[i];
            SocketCalls.setVector(vectors, i, starts[i] + buffer.position(), buffer.remaining());
        }
    }

    private static void advance(ByteBuffer[] buffers, long bytes) {
        long left = bytes;
        for (int i = 0; left > 0; i++) {
            long part = Math.min(left, buffers[i].remaining());
            advance(buffers[i], part);
            left -= part;
        }
    }

    private static void advance(ByteBuffer buffer, long bytes) {
        buffer.position(buffer.position() + (int) bytes);
    }

    /// The last one out closes for whoever could not wait.
    private void leave() {
        calls.exit();
        if (calls.isOver()) {
            try {
                channel.close();
            } catch (IOException e) {
                LOG.debug("closing behind a call failed: {}", e.toString());
            }
        }
    }

    /// Whether neither this nor the channel has been closed; an interrupt closes one of them.
    boolean isUsable() {
        return isOpen() && channel.isOpen();
    }

    void shutdownOutput() throws IOException {
        channel.shutdownOutput();
    }

    /// What was written and has not left is thrown away by [#close].
    void resetOnClose() throws IOException {
        channel.setOption(StandardSocketOptions.SO_LINGER, 0);
    }

    /// Once, and all closers wait for it. Ends calls, the channel's among them.
    @Override
    protected void implCloseChannel() throws IOException {
        calls.close();
        if (!calls.isOver()) {
            wake();
            if (!calls.awaitIdle(Deadline.in(LONGEST_WAKING))) {
                LOG.warn("a thread is still in a call on a socket; it will close it");
                return;
            }
        }
        channel.close();
    }

    private void wake() {
        try {
            channel.shutdownInput();
        } catch (IOException e) {
            LOG.debug("the input cannot be ended: {}", e.toString());
        }
    }
}
