// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.tcp;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.fail;

import io.kvferry.toolkit.net.SocketCalls;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

@EnabledOnOs(value = OS.LINUX, disabledReason = "system calls are made on Linux only")
class WireSocketTest {
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private final Arena arena = Arena.ofShared();
    private ServerSocketChannel listener;

    @BeforeEach
    void listen() throws IOException {
        listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
    }

    @AfterEach
    void close() throws IOException {
        listener.close();
        arena.close();
    }

    /// Both ends of a connection, of which this one makes system calls.
    private record Pair(WireSocket socket, SocketChannel peer) implements AutoCloseable {
        @Override
        public void close() throws IOException {
            socket.close();
            peer.close();
        }
    }

    private Pair connect() throws IOException {
        var socket = new WireSocket(SocketChannel.open(listener.getLocalAddress()));
        var peer = listener.accept();
        socket.expectBulk();
        assertThat(socket.isDirect()).isTrue();
        return new Pair(socket, peer);
    }

    private MemorySegment memory(long bytes) {
        return arena.allocate(bytes, 64);
    }

    /// What its body returned, or its failure.
    private static <T> CompletableFuture<T> platform(Body<T> body) {
        var done = new CompletableFuture<T>();
        Thread.ofPlatform().daemon().start(() -> run(body, done));
        return done;
    }

    private static <T> void run(Body<T> body, CompletableFuture<T> done) {
        try {
            done.complete(body.run());
        } catch (Exception | Error e) {
            done.completeExceptionally(e);
        }
    }

    @FunctionalInterface
    private interface Body<T> {
        T run() throws Exception;
    }

    private static <T> T get(CompletableFuture<T> done) throws Exception {
        try {
            return done.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            if (e.getCause() instanceof Exception cause) {
                throw cause;
            }
            throw e;
        }
    }

    private static void awaitWaiting(Thread reader) throws InterruptedException {
        // A thread in a system call is RUNNABLE for the JVM: give it time to get there.
        while (reader.getState() == Thread.State.NEW) {
            Thread.sleep(1);
        }
        Thread.sleep(50);
    }

    @Test
    void aCloseEndsAReadThatWaits() throws Exception {
        try (var pair = connect()) {
            var thread = new CompletableFuture<Thread>();
            var memory = memory(64);
            var read =
                    platform(() -> {
                        thread.complete(Thread.currentThread());
                        return pair.socket.read(memory.asByteBuffer(), memory.address());
                    });
            awaitWaiting(get(thread));
            pair.socket.close();
            assertThatThrownBy(() -> get(read)).isInstanceOf(AsynchronousCloseException.class);
            assertThat(pair.socket.channel.isOpen()).isFalse();
            assertThat(pair.peer.read(ByteBuffer.allocate(1))).as("the peer sees it").isEqualTo(-1);
        }
    }

    /// With an ordinary end of the stream what was sent before would go on to the peer.
    @Test
    void aResetReachesThePeerThoughAThreadReads() throws Exception {
        try (var pair = connect()) {
            var thread = new CompletableFuture<Thread>();
            var memory = memory(1 << 20);
            var read =
                    platform(() -> {
                        thread.complete(Thread.currentThread());
                        return pair.socket.read(memory.asByteBuffer().limit(8), memory.address());
                    });
            awaitWaiting(get(thread));
            pair.socket.resetOnClose();
            pair.socket.close();
            assertThatThrownBy(() -> get(read)).isInstanceOf(IOException.class);
            assertThatThrownBy(() -> pair.peer.read(ByteBuffer.allocate(1)))
                    .isInstanceOf(IOException.class)
                    .hasMessageContaining("reset");
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void anInterruptEndsAReadAndClosesTheConnection(boolean before) throws Exception {
        try (var pair = connect()) {
            var thread = new CompletableFuture<Thread>();
            var go = new CountDownLatch(1);
            var memory = memory(64);
            var read =
                    platform(() -> {
                        thread.complete(Thread.currentThread());
                        if (before) {
                            Thread.currentThread().interrupt();
                        }
                        go.countDown();
                        return pair.socket.read(memory.asByteBuffer(), memory.address());
                    });
            assertThat(go.await(PATIENCE.toSeconds(), TimeUnit.SECONDS)).isTrue();
            if (!before) {
                awaitWaiting(get(thread));
                get(thread).interrupt();
            }
            assertThatThrownBy(() -> get(read)).isInstanceOf(ClosedByInterruptException.class);
            assertThat(pair.socket.isUsable()).isFalse();
            assertThat(pair.peer.read(ByteBuffer.allocate(1))).isEqualTo(-1);
        }
    }

    /// An interrupt in the channel's own call closes the channel alone, and its descriptor's number
    /// goes to the next connection: nothing may be read there.
    @Test
    void nothingIsReadOnceTheChannelIsClosed() throws Exception {
        try (var pair = connect()) {
            var memory = memory(4 << 20);
            var thread = new CompletableFuture<Thread>();
            var sent =
                    platform(() -> {
                        thread.complete(Thread.currentThread());
                        var source = memory.asByteBuffer();
                        while (source.hasRemaining()) { // nobody reads at the peer
                            pair.socket.write(source.duplicate(), memory.address());
                        }
                        return true;
                    });
            awaitWaiting(get(thread));
            get(thread).interrupt();
            assertThatThrownBy(() -> get(sent)).isInstanceOf(ClosedByInterruptException.class);
            var others = new ArrayList<SocketChannel>();
            try {
                for (int i = 0; i < 8; i++) {
                    others.add(SocketChannel.open(listener.getLocalAddress()));
                    others.add(listener.accept());
                    for (int end = 1; end <= 2; end++) {
                        others.get(others.size() - end).write(ByteBuffer.wrap(new byte[] {7}));
                    }
                }
                assertThatThrownBy(() -> pair.socket.read(memory.asByteBuffer(), memory.address()))
                        .isInstanceOf(ClosedChannelException.class);
                pair.socket.close();
                for (var other : others) {
                    assertThat(other.read(ByteBuffer.allocate(1))).as("its own byte").isEqualTo(1);
                }
            } finally {
                for (var other : others) {
                    other.close();
                }
            }
        }
    }

    @Test
    void theEndOfTheStreamIsTold() throws Exception {
        try (var pair = connect()) {
            var memory = memory(64);
            pair.peer.shutdownOutput();
            assertThat(pair.socket.read(memory.asByteBuffer(), memory.address())).isEqualTo(-1);
            var halves = new ByteBuffer[] {memory.asByteBuffer().limit(32), memory.asByteBuffer()};
            assertThat(
                            pair.socket.read(
                                    halves,
                                    new long[] {memory.address(), memory.address()},
                                    2,
                                    memory(2 * SocketCalls.VECTOR_BYTES)))
                    .isEqualTo(-1);
        }
    }

    @Test
    void aLookReadsWhatHasArrivedAndLeavesTheRestToARead() throws Exception {
        try (var pair = connect()) {
            var memory = memory(64);
            var target = memory.asByteBuffer();
            assertThat(pair.socket.readNow(target, memory.address())).as("nothing").isZero();
            pair.peer.write(ByteBuffer.wrap(new byte[] {1, 2, 3}));
            while (pair.socket.readNow(target.limit(2), memory.address()) == 0) {
                Thread.onSpinWait();
            }
            assertThat(pair.socket.readNow(target.limit(64), memory.address())).isEqualTo(1);
            assertThat(target.flip()).isEqualTo(ByteBuffer.wrap(new byte[] {1, 2, 3}));
            pair.peer.close();
            assertThat(pair.socket.readNow(target.clear(), memory.address())).as("end").isZero();
            assertThat(pair.socket.read(target, memory.address())).isEqualTo(-1);
            pair.socket.close();
            assertThat(pair.socket.canLook()).isFalse();
            assertThat(pair.socket.readNow(target, memory.address())).as("closed").isZero();
        }
    }

    @Test
    void aConnectionThatIsWaitedForOftenIsLookedAt() throws Exception {
        try (var socket = new WireSocket(SocketChannel.open(listener.getLocalAddress()));
                var _ = listener.accept()) {
            int waits = 1;
            while (!socket.canLook()) {
                assertThat(++waits).isLessThan(100);
            }
            assertThat(waits).as("a stranger is not searched for").isGreaterThan(10);
            assertThat(socket.isNear()).isTrue();
        }
    }

    /// A peer that refuses what it was sent resets the connection. A one-shot peer that took it
    /// closes it, so one must not pass for the other.
    @ParameterizedTest
    @ValueSource(strings = {"read", "vectors", "look"})
    void aResetIsNoEndOfTheStream(String by) throws Exception {
        try (var pair = connect()) {
            pair.peer.setOption(StandardSocketOptions.SO_LINGER, 0);
            pair.peer.close();
            var memory = memory(64);
            var target = memory.asByteBuffer();
            var halves = new ByteBuffer[] {memory.asByteBuffer().limit(32), memory.asByteBuffer()};
            var starts = new long[] {memory.address(), memory.address()};
            var vectors = memory(2 * SocketCalls.VECTOR_BYTES);
            assertThatThrownBy(
                            () -> {
                                switch (by) {
                                    case "read" -> pair.socket.read(target, memory.address());
                                    case "vectors" -> pair.socket.read(halves, starts, 2, vectors);
                                    default -> pair.socket.readNow(target, memory.address());
                                }
                                pair.socket.read(target, memory.address());
                            })
                    .isInstanceOf(IOException.class)
                    .hasMessageContaining("reset");
        }
    }

    /// As every connection is that a virtual thread has opened: its descriptor does not wait.
    @Test
    void aDescriptorThatDoesNotWaitIsLeftToTheChannel() throws Exception {
        try (var pair = connect()) {
            var memory = memory(64);
            var first = new CompletableFuture<Long>();
            Thread.ofVirtual()
                    .start(() ->
                            run(
                                    () -> pair.socket.read(memory.asByteBuffer(), memory.address()),
                                    first));
            pair.peer.write(ByteBuffer.wrap(new byte[] {1, 2, 3}));
            assertThat(get(first)).isEqualTo(3);
            var second = platform(() -> pair.socket.read(memory.asByteBuffer(), memory.address()));
            Thread.sleep(50);
            pair.peer.write(ByteBuffer.wrap(new byte[] {4, 5}));
            assertThat(get(second)).isEqualTo(2);
            assertThat(memory.asByteBuffer().get(0)).isEqualTo((byte) 4);
        }
    }

    /// More than there is room for, to a peer that takes it late.
    @ParameterizedTest
    @ValueSource(ints = {1, 3})
    void whatDoesNotFitWaitsInTheChannel(int parts) throws Exception {
        try (var pair = connect()) {
            int bytes = 24 << 20;
            var memory = memory(bytes);
            var random = new Random(parts);
            for (long i = 0; i < bytes; i += Long.BYTES) {
                memory.set(ValueLayout.JAVA_LONG, i, random.nextLong());
            }
            var sent = platform(() -> send(pair.socket, memory, parts));
            Thread.sleep(100);
            var received = ByteBuffer.allocate(bytes);
            while (received.hasRemaining() && pair.peer.read(received) > 0) {}
            assertThat(get(sent)).isEqualTo(bytes);
            assertThat(MemorySegment.ofBuffer(received.flip()).mismatch(memory)).isEqualTo(-1);
        }
    }

    /// In calls of so many buffers of 64 KiB.
    private long send(WireSocket socket, MemorySegment memory, int parts) throws IOException {
        var buffers = new ByteBuffer[parts];
        var starts = new long[parts];
        long each = 64 << 10;
        var vectors = memory((long) parts * SocketCalls.VECTOR_BYTES);
        var message = memory(SocketCalls.MESSAGE_BYTES);
        long sent = 0;
        for (long at = 0; at < memory.byteSize(); at += parts * each) {
            for (int i = 0; i < parts; i++) {
                var part = memory.asSlice(at + i * each, each);
                buffers[i] = part.asByteBuffer();
                starts[i] = part.address();
            }
            while (buffers[parts - 1].hasRemaining()) {
                sent +=
                        parts == 1
                                ? socket.write(buffers[0], starts[0])
                                : socket.write(buffers, starts, parts, vectors, message);
            }
        }
        return sent;
    }

    /// A descriptor's number is reused by the next connection as soon as it is closed. Readers and
    /// senders are cut off at random moments while others connect: none of them may read or write
    /// on a connection that is not its own.
    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3, 4})
    void nobodyMeetsTheConnectionOfAnother(long seed) throws Exception {
        var random = new Random(seed);
        var foreign = new AtomicLong();
        var threads = new ArrayList<Thread>();
        for (int turn = 0; turn < 150; turn++) {
            var pair = connect();
            long name = random.nextLong();
            threads.add(thread(() -> readNamed(pair.socket, name, foreign)));
            if (random.nextBoolean()) {
                threads.add(thread(() -> peer(pair.peer, name, foreign)));
            }
            if (random.nextInt(4) == 0) {
                Thread.sleep(random.nextInt(3));
            }
            int kind = random.nextInt(3);
            threads.add(
                    thread(() -> {
                        if (kind == 0) {
                            pair.socket.resetOnClose();
                        } else if (kind == 1) {
                            pair.socket.shutdownOutput();
                        }
                        pair.close();
                        return true;
                    }));
        }
        for (var each : threads) {
            assertThat(each.join(PATIENCE)).as("all have ended").isTrue();
        }
        assertThat(foreign).hasValue(0);
    }

    private static Thread thread(Body<?> body) {
        return Thread.ofPlatform()
                .daemon()
                .start(() -> {
                    try {
                        body.run();
                    } catch (IOException _) {
                        // Cut off, as it should be.
                    } catch (Exception e) {
                        fail(e);
                    }
                });
    }

    /// Names itself, and reads names until it is cut off.
    private boolean readNamed(WireSocket socket, long name, AtomicLong foreign) throws IOException {
        try (var own = Arena.ofConfined()) {
            var memory = own.allocate(Long.BYTES, 8);
            var buffer = memory.asByteBuffer();
            while (true) {
                buffer.clear().putLong(0, name);
                while (buffer.hasRemaining()) {
                    socket.write(buffer, memory.address());
                }
                buffer.clear();
                while (buffer.hasRemaining()) {
                    if (socket.canLook() && socket.readNow(buffer, memory.address()) > 0) {
                        continue;
                    }
                    if (socket.read(buffer, memory.address()) < 0) {
                        return true;
                    }
                }
                if (buffer.getLong(0) != name) {
                    foreign.incrementAndGet();
                }
            }
        }
    }

    private static boolean peer(SocketChannel peer, long name, AtomicLong foreign)
            throws IOException {
        var buffer = ByteBuffer.allocate(Long.BYTES);
        while (true) {
            buffer.clear();
            while (buffer.hasRemaining()) {
                if (peer.read(buffer) < 0) {
                    return true;
                }
            }
            if (buffer.getLong(0) != name) {
                foreign.incrementAndGet();
            }
            buffer.flip();
            while (buffer.hasRemaining()) {
                peer.write(buffer);
            }
        }
    }
}
