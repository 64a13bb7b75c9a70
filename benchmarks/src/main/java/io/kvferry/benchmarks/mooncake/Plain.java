// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.Arrays;

/// The limit: the same bytes over bare blocking sockets, with direct buffers and no protocol to
/// speak of.
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

    private static SocketChannel connect(int port) throws IOException {
        SocketChannel channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
        channel.socket().setTcpNoDelay(true);
        return channel;
    }

    /// GB/s of `connections` threads that each send blocks and get 8 bytes for every `batch` of
    /// them.
    static double copy(int port, boolean write, int block, int batch, int connections, long bytes)
            throws Exception {
        long rounds = Math.max(4, bytes / ((long) block * batch * connections));
        var threads = new Thread[connections];
        long began = System.nanoTime();
        for (int t = 0; t < connections; t++) {
            threads[t] =
                    Thread.ofPlatform()
                            .start(() -> {
                                try (SocketChannel channel = connect(port)) {
                                    var head = ByteBuffer.allocateDirect(8);
                                    var body = ByteBuffer.allocateDirect(block);
                                    for (long i = 0; i < rounds; i++) {
                                        for (int b = 0; b < batch; b++) {
                                            boolean last = b == batch - 1;
                                            head.clear()
                                                    .putInt(write ? block : 0)
                                                    .putInt(write ? (last ? 8 : 0) : block)
                                                    .flip();
                                            channel.write(head);
                                            if (write) {
                                                body.clear();
                                                while (body.hasRemaining()) {
                                                    channel.write(body);
                                                }
                                            }
                                        }
                                        for (int b = 0; b < (write ? 1 : batch); b++) {
                                            readFully(channel, write ? head.clear() : body.clear());
                                        }
                                    }
                                } catch (IOException e) {
                                    throw new UncheckedIOException(e);
                                }
                            });
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return (double) rounds * block * batch * connections / (System.nanoTime() - began);
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

    /// Sorted round-trip times in nanoseconds: 24 bytes out, `reply` bytes back.
    static long[] pingPong(int port, int reply, int rounds) throws IOException {
        long[] nanos = new long[rounds];
        try (SocketChannel channel = connect(port)) {
            var head = ByteBuffer.allocateDirect(24);
            var body = ByteBuffer.allocateDirect(reply);
            for (int i = -rounds / 2; i < rounds; i++) {
                long began = System.nanoTime();
                channel.write(head.clear().putInt(16).putInt(reply).clear());
                readFully(channel, body.clear());
                if (i >= 0) {
                    nanos[i] = System.nanoTime() - began;
                }
            }
        }
        Arrays.sort(nanos);
        return nanos;
    }
}
