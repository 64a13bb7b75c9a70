// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.zmtp.SideChannel.Turn;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;
import org.zeromq.ZMQException;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;

class SideChannelTest {
    private static final Duration SOON = Duration.ofSeconds(20);

    /// Records what comes of an exchange.
    private static final class Recorder implements SideChannel.Answers {
        private final BlockingQueue<Object> heard = new LinkedBlockingQueue<>();
        private volatile boolean left;
        private volatile boolean unsent;

        @Override
        public void onLeaving() {
            left = true;
        }

        @Override
        public SideChannel.Reading onAnswer(byte[] message) {
            var text = new String(message, UTF_8);
            heard.add(text);
            return text.startsWith("last")
                    ? SideChannel.Reading.DONE
                    : text.startsWith("broken")
                            ? SideChannel.Reading.GIVE_UP
                            : SideChannel.Reading.MORE;
        }

        @Override
        public void onLost(Failure failure) {
            heard.add(failure);
        }

        @Override
        public void onNotSent(Failure failure) {
            unsent = true;
            heard.add(failure);
        }

        Object next() throws InterruptedException {
            var item = heard.poll(SOON.toSeconds(), TimeUnit.SECONDS);
            assertThat(item).as("nothing heard").isNotNull();
            return item;
        }
    }

    /// Gives each request to the test, and shares a connection with who offers that.
    private record Sharing(Consumer<SideChannel.Asker> asked) implements SideChannel.Requests {
        @Override
        public void onRequest(SideChannel.Asker asker, byte[] message) {
            asked.accept(asker);
        }

        @Override
        public boolean shares() {
            return true;
        }
    }

    @Test
    void carriesARequestAndSeveralAnswers() throws InterruptedException {
        try (var p = new SideChannel("p");
                var d = new SideChannel("d")) {
            var address =
                    p.listen(
                            "127.0.0.1",
                            (asker, message) -> {
                                asker.answer(("one " + new String(message, UTF_8)).getBytes(UTF_8));
                                asker.answer("last".getBytes(UTF_8));
                            });
            var heard = new Recorder();
            d.exchange(address, "hello".getBytes(UTF_8), SOON, SOON, heard);
            assertThat(heard.next()).isEqualTo("one hello");
            assertThat(heard.next()).isEqualTo("last");
        }
    }

    @Test
    void aConnectionServesOneExchangeAfterTheOther() throws InterruptedException {
        try (var p = new RawPrefiller(0);
                var d = new SideChannel("d")) {
            // The answer is heard shortly before the connection rests, so one exchange may miss it.
            var seen = new HashSet<String>();
            var limit = Deadline.in(SOON);
            while (seen.add(p.answers(d, "last"))) {
                assertThat(limit.passed()).as("%s connections, each used once", seen).isFalse();
            }
        }
    }

    @Test
    void aConnectionThatMayStillSaySomethingServesNoOtherExchange() throws InterruptedException {
        try (var p = new RawPrefiller(0);
                var d = new SideChannel("d")) {
            var first = p.answers(d, "broken");
            var second = p.answers(d, "last");
            assertThat(second).isNotEqualTo(first);
            p.say(second, "out of turn");
            p.awaitGone(second);
            assertThat(p.answers(d, "last")).isNotEqualTo(second);
        }
    }

    @Test
    void aConnectionRestsForALimitedTime() throws InterruptedException {
        try (var p = new RawPrefiller(0);
                var d = new SideChannel("d", Optional.empty(), Duration.ZERO)) {
            var first = p.answers(d, "last");
            assertThat(p.answers(d, "last")).isNotEqualTo(first);
        }
    }

    @Test
    void aConnectionWhosePeerHasGoneServesNoOtherExchange() throws InterruptedException {
        try (var d = new SideChannel("d")) {
            var ended = new LinkedBlockingQueue<String>();
            d.onIdleEnd(ended::add);
            int port;
            String first;
            try (var p = new RawPrefiller(0)) {
                port = p.port;
                first = p.answers(d, "last");
            }
            assertThat(ended.poll(SOON.toSeconds(), TimeUnit.SECONDS)).as("noticed").isNotNull();
            try (var successor = new RawPrefiller(port)) {
                assertThat(successor.answers(d, "last")).isNotEqualTo(first);
            }
        }
    }

    /// A ROUTER that tells connections apart.
    private static final class RawPrefiller implements AutoCloseable {
        private final ZContext context = new ZContext();
        private final ZMQ.Socket router = context.createSocket(SocketType.ROUTER);
        private final int port;

        RawPrefiller(int wanted) {
            router.setLinger(0);
            router.setReceiveTimeOut((int) SOON.toMillis());
            if (wanted == 0) {
                port = router.bindToRandomPort("tcp://127.0.0.1");
            } else {
                router.bind("tcp://127.0.0.1:" + wanted);
                port = wanted;
            }
        }

        /// Runs an exchange with this answer.
        ///
        /// @return which connection it came over
        String answers(SideChannel d, String answer) throws InterruptedException {
            var heard = new Recorder();
            d.exchange("tcp://127.0.0.1:" + port, new byte[1], SOON, SOON, heard);
            var identity = HexFormat.of().formatHex(router.recv());
            assertThat(router.recv()).hasSize(1);
            say(identity, answer);
            assertThat(heard.next()).isEqualTo(answer);
            return identity;
        }

        void say(String connection, String text) {
            router.send(HexFormat.of().parseHex(connection), ZMQ.SNDMORE);
            router.send(text);
        }

        void awaitGone(String connection) {
            router.setRouterMandatory(true); // an answer to nobody is an error
            var limit = Deadline.in(SOON);
            assertThatThrownBy(
                            () -> {
                                while (!limit.passed()) {
                                    var to = HexFormat.of().parseHex(connection);
                                    if (router.send(to, ZMQ.SNDMORE | ZMQ.DONTWAIT)) {
                                        router.send("out of turn", ZMQ.DONTWAIT);
                                    }
                                    // JeroMQ notices the end of a connection when it reads
                                    assertThat(router.recv(ZMQ.DONTWAIT)).isNull();
                                }
                            })
                    .isInstanceOf(ZMQException.class);
        }

        @Override
        public void close() {
            context.close();
        }
    }

    /// JeroMQ alone loses about one new connection in 500.
    @Test
    void losesNoExchange() throws InterruptedException {
        exchanges(50);
    }

    @Test
    @Tag("soak")
    @Timeout(1800)
    void losesNoneOfManyExchangesUnderLoad() throws InterruptedException {
        var over = new AtomicBoolean();
        var busy = new ArrayList<Thread>();
        for (int i = 0; i < 2 * Runtime.getRuntime().availableProcessors(); i++) {
            busy.add(
                    Thread.ofPlatform()
                            .daemon()
                            .start(() -> {
                                while (!over.get()) {
                                    Thread.onSpinWait();
                                }
                            }));
        }
        try {
            exchanges(1_000);
        } finally {
            over.set(true);
            for (var thread : busy) {
                thread.join();
            }
        }
    }

    private static void exchanges(int rounds) throws InterruptedException {
        try (var p = new SideChannel("p");
                var d = new SideChannel("d", Optional.empty(), Duration.ZERO)) {
            var address = p.listen("127.0.0.1", (asker, _) -> asker.answer("last".getBytes(UTF_8)));
            var heard = new Recorder();
            for (int round = 0; round < rounds; round++) {
                for (int i = 0; i < 40; i++) {
                    d.exchange(address, new byte[1], SOON, SOON, heard);
                }
                for (int i = 0; i < 40; i++) {
                    assertThat(heard.next()).as("round %d", round).isEqualTo("last");
                }
            }
        }
    }

    @Test
    void saysAtOnceThatNobodyListens() throws Exception {
        // Bound, so that no other program gets the port, but nobody listens.
        try (var held = new Socket();
                var d = new SideChannel("d")) {
            held.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            var heard = new Recorder();
            d.exchange(
                    "tcp://127.0.0.1:" + held.getLocalPort(),
                    new byte[1],
                    Duration.ofMinutes(5),
                    Duration.ofMinutes(5),
                    heard);
            assertLost(heard.next(), ErrorCode.PEER_LOST);
            d.exchange("tcp://no such host:1", new byte[1], SOON, SOON, heard);
            assertLost(heard.next(), ErrorCode.PEER_LOST);
        }
    }

    @Test
    void saysAtOnceThatThePeerDied() throws InterruptedException {
        var p = new SideChannel("p");
        try (var d = new SideChannel("d")) {
            var arrived = new LinkedBlockingQueue<byte[]>();
            var address = p.listen("127.0.0.1", (_, message) -> arrived.add(message));
            var heard = new Recorder();
            d.exchange(address, new byte[3], SOON, Duration.ofMinutes(5), heard);
            assertThat(arrived.poll(SOON.toSeconds(), TimeUnit.SECONDS)).hasSize(3);
            p.close();
            assertLost(heard.next(), ErrorCode.PEER_LOST);
        } finally {
            p.close();
        }
    }

    @Test
    void endsTheWaitForASilentPeer() throws Exception {
        try (var silent = new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
                var d = new SideChannel("d")) {
            var heard = new Recorder();
            d.exchange(
                    "tcp://127.0.0.1:" + silent.getLocalPort(),
                    new byte[1],
                    Duration.ofMillis(200),
                    SOON,
                    heard);
            assertLost(heard.next(), ErrorCode.TIMEOUT);
            assertThat(heard.unsent).isTrue();
        }
    }

    /// Where it has left, nothing happens.
    @ParameterizedTest
    @EnumSource
    void aRequestThatIsWithdrawnIsNotSent(SideChannel.Carriage carriage) throws Exception {
        try (var silent = new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
                var p = new SideChannel("p");
                var d = new SideChannel("d")) {
            var heard = new Recorder();
            var address = "tcp://127.0.0.1:" + silent.getLocalPort();
            var call = d.exchange(address, new byte[1], SOON, SOON, Turn.LONG, carriage, heard);
            try (var _ = silent.accept()) {
                call.withdraw();
                assertLost(heard.next(), ErrorCode.CANCELLED);
                assertThat(heard.unsent).isTrue();
            }
            call.withdraw();

            var asked = new LinkedBlockingQueue<SideChannel.Asker>();
            var listening = p.listen("127.0.0.1", new Sharing(asked::add));
            var answered = new Recorder();
            var sent =
                    d.exchange(listening, new byte[1], SOON, SOON, Turn.LONG, carriage, answered);
            var asker = asked.poll(SOON.toSeconds(), TimeUnit.SECONDS);
            assertThat(asker).isNotNull();
            sent.withdraw();
            asker.last("last".getBytes(UTF_8));
            assertThat(answered.next()).isEqualTo("last");
            assertThat(heard.heard).isEmpty();
        }
    }

    /// On connections that rest, on new ones and in the queue: each either arrives or is said not
    /// to have been sent, and all give their turns back.
    @ParameterizedTest
    @EnumSource
    void requestsThatAreWithdrawnWhileTheyLeaveArriveOrDoNot(SideChannel.Carriage carriage)
            throws Exception {
        try (var p = new SideChannel("p");
                var d = new SideChannel("d")) {
            var arrived = new AtomicInteger();
            var address =
                    p.listen(
                            "127.0.0.1",
                            new Sharing(asker -> {
                                arrived.incrementAndGet();
                                asker.last("last".getBytes(UTF_8));
                            }));
            int unsent = 0;
            int count = 600;
            for (int i = 0; i < count; i += 300) { // more than are open at a time
                var heard = new ArrayList<Recorder>();
                for (int j = 0; j < 300; j++) {
                    var each = new Recorder();
                    heard.add(each);
                    var call =
                            d.exchange(address, new byte[1], SOON, SOON, Turn.LONG, carriage, each);
                    call.withdraw();
                }
                for (var each : heard) {
                    if (each.next() instanceof Failure failure) {
                        assertThat(failure.code()).isEqualTo(ErrorCode.CANCELLED);
                        assertThat(each.unsent).isTrue();
                        unsent++;
                    }
                    assertThat(each.left).isNotEqualTo(each.unsent);
                }
            }
            assertThat(arrived).hasValue(count - unsent);
            var last = new Recorder();
            d.exchange(address, new byte[1], SOON, SOON, Turn.LONG, carriage, last);
            assertThat(last.next()).isEqualTo("last");
        }
    }

    @Test
    void endsTheWaitForAPeerThatTakesRequestsAndSaysNothing() throws InterruptedException {
        try (var p = new SideChannel("p");
                var d = new SideChannel("d")) {
            var address = p.listen("127.0.0.1", (_, _) -> {});
            var limit = Duration.ofMillis(200);
            Recorder heard;
            do { // with more time where it was over before the request had left
                heard = new Recorder();
                d.exchange(address, new byte[1], SOON, limit, heard);
                assertLost(heard.next(), ErrorCode.TIMEOUT);
                limit = limit.multipliedBy(2);
            } while (heard.unsent);
        }
    }

    @Test
    void anotherImplementationCanAnswer() throws InterruptedException {
        try (var d = new SideChannel("d");
                var context = new ZContext()) {
            var router = context.createSocket(SocketType.ROUTER);
            int port = router.bindToRandomPort("tcp://127.0.0.1");
            var heard = new Recorder();
            d.exchange("tcp://127.0.0.1:" + port, new byte[70_000], SOON, SOON, heard);
            router.setReceiveTimeOut((int) SOON.toMillis());
            var identity = router.recv();
            assertThat(router.recv()).hasSize(70_000);
            router.send(identity, ZMQ.SNDMORE);
            router.send("two", ZMQ.SNDMORE);
            router.send("frames are dropped");
            router.send(identity, ZMQ.SNDMORE);
            router.send("x".repeat(1_000));
            router.send(identity, ZMQ.SNDMORE);
            router.send("last");
            assertThat(heard.next()).isEqualTo("x".repeat(1_000));
            assertThat(heard.next()).isEqualTo("last");
        }
    }

    @Test
    void peersThatDoNotSpeakTheProtocolAreGivenUpAtOnce() throws Exception {
        try (var server = new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
                var d = new SideChannel("d")) {
            var heard = new Recorder();
            d.exchange("tcp://127.0.0.1:" + server.getLocalPort(), new byte[1], SOON, SOON, heard);
            try (var socket = server.accept()) {
                socket.getOutputStream().write("HTTP/1.1 400 Bad Request\r\n\r\n".getBytes(UTF_8));
                assertLost(heard.next(), ErrorCode.PROTOCOL);
            }
        }
    }

    @Test
    void closingTellsEveryWaiter() throws InterruptedException {
        var heard = new Recorder();
        try (var p = new SideChannel("p")) {
            var address = p.listen("127.0.0.1", (_, _) -> {});
            try (var d = new SideChannel("d")) {
                for (int i = 0; i < 300; i++) { // more than are open at a time
                    d.exchange(address, new byte[1], SOON, SOON, heard);
                }
            }
            for (int i = 0; i < 300; i++) {
                assertLost(heard.next(), ErrorCode.CLOSED);
            }
        }
    }

    @Test
    void aMessageOfSeveralFramesIsDroppedAlone() throws InterruptedException {
        try (var p = new SideChannel("p");
                var context = new ZContext()) {
            var arrived = new LinkedBlockingQueue<byte[]>();
            var address = p.listen("127.0.0.1", (_, message) -> arrived.add(message));
            var request = context.createSocket(SocketType.REQ); // sends an empty delimiter first
            request.connect(address);
            request.send("from REQ");
            var dealers = new ArrayList<ZMQ.Socket>();
            byte[] message = null;
            // Some connections that JeroMQ makes stall: it does not read our greeting, or late.
            while (message == null && dealers.size() < 10) {
                var dealer = context.createSocket(SocketType.DEALER);
                dealers.add(dealer);
                dealer.connect(address);
                dealer.send(new byte[0], ZMQ.SNDMORE);
                dealer.send("two frames");
                dealer.send("a", ZMQ.SNDMORE);
                dealer.send("b", ZMQ.SNDMORE);
                dealer.send("three frames");
                dealer.send("one frame");
                message = arrived.poll(3, TimeUnit.SECONDS);
            }
            assertThat(message).asString(UTF_8).isEqualTo("one frame");
            dealers.forEach(dealer -> dealer.send("again"));
            do {
                message = arrived.poll(SOON.toSeconds(), TimeUnit.SECONDS);
                assertThat(message).asString(UTF_8).isIn("again", "one frame");
            } while (!Arrays.equals(message, "again".getBytes(UTF_8)));
        }
    }

    @Test
    void garbageBytesCostOnlyTheirSender() throws Exception {
        long seed = System.nanoTime();
        var random = new Random(seed);
        try (var p = new SideChannel("p");
                var d = new SideChannel("d")) {
            var address = p.listen("127.0.0.1", (asker, _) -> asker.answer("last".getBytes(UTF_8)));
            int port = Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
            for (int i = 0; i < 50; i++) {
                try (var garbage = new Socket()) {
                    garbage.connect(
                            new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 5_000);
                    var bytes = new byte[random.nextInt(200)];
                    random.nextBytes(bytes);
                    if (i % 2 == 0 && bytes.length > 12) {
                        greeting(bytes); // past the greeting's first check
                    }
                    garbage.getOutputStream().write(bytes);
                } catch (IOException e) {
                    assertThat(e)
                            .as("seed %d: refused is fine, refusing everybody is not", seed)
                            .isNotNull();
                }
            }
            var heard = new Recorder();
            d.exchange(address, "x".getBytes(UTF_8), SOON, SOON, heard);
            assertThat(heard.next()).as("seed %d", seed).isEqualTo("last");
        }
    }

    @Test
    void anOversizedMessageCostsOnlyItsSender() throws Exception {
        try (var p = new SideChannel("p");
                var d = new SideChannel("d");
                var context = new ZContext()) {
            var address = p.listen("127.0.0.1", (asker, _) -> asker.answer("last".getBytes(UTF_8)));
            var heard = new Recorder();
            d.exchange(address, new byte[SideChannel.MAX_MESSAGE_BYTES + 1], SOON, SOON, heard);
            assertLost(heard.next(), ErrorCode.INVALID_REQUEST);
            var hostile = context.createSocket(SocketType.DEALER);
            hostile.setLinger(0);
            hostile.setReceiveTimeOut(500);
            hostile.connect(address);
            hostile.send(new byte[SideChannel.MAX_MESSAGE_BYTES + 1]);
            assertThat(hostile.recv()).as("an answer to an oversized message").isNull();
            d.exchange(address, new byte[1 << 20], SOON, SOON, heard);
            assertThat(heard.next()).isEqualTo("last");
        }
    }

    @Test
    void runsTimersOnItsThread() throws InterruptedException {
        try (var channel = new SideChannel("timed")) {
            var ran = new LinkedBlockingQueue<String>();
            var late = Duration.ofMillis(50);
            boolean inTime = false;
            while (!inTime) { // the second was asked for before the first was due
                long begun = System.nanoTime();
                channel.after(late, () -> ran.add("late " + Thread.currentThread().getName()));
                channel.after(Duration.ZERO, () -> ran.add("early"));
                inTime = System.nanoTime() - begun < late.toNanos();
                var first = ran.poll(SOON.toSeconds(), TimeUnit.SECONDS);
                var second = ran.poll(SOON.toSeconds(), TimeUnit.SECONDS);
                if (inTime) {
                    assertThat(first).isEqualTo("early");
                    assertThat(second).isEqualTo("late timed");
                }
                late = late.multipliedBy(2);
            }
        }
    }

    private static void greeting(byte[] bytes) {
        bytes[0] = (byte) 0xff;
        bytes[9] = 0x7f;
        bytes[10] = 3;
    }

    private static void assertLost(Object heard, ErrorCode code) {
        assertThat(heard)
                .isInstanceOfSatisfying(
                        Failure.class, f -> assertThat(f.code()).as(f.message()).isEqualTo(code));
    }
}
