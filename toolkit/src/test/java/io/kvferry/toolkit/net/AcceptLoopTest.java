// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.channels.ServerSocketChannel;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;

class AcceptLoopTest {
    private final AtomicBoolean failing = new AtomicBoolean();

    private final ServerSocketChannel listener = listen();
    private final int port = listener.socket().getLocalPort();
    private final AcceptLoop loop =
            AcceptLoop.start(
                    "test",
                    listener,
                    connection -> {
                        if (failing.get()) {
                            throw new OutOfMemoryError("thrown by the test");
                        }
                        connection.write(java.nio.ByteBuffer.wrap(new byte[] {7}));
                        connection.close();
                    },
                    Duration.ofMillis(50),
                    Thread.ofPlatform().daemon().name("test").factory());

    @AfterEach
    void close() {
        loop.close();
    }

    private static ServerSocketChannel listen() {
        try {
            return ServerSocketChannel.open()
                    .bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void aStartWithoutAThreadSaysSoAndClosesTheSocket() {
        var bound = listen();
        assertThatThrownBy(() ->
                        AcceptLoop.start(
                                "refused",
                                bound,
                                _ -> {},
                                Duration.ofSeconds(1),
                                task ->
                                        new Thread(task) {
                                            @Override
                                            public void start() {
                                                throw new OutOfMemoryError(
                                                        "no thread, says the test");
                                            }
                                        }))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.NO_MEMORY));
        assertThat(bound.isOpen()).isFalse();
    }

    private boolean serves() {
        return serves(port);
    }

    private static boolean serves(int port) {
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            socket.setSoTimeout(20_000);
            return socket.getInputStream().read() == 7;
        } catch (IOException e) {
            return false;
        }
    }

    private static boolean becomes(BooleanSupplier condition) {
        var limit = Deadline.in(Duration.ofSeconds(20));
        boolean met = condition.getAsBoolean();
        while (!met && !limit.passed()) {
            met = condition.getAsBoolean();
        }
        return met;
    }

    private static boolean isWatched() {
        return Thread.getAllStackTraces().keySet().stream()
                .anyMatch(thread -> thread.getName().equals("kvferry-accept-watch"));
    }

    /// Else every first use in a JVM would leave a thread behind.
    @Test
    void theThreadThatLooksAfterLoopsEndsWithTheLast() {
        assertThat(isWatched()).isTrue();
        loop.close();
        assertThat(becomes(() -> !isWatched())).isTrue();
        try (var _ = AcceptLoop.start("next", listen(), connection -> connection.close())) {
            assertThat(isWatched()).isTrue();
        }
    }

    @Test
    void saysThatItAcceptsNothingAndWhenItDoesAgain() {
        assertThat(serves()).isTrue();
        failing.set(true);
        assertThat(becomes(() -> !serves() && loop.trouble().isPresent())).isTrue();
        failing.set(false);
        assertThat(becomes(this::serves)).isTrue();
        assertThat(becomes(() -> loop.trouble().isEmpty())).isTrue();
    }

    @Test
    void aThreadThatHasEndedIsReplaced() throws IOException {
        var listener = listen();
        var threads = new AtomicInteger();
        try (var mortal =
                AcceptLoop.start(
                        "mortal",
                        listener,
                        connection -> {
                            connection.write(java.nio.ByteBuffer.wrap(new byte[] {7}));
                            connection.close();
                        },
                        Duration.ofMillis(50),
                        work ->
                                Thread.ofPlatform()
                                        .daemon()
                                        .unstarted(
                                                threads.getAndIncrement() < 2 ? () -> {} : work))) {
            assertThat(becomes(() -> serves(listener.socket().getLocalPort()))).isTrue();
            // A new thread serves shortly before the loop knows it as its own.
            assertThat(becomes(() -> mortal.trouble().isEmpty())).isTrue();
        }
        assertThat(threads).hasValue(3);
    }

    @Test
    void bindsAgainWhatSomebodyElseClosed() throws IOException {
        assertThat(serves()).isTrue();
        listener.close();
        assertThat(becomes(this::serves)).isTrue();
    }

    @Test
    void servesAgainWithoutAConnectionOnceItCanBind() throws IOException {
        try (var taken = takePort()) {
            assertThat(taken.isBound()).isTrue();
            assertThat(becomes(() -> loop.trouble().isPresent())).isTrue();
        }
        assertThat(becomes(() -> loop.trouble().isEmpty())).isTrue();
        assertThat(serves()).isTrue();
    }

    /// The port, in a moment between its loss and the next attempt to bind it.
    private ServerSocket takePort() throws IOException {
        for (var limit = Deadline.in(Duration.ofSeconds(20)); !limit.passed(); ) {
            Thread.getAllStackTraces().keySet().stream()
                    .filter(thread -> thread.getName().equals("test"))
                    .forEach(Thread::interrupt); // closes the channel that it accepts on
            var socket = new ServerSocket();
            try {
                socket.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
                return socket;
            } catch (BindException e) {
                socket.close();
            }
        }
        throw new AssertionError("the loop was always faster");
    }
}
