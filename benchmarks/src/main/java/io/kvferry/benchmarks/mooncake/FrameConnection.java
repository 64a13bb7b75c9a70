// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.concurrent.locks.ReentrantLock;

/// A prototype: messages over one connection in frames like those of the transfer engine's data
/// port, `u64 bytes | u64 exchange | u8 opcode | 7 bytes`, little-endian. Exchanges share the
/// connection; frames that come together leave together.
///
/// Threading: any thread sends; [#receive] is for one.
final class FrameConnection implements AutoCloseable {
    private static final int HEADER = 24;
    private static final int BUFFER = 64 << 10;
    private static final long MESSAGE = 0xC3;

    private final SocketChannel channel;
    private final ReentrantLock lock = new ReentrantLock();
    private final ArrayDeque<Frame> waiting = new ArrayDeque<>();
    private final ByteBuffer out = buffer();
    private final ByteBuffer in = buffer();
    private boolean sending;

    private record Frame(long exchange, byte[] message) {}

    /// Takes what arrives.
    @FunctionalInterface
    interface Taker {
        void take(long exchange, byte[] message);
    }

    FrameConnection(SocketChannel channel) {
        this.channel = channel;
        in.flip();
    }

    private static ByteBuffer buffer() {
        return ByteBuffer.allocateDirect(BUFFER).order(ByteOrder.LITTLE_ENDIAN);
    }

    /// Sends, or leaves it to whoever is sending.
    void send(long exchange, byte[] message) {
        lock.lock();
        try {
            waiting.add(new Frame(exchange, message));
            if (sending) {
                return;
            }
            sending = true;
        } finally {
            lock.unlock();
        }
        try {
            while (gather()) {
                while (out.hasRemaining()) {
                    channel.write(out);
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /// False when nothing is left to send.
    private boolean gather() {
        lock.lock();
        try {
            out.clear();
            for (var next = waiting.peek();
                    next != null && out.remaining() >= HEADER + next.message().length;
                    next = waiting.peek()) {
                out.putLong(next.message().length).putLong(next.exchange()).putLong(MESSAGE);
                out.put(next.message());
                waiting.remove();
            }
            sending = out.position() > 0;
            out.flip();
            return sending;
        } finally {
            lock.unlock();
        }
    }

    /// Hands on what arrives until the end of the connection.
    void receive(Taker taker) {
        try {
            while (has(HEADER)) {
                int bytes = Math.toIntExact(in.getLong());
                long exchange = in.getLong();
                in.getLong();
                if (!has(bytes)) {
                    return;
                }
                var message = new byte[bytes];
                in.get(message);
                taker.take(exchange, message);
            }
        } catch (IOException e) {
            if (channel.isOpen()) {
                throw new UncheckedIOException(e);
            }
        }
    }

    private boolean has(int bytes) throws IOException {
        while (in.remaining() < bytes) {
            in.compact();
            int got = channel.read(in);
            in.flip();
            if (got < 0) {
                return false;
            }
        }
        return true;
    }

    @Override
    public void close() throws IOException {
        channel.close();
    }
}
