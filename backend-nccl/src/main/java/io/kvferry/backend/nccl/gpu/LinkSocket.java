// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.plane.PlanePort;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.ByteBudget;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/// The control connection of a link: frames of a length (i32, little endian) and a message.
///
/// Threading: any thread sends, without waiting; one virtual thread writes and one reads, which
/// calls what was given to [#start].
final class LinkSocket {
    private static final Logger LOG = LoggerFactory.getLogger(LinkSocket.class);

    /// Bytes that may wait for a peer that does not read.
    private static final long MOST_WAITING = 4 << 20;

    /// Messages of the peer that may wait to be heard; then nothing more is read of it.
    static final int MOST_UNHEARD = 1024;

    private static final Duration LOOK = Duration.ofMillis(100);

    private static final byte[] NO_MORE = {};

    private final String name;
    private final SocketChannel channel;
    private final LinkedBlockingQueue<byte[]> waiting = new LinkedBlockingQueue<>();
    private final ByteBudget room = new ByteBudget(MOST_WAITING);
    private final Semaphore unheard = new Semaphore(MOST_UNHEARD);

    LinkSocket(String name, SocketChannel channel) {
        this.name = name;
        this.channel = channel;
    }

    /// Starts the threads that read and write.
    ///
    /// @param heard receives the peer's messages, and must call [#heard] after each
    /// @param lost called once when the connection has ended, whichever side closed it
    void start(Consumer<LinkMessage> heard, Consumer<Failure> lost) {
        var _ = Thread.ofVirtual().name(name + "-write").start(this::write);
        var _ = Thread.ofVirtual().name(name + "-read").start(() -> lost.accept(read(heard)));
    }

    /// A message has been heard: there is room for one more.
    void heard() {
        unheard.release();
    }

    /// Queues a message; where too much waits already the connection is closed.
    void send(LinkMessage message) {
        var frame = message.encode();
        if (room.take(frame.length)) {
            waiting.add(frame);
        } else {
            LOG.debug("{}: the peer does not read", name);
            close();
        }
    }

    /// Sends one last message on a connection that was not started, and closes it.
    void sendLast(LinkMessage message) {
        send(message);
        waiting.add(NO_MORE);
        var _ = Thread.ofVirtual().name(name + "-write").start(this::write);
    }

    private Failure read(Consumer<LinkMessage> heard) {
        try {
            while (true) {
                var message = readMessage(channel);
                while (!unheard.tryAcquire(LOOK.toMillis(), TimeUnit.MILLISECONDS)) {
                    if (!channel.isOpen()) {
                        throw new ClosedChannelException();
                    }
                }
                heard.accept(message);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return new Failure(ErrorCode.CANCELLED, "interrupted");
        } catch (KvFerryException e) {
            return Failure.of(e);
        } catch (IOException e) {
            return new Failure(ErrorCode.PEER_LOST, "the control connection ended: " + e);
        } catch (RuntimeException | Error e) { // any failure must end the link
            return Failure.of(e);
        } finally {
            close();
        }
    }

    private void write() {
        try {
            while (true) {
                var frame = waiting.take();
                if (frame == NO_MORE) {
                    return;
                }
                writeFrame(channel, frame);
                room.give(frame.length);
            }
        } catch (IOException e) {
            LOG.debug("{}: writing ends: {}", name, e.toString());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } finally {
            close(); // which ends the reader
        }
    }

    /// Ends it; what waits is not sent.
    void close() {
        waiting.add(NO_MORE);
        PlanePort.closeQuietly(channel);
    }

    static void writeMessage(SocketChannel to, LinkMessage message) throws IOException {
        writeFrame(to, message.encode());
    }

    private static void writeFrame(SocketChannel to, byte[] frame) throws IOException {
        var buffer = ByteBuffer.allocate(Integer.BYTES + frame.length);
        buffer.order(ByteOrder.LITTLE_ENDIAN).putInt(frame.length).put(frame).flip();
        while (buffer.hasRemaining()) {
            var _ = to.write(buffer);
        }
    }

    /// Reads one message.
    ///
    /// @throws KvFerryException [ErrorCode#PROTOCOL] for what is none
    static LinkMessage readMessage(SocketChannel from) throws IOException {
        var length = ByteBuffer.allocate(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        readFully(from, length);
        int bytes = length.flip().getInt();
        if (bytes < 1 || bytes > LinkMessage.MOST_BYTES) {
            throw LinkMessage.protocol("a frame of " + bytes + " bytes");
        }
        var frame = ByteBuffer.allocate(bytes);
        readFully(from, frame);
        return LinkMessage.decode(frame.array());
    }

    private static void readFully(SocketChannel from, ByteBuffer into) throws IOException {
        while (into.hasRemaining()) {
            if (from.read(into) < 0) {
                throw new EOFException("the peer closed the connection");
            }
        }
    }
}
