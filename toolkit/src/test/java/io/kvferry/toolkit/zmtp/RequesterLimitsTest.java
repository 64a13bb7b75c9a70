// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.net.HostNames;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/// Requests end in time whatever the resolver and the peer do.
class RequesterLimitsTest {
    private static final Duration LONG = Duration.ofSeconds(60);
    private static final Duration BRIEF = Duration.ofMillis(200);

    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final ScheduledThreadPoolExecutor clock = new ScheduledThreadPoolExecutor(1);
    private final CountDownLatch lookingUp = new CountDownLatch(1);
    private final CountDownLatch goOn = new CountDownLatch(1);
    private final List<AutoCloseable> open = new CopyOnWriteArrayList<>();

    @AfterEach
    void close() throws Exception {
        goOn.countDown();
        for (var each : open) {
            each.close();
        }
        threads.shutdownNow();
        clock.shutdownNow();
        assertThat(threads.awaitTermination(60, TimeUnit.SECONDS)).isTrue();
    }

    private Requester requester(String address) {
        var requester =
                new Requester("test", address, Optional.empty(), 8, new HostNames(this::addresses));
        open.add(requester);
        return requester;
    }

    /// Takes as long as the test.
    private InetAddress[] addresses(String host) {
        lookingUp.countDown();
        await(goOn);
        return new InetAddress[0];
    }

    private static void await(CountDownLatch latch) {
        try {
            assertThat(latch.await(60, TimeUnit.SECONDS)).isTrue();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static void fails(ErrorCode code, Requester requester, byte[] request, Duration limit) {
        assertThatThrownBy(() -> requester.ask(request, Duration.ofDays(1), limit))
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code));
    }

    @Test
    void aSlowLookUpEndsWithTheLimitOfTheRequest() {
        var requester = requester("tcp://slow.example:1");
        fails(ErrorCode.TIMEOUT, requester, new byte[1], BRIEF);
        assertThat(requester.connections()).isZero();
    }

    @Test
    void anInterruptEndsALookUp() throws Exception {
        var requester = requester("tcp://slow.example:1");
        var asking =
                Thread.ofPlatform()
                        .unstarted(() -> {
                            fails(ErrorCode.CANCELLED, requester, new byte[1], LONG);
                            open.add(() -> {});
                        });
        asking.start();
        await(lookingUp);
        asking.interrupt();
        asking.join();
        assertThat(open).as("the thread did not fail").hasSize(2);
    }

    @Test
    void closeEndsALookUp() throws Exception {
        var requester = requester("tcp://slow.example:1");
        Future<?> asked =
                threads.submit(() -> fails(ErrorCode.CLOSED, requester, new byte[1], LONG));
        await(lookingUp);
        requester.close();
        asked.get(50, TimeUnit.SECONDS);
    }

    @Test
    void aRequestThatIsNotReadInTimeIsATimeoutAndOthersConnectionsStay() throws Exception {
        var bothAsk = new CountDownLatch(2);
        try (var listener = ServerSocketChannel.open()) {
            listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            for (int i = 0; i < 2; i++) {
                threads.submit(() -> answerOnce(listener.accept(), bothAsk));
            }
            var requester = requester("tcp://127.0.0.1:" + listener.socket().getLocalPort());
            Future<byte[]> first = threads.submit(() -> requester.ask(new byte[1], LONG, LONG));
            assertThat(requester.ask(new byte[1], LONG, LONG)).hasSize(1);
            assertThat(first.get(60, TimeUnit.SECONDS)).hasSize(1);
            assertThat(requester.connections()).isEqualTo(2);
            fails(ErrorCode.TIMEOUT, requester, new byte[SideChannel.MAX_MESSAGE_BYTES], BRIEF);
            assertThat(requester.connections()).isEqualTo(1);
        }
    }

    /// And reads no more.
    private boolean answerOnce(SocketChannel channel, CountDownLatch bothAsk) throws IOException {
        open.add(channel);
        var room = new ByteBudget(1 << 20);
        var connection =
                ZmtpConnection.open(
                        channel,
                        new ZmtpHandshake.Terms(ZmtpHandshake.Role.ROUTER, Optional.empty(), false),
                        Deadline.in(LONG),
                        ReceiveRoom.of(room),
                        room,
                        clock);
        byte[] message = connection.receive();
        bothAsk.countDown();
        await(bothAsk);
        return connection.send(message);
    }
}
