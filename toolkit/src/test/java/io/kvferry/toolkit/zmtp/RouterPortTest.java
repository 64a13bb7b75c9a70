// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.bounded.FairRoom;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.channels.ServerSocketChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// Who has to go when a port is full, and how much its peers make it hold.
class RouterPortTest {
    private static final Duration SOON = Duration.ofSeconds(20);
    private static final int MOST = 8;
    private static final int ROOM = 1 << 20;

    /// For messages that are being received.
    private static final int RECEIVED = 4 << 20;

    private static final int LARGE = 1_000_000;

    /// Another host than that of the friends, whose address is the first of this one.
    private static final String ELSEWHERE = "127.0.0.2";

    private final ScheduledThreadPoolExecutor clock = new ScheduledThreadPoolExecutor(1);
    private final BlockingQueue<SideChannel.Asker> gone = new LinkedBlockingQueue<>();
    private final BlockingQueue<SideChannel.Asker> hoarders = new LinkedBlockingQueue<>();
    private final List<Socket> open = new ArrayList<>();
    private final FairRoom received = new FairRoom(Integer.MAX_VALUE, RECEIVED);
    private final RouterPort port = port();

    private RouterPort port() {
        try {
            var listener =
                    ServerSocketChannel.open()
                            .bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            var requests =
                    new SideChannel.Requests() {
                        @Override
                        public void onRequest(SideChannel.Asker asker, byte[] message) {
                            if (message.length == 1 || message.length == LARGE) {
                                asker.answer(new byte[100]);
                            } else {
                                hoarders.add(asker);
                            }
                        }

                        @Override
                        public void onGone(SideChannel.Asker asker) {
                            gone.add(asker);
                        }
                    };
            return new RouterPort(
                    "test",
                    listener,
                    "127.0.0.1",
                    Optional.empty(),
                    requests,
                    clock,
                    MOST,
                    received,
                    new ByteBudget(ROOM),
                    Thread.ofPlatform().factory());
        } catch (IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    @AfterEach
    void close() throws IOException {
        for (var socket : open) {
            socket.close();
        }
        port.close();
        clock.shutdownNow();
    }

    private Socket stranger() throws IOException {
        return stranger("127.0.0.1");
    }

    private Socket stranger(String from) throws IOException {
        var socket = new Socket();
        open.add(socket);
        socket.bind(new InetSocketAddress(from, 0));
        socket.setReceiveBufferSize(4 << 10);
        socket.setSoTimeout((int) SOON.toMillis());
        int number =
                Integer.parseInt(port.address().substring(port.address().lastIndexOf(':') + 1));
        socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), number));
        return socket;
    }

    /// A channel whose connection stands and rests.
    private SideChannel known() throws InterruptedException {
        var channel = new SideChannel("known");
        assertThat(asks(channel)).isEqualTo(100);
        return channel;
    }

    /// Length of the answer.
    private int asks(SideChannel channel) throws InterruptedException {
        return length(ask(channel, 1));
    }

    private static int length(BlockingQueue<Object> heard) throws InterruptedException {
        var answer = heard.poll(SOON.toSeconds(), TimeUnit.SECONDS);
        assertThat(answer).isInstanceOf(Integer.class);
        return (Integer) answer;
    }

    private BlockingQueue<Object> ask(SideChannel channel, int bytes) {
        var heard = new LinkedBlockingQueue<Object>();
        channel.exchange(
                port.address(),
                new byte[bytes],
                SOON,
                SOON,
                new SideChannel.Answers() {
                    @Override
                    public SideChannel.Reading onAnswer(byte[] message) {
                        heard.add(message.length);
                        return SideChannel.Reading.DONE;
                    }

                    @Override
                    public void onLost(Failure failure) {
                        heard.add(failure);
                    }
                });
        return heard;
    }

    @Test
    void manyConnectionsOfOneHostMakeRoomForEachOther() throws Exception {
        var friends = new ArrayList<SideChannel>();
        try {
            for (int i = 0; i < MOST / 2; i++) {
                friends.add(known());
            }
            for (int i = 0; i < 3 * MOST; i++) {
                var stranger = stranger(ELSEWHERE);
                stranger.getOutputStream().write(ZmtpTest.hello("00026161"));
                assertThat(hoarder().host()).as("has made its handshake").isEqualTo(ELSEWHERE);
            }
            for (var friend : friends) {
                asks(friend);
            }
            for (int i = 0; i < 3 * MOST - MOST / 2; i++) { // those who had to go
                var asker = gone.poll(SOON.toSeconds(), TimeUnit.SECONDS);
                assertThat(asker).isNotNull();
                assertThat(asker.host()).isEqualTo(ELSEWHERE);
            }
            assertThat(gone).isEmpty();
        } finally {
            friends.forEach(SideChannel::close);
        }
    }

    /// All of it but the last bytes.
    private void sendPart(Socket socket) throws IOException {
        socket.getOutputStream().write(ZmtpTest.hello("02%016x".formatted(LARGE)));
        socket.getOutputStream().write(new byte[LARGE - 100]);
    }

    @Test
    void unfinishedMessagesTakeTheRoomOfTheirHostOnly() throws Exception {
        for (int i = 0; i < RECEIVED / LARGE / 2; i++) {
            sendPart(stranger(ELSEWHERE));
        }
        for (int i = 0; i < 3; i++) { // these are not read to their end
            var more = stranger(ELSEWHERE);
            more.getOutputStream().write(ZmtpTest.hello("02%016x".formatted(LARGE)));
            more.getOutputStream().write(new byte[64 << 10]);
        }
        try (var friend = known()) {
            assertThat(length(ask(friend, LARGE))).isEqualTo(100);
        }
    }

    /// Until the port has room for all of the messages of which it was sent a part: the last piece
    /// of each is nearly half of it.
    private void awaitTaken(int messages) {
        long more = RECEIVED - messages * LARGE + LARGE / 4;
        var limit = Deadline.in(SOON);
        while (received.take("nobody", 0, more)) {
            received.give("nobody", 0, more);
            assertThat(limit.passed()).as("the parts are not read").isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    @Test
    void aMessageWaitsForRoom() throws Exception {
        var strangers = new ArrayList<Socket>();
        for (int i = 0; i < RECEIVED / LARGE / 2; i++) {
            var stranger = stranger();
            strangers.add(stranger);
            sendPart(stranger);
        }
        awaitTaken(strangers.size());
        try (var friend = known()) {
            var heard = ask(friend, LARGE);
            assertThat(heard.poll(200, TimeUnit.MILLISECONDS)).as("no room yet").isNull();
            for (var stranger : strangers) {
                stranger.close();
            }
            assertThat(length(heard)).isEqualTo(100);
        }
    }

    @Test
    void strangersMakeRoomBeforeThoseWhoAreKnown() throws Exception {
        var friends = new ArrayList<SideChannel>();
        try {
            for (int i = 0; i < MOST / 2; i++) {
                friends.add(known());
            }
            Socket first = stranger();
            for (int i = 0; i < 3 * MOST; i++) { // later than any friend was heard of
                stranger();
            }
            assertThat(first.getInputStream().readAllBytes())
                    .as("greeted at most, and then cut off")
                    .hasSizeLessThan(100);
            for (var friend : friends) {
                asks(friend);
            }
            assertThat(gone).as("connections that stood").isEmpty();
        } finally {
            friends.forEach(SideChannel::close);
        }
    }

    private SideChannel.Asker hoarder() throws InterruptedException {
        var asker = hoarders.poll(SOON.toSeconds(), TimeUnit.SECONDS);
        assertThat(asker).isNotNull();
        return asker;
    }

    @Test
    void peersThatDoNotReadTakeTheirOwnRoomOnly() throws Exception {
        int hoarding = 4;
        for (int i = 0; i < hoarding; i++) {
            stranger().getOutputStream().write(ZmtpTest.hello("00026161"));
        }
        var answer = new byte[64 << 10];
        var first = hoarder();
        while (port.unsent() + answer.length <= ROOM) {
            assertThat(first.answer(answer)).isTrue();
        }
        try (var friend = known()) { // nothing is left but what everybody has
            asks(friend);
        }
        for (var asker = first; ; asker = hoarder()) {
            long taken = 0;
            while (asker.answer(answer)) {
                taken += answer.length;
                // What the kernel takes is not held here; it takes about 4 MiB.
                assertThat(taken).isLessThan(ROOM + (16L << 20));
            }
            if (--hoarding == 0) {
                break;
            }
        }
        var limit = Deadline.in(SOON);
        while (port.unsent() > 0 && !limit.passed()) { // those who were cut off hold nothing
            LockSupport.parkNanos(1_000_000);
        }
        assertThat(port.unsent()).isZero();
    }
}
