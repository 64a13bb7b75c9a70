// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.handshake;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.Cancellation;
import io.kvferry.toolkit.net.HostNames;
import io.kvferry.toolkit.net.SilentNameServer;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/// Requests to silent peers, cancelled by the caller.
class HandshakeClientTest {
    private static final Duration LONG = Duration.ofMinutes(10);

    /// Of a listener: it lets in one more than that.
    private static final int BACKLOG = 1;

    private enum Silence {
        NAME_SERVER,
        /// A listener that has no room for a connection.
        CONNECT,
        /// It takes the connection.
        ANSWER
    }

    private enum End {
        CANCEL,
        INTERRUPT
    }

    @ParameterizedTest
    @CsvSource({
        "NAME_SERVER, CANCEL",
        "NAME_SERVER, INTERRUPT",
        "CONNECT, CANCEL",
        "CONNECT, INTERRUPT",
        "ANSWER, CANCEL",
        "ANSWER, INTERRUPT"
    })
    void whoIsDoneDoesNotWaitForAPeerThatSaysNothing(Silence silence, End end) throws Exception {
        var client = new HandshakeClient(LONG, LONG, 1 << 20, Optional.empty(), HostNames.SYSTEM);
        var question = new Handshake.Message(Handshake.METADATA, new byte[] {'{', '}'});
        var cancellation = new Cancellation();
        var ended = new CompletableFuture<Throwable>();
        var queue = new ArrayList<SocketChannel>();
        try (var server = new ServerSocket(0, BACKLOG, InetAddress.getLoopbackAddress())) {
            if (silence == Silence.CONNECT) {
                fill(server, queue);
            }
            var host =
                    silence == Silence.NAME_SERVER
                            ? "peer" + SilentNameServer.SUFFIX
                            : server.getInetAddress().getHostAddress();
            var peer = new HostPort(host, server.getLocalPort());
            var asking =
                    Thread.ofPlatform()
                            .daemon()
                            .start(() ->
                                    ended.complete(
                                            catchThrowable(() ->
                                                    client.ask(
                                                            peer,
                                                            question,
                                                            Deadline.in(LONG),
                                                            cancellation))));
            awaitWithin(asking, silence);
            if (end == End.CANCEL) {
                cancellation.cancel(ErrorCode.CLOSED);
            } else {
                asking.interrupt();
            }
            assertThat(ended.get(30, TimeUnit.SECONDS))
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e ->
                                    assertThat(e.code())
                                            .isEqualTo(
                                                    end == End.CANCEL
                                                            ? ErrorCode.CLOSED
                                                            : ErrorCode.CANCELLED));
        } finally {
            for (var channel : queue) {
                channel.close();
            }
        }
    }

    /// Connections that nobody accepts, until there is room for none.
    private static void fill(ServerSocket server, List<SocketChannel> queue) throws IOException {
        for (int i = 0; i < BACKLOG + 3; i++) {
            var channel = SocketChannel.open();
            queue.add(channel);
            channel.configureBlocking(false);
            var _ =
                    channel.connect(
                            new InetSocketAddress(server.getInetAddress(), server.getLocalPort()));
        }
    }

    private static void awaitWithin(Thread asking, Silence silence) {
        var method =
                switch (silence) {
                    case NAME_SERVER -> "awaitAnswer";
                    case CONNECT -> "blockingConnect";
                    case ANSWER -> "readFully";
                };
        var limit = Deadline.in(Duration.ofSeconds(30));
        while (Arrays.stream(asking.getStackTrace())
                .noneMatch(frame -> frame.getMethodName().equals(method))) {
            assertThat(limit.passed()).as("it waits for " + silence).isFalse();
            Thread.yield();
        }
    }
}
