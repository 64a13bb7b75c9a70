// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.backend.mooncake.te.TransferRequest.Operation;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;

/// The limit: the same bytes between the same addresses over bare blocking sockets, with no
/// protocol to speak of.
final class Plain {
    private Plain() {}

    static boolean readFully(SocketChannel channel, ByteBuffer into) throws IOException {
        while (into.hasRemaining()) {
            if (channel.read(into) < 0) {
                return false;
            }
        }
        return true;
    }

    static void writeFully(SocketChannel channel, ByteBuffer from) throws IOException {
        while (from.hasRemaining()) {
            channel.write(from);
        }
    }

    private static SocketChannel connect(int port) throws IOException {
        SocketChannel channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
        channel.socket().setTcpNoDelay(true);
        return channel;
    }

    /// GB/s of bare sockets that move the blocks of a shape between the same addresses as its
    /// transfers, `rounds` times: every other block over the second of two connections, each with 8
    /// bytes back for a round of WRITEs. One block at a time needs one connection.
    ///
    /// @param memory what the transfers read from and write to on this side
    static double copy(int port, ByteBuffer memory, Shape shape, int rounds) throws Exception {
        int blocks = shape.batch() * shape.threads();
        var threads = new Thread[Math.min(2, blocks)];
        long began = System.nanoTime();
        for (int t = 0; t < threads.length; t++) {
            var stream = new Stream(port, memory.duplicate(), shape, t, threads.length, blocks);
            threads[t] = Thread.ofPlatform().start(() -> stream.run(rounds));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return (double) rounds * shape.bytes() / (System.nanoTime() - began);
    }

    /// One connection of [#copy]: blocks `first`, `first + step` and so on.
    private record Stream(
            int port, ByteBuffer memory, Shape shape, int first, int step, int blocks) {
        void run(int rounds) {
            try (SocketChannel channel = connect(port)) {
                var head = ByteBuffer.allocateDirect(Target.HEAD);
                for (int i = 0; i < rounds; i++) {
                    if (shape.operation() == Operation.WRITE) {
                        write(channel, head);
                    } else {
                        read(channel, head);
                    }
                }
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        private void write(SocketChannel channel, ByteBuffer head) throws IOException {
            for (int b = first; b < blocks; b += step) {
                boolean last = b + step >= blocks;
                ask(channel, head, b, shape.block(), last ? 8 : 0);
                writeFully(channel, block(b));
            }
            readFully(channel, head.clear().limit(8));
        }

        private void read(SocketChannel channel, ByteBuffer head) throws IOException {
            for (int b = first; b < blocks; b += step) {
                ask(channel, head, b, 0, shape.block());
            }
            for (int b = first; b < blocks; b += step) {
                readFully(channel, block(b));
            }
        }

        private void ask(SocketChannel channel, ByteBuffer head, int block, int in, int out)
                throws IOException {
            head.clear().putInt(in).putInt(out).putLong((long) block * shape.block()).flip();
            writeFully(channel, head);
        }

        private ByteBuffer block(int number) {
            int from = number * shape.block();
            return memory.limit(from + shape.block()).position(from);
        }
    }

    /// GB/s of one thread that copies blocks within this process, the same addresses again and
    /// again as the transfers do.
    static double memoryCopy(int block, int batch, long bytes) {
        long span = (long) block * batch;
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment from = arena.allocate(span, 4096);
            MemorySegment to = arena.allocate(span, 4096);
            from.fill((byte) 1);
            to.fill((byte) 2);
            long rounds = Math.max(4, bytes / block);
            long began = 0;
            for (long i = -rounds / 2; i < rounds; i++) {
                if (i == 0) {
                    began = System.nanoTime();
                }
                long at = Math.floorMod(i, (long) batch) * block;
                MemorySegment.copy(from, at, to, at, block);
            }
            return (double) rounds * block / (System.nanoTime() - began);
        }
    }

    /// Round-trip times in nanoseconds: 32 bytes out, `reply` bytes back.
    static void pingPong(int port, int reply, long[] nanos, int from, int count)
            throws IOException {
        try (SocketChannel channel = connect(port)) {
            var head = ByteBuffer.allocateDirect(32);
            var body = ByteBuffer.allocateDirect(reply);
            for (int i = -count / 4; i < count; i++) {
                long began = System.nanoTime();
                head.clear().putInt(32 - Target.HEAD).putInt(reply).putLong(0);
                channel.write(head.clear());
                readFully(channel, body.clear());
                if (i >= 0) {
                    nanos[from + i] = System.nanoTime() - began;
                }
            }
        }
    }
}
