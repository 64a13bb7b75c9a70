// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static org.assertj.core.api.Assertions.assertThat;

import static java.nio.charset.StandardCharsets.US_ASCII;
import static java.nio.charset.StandardCharsets.UTF_8;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.ByteBudget;
import io.kvferry.toolkit.zmtp.SideChannel.Carriage;
import io.kvferry.toolkit.zmtp.SideChannel.Turn;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// Exchanges that share a connection.
class SharedConnectionTest {
    private static final Duration SOON = Duration.ofSeconds(30);
    private static final Duration LONG = Duration.ofMinutes(10);

    private static final String GREETING =
            "ff00000000000000017f0300" + "4e554c4c" + "00".repeat(48);

    private final ScheduledThreadPoolExecutor clock = new ScheduledThreadPoolExecutor(1);
    private final List<AutoCloseable> open = new ArrayList<>();

    @AfterEach
    void close() throws Exception {
        for (var each : open) {
            each.close();
        }
        clock.shutdownNow();
    }

    private <T extends AutoCloseable> T closing(T made) {
        open.add(made);
        return made;
    }

    /// What an exchange hears: its answers, and how it ended.
    private static final class Recorder implements SideChannel.Answers {
        private final BlockingQueue<Object> heard = new LinkedBlockingQueue<>();
        private volatile boolean unsent;

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

    private record Asked(SideChannel.Asker asker, String text) {
        boolean answer(String answer) {
            return asker.answer(answer.getBytes(UTF_8));
        }

        boolean last(String answer) {
            return asker.last(answer.getBytes(UTF_8));
        }
    }

    /// Keeps what it is asked.
    private static final class Prefiller implements SideChannel.Requests {
        private final BlockingQueue<Asked> asked = new LinkedBlockingQueue<>();
        private final BlockingQueue<SideChannel.Asker> gone = new LinkedBlockingQueue<>();
        private final boolean shares;

        Prefiller(boolean shares) {
            this.shares = shares;
        }

        @Override
        public void onRequest(SideChannel.Asker asker, byte[] message) {
            asked.add(new Asked(asker, new String(message, UTF_8)));
        }

        @Override
        public void onGone(SideChannel.Asker asker) {
            gone.add(asker);
        }

        @Override
        public boolean shares() {
            return shares;
        }

        Asked next() throws InterruptedException {
            var item = asked.poll(SOON.toSeconds(), TimeUnit.SECONDS);
            assertThat(item).as("nobody asks").isNotNull();
            return item;
        }

        SideChannel.Asker nextGone() throws InterruptedException {
            var item = gone.poll(SOON.toSeconds(), TimeUnit.SECONDS);
            assertThat(item).as("nobody goes").isNotNull();
            return item;
        }
    }

    private RouterPort port(SideChannel.Requests requests, Optional<CurveKeys> keys)
            throws IOException {
        var listener =
                ServerSocketChannel.open()
                        .bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 512);
        return closing(new RouterPort("p", listener, "127.0.0.1", keys, requests, clock));
    }

    private SideChannel channel(Optional<CurveKeys> keys) {
        return closing(new SideChannel("d", keys));
    }

    private SideChannel channel() {
        return channel(Optional.empty());
    }

    private static SideChannel.Call ask(
            SideChannel d, String address, String text, Duration limit, Recorder heard) {
        return d.exchange(
                address, text.getBytes(UTF_8), SOON, limit, Turn.LONG, Carriage.SHARED, heard);
    }

    private static Optional<CurveKeys> keys(boolean curve) {
        return curve ? Optional.of(CurveKeys.shared(new byte[32])) : Optional.empty();
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aThousandAreOpenOnOneConnection(boolean curve) throws Exception {
        var p = new Prefiller(true);
        var port = port(p, keys(curve));
        var d = channel(keys(curve));
        int count = 4 * Turns.MOST_PER_PREFILLER;
        var heard = new ArrayList<Recorder>();
        for (int i = 0; i < count; i++) {
            heard.add(new Recorder());
            ask(d, port.address(), Integer.toString(i), LONG, heard.getLast());
        }
        var asked = new ArrayList<Asked>();
        for (int i = 0; i < count; i++) {
            asked.add(p.next());
        }
        assertThat(port.connections()).isEqualTo(1);
        Collections.shuffle(asked, new Random(1));
        asked.forEach(each -> assertThat(each.answer("more " + each.text())).isTrue());
        asked.forEach(each -> assertThat(each.last("last " + each.text())).isTrue());
        for (int i = 0; i < count; i++) {
            assertThat(heard.get(i).next()).isEqualTo("more " + i);
            assertThat(heard.get(i).next()).isEqualTo("last " + i);
        }
        assertThat(asked.getFirst().answer("after the last")).isFalse();
        assertThat(p.gone).as("of those that had their last answer").isEmpty();
    }

    @Test
    void aPrefillerThatDoesNotShareIsAskedOverAConnectionForEach() throws Exception {
        var p = new Prefiller(false);
        var port = port(p, Optional.empty());
        var d = channel();
        int count = Turns.MOST_PER_PREFILLER + 40;
        var heard = new ArrayList<Recorder>();
        for (int i = 0; i < count; i++) {
            heard.add(new Recorder());
            ask(d, port.address(), Integer.toString(i), LONG, heard.getLast());
        }
        for (int i = 0; i < count; i++) { // the last ones when others have been answered
            var asked = p.next();
            asked.last("last " + asked.text());
        }
        for (int i = 0; i < count; i++) {
            assertThat(heard.get(i).next()).isEqualTo("last " + i);
        }
    }

    @Test
    void aDecoderThatDoesNotShareIsServed() throws Exception {
        var p = new Prefiller(true);
        var port = port(p, Optional.empty());
        var heard = new Recorder();
        channel().exchange(port.address(), "x".getBytes(UTF_8), SOON, SOON, heard);
        p.next().last("last");
        assertThat(heard.next()).isEqualTo("last");
    }

    @Test
    void anotherImplementationIsAskedAsEver() throws Exception {
        try (var context = new ZContext()) {
            var router = context.createSocket(SocketType.ROUTER);
            router.setReceiveTimeOut((int) SOON.toMillis());
            int number = router.bindToRandomPort("tcp://127.0.0.1");
            var heard = new Recorder();
            ask(channel(), "tcp://127.0.0.1:" + number, "hello", SOON, heard);
            var identity = router.recv();
            assertThat(router.recvStr()).isEqualTo("hello");
            router.send(identity, ZMQ.SNDMORE);
            router.send("last");
            assertThat(heard.next()).isEqualTo("last");
        }
    }

    @Test
    void anotherImplementationIsServedAsEver() throws Exception {
        var shares =
                new SideChannel.Requests() {
                    @Override
                    public void onRequest(SideChannel.Asker asker, byte[] message) {
                        asker.last(message);
                    }

                    @Override
                    public boolean shares() {
                        return true;
                    }
                };
        var port = port(shares, Optional.empty());
        try (var context = new ZContext()) {
            String answer = null;
            // Some connections that JeroMQ makes stall: it does not read our greeting.
            for (int attempt = 0; attempt < 10 && answer == null; attempt++) {
                var dealer = context.createSocket(SocketType.DEALER);
                dealer.setReceiveTimeOut(3_000);
                dealer.connect(port.address());
                dealer.send("hello");
                answer = dealer.recvStr();
            }
            assertThat(answer).isEqualTo("hello");
        }
    }

    @Test
    void onlyWhoKnowsTheKeyAsks() throws Exception {
        var p = new Prefiller(true);
        var port = port(p, keys(true));
        var other = new byte[32];
        other[5] = 1; // the lowest bits of the first byte are no part of the key
        var heard = new Recorder();
        ask(channel(Optional.of(CurveKeys.shared(other))), port.address(), "x", SOON, heard);
        ask(channel(), port.address(), "x", SOON, heard);
        for (int i = 0; i < 2; i++) {
            assertThat(heard.next()).isInstanceOf(Failure.class);
        }
        assertThat(p.asked).isEmpty();
    }

    /// What a prefiller keeps for a request it keeps for long when it never hears of it.
    @Test
    void aRequestThatIsGivenUpAtOnceReachesThePrefillerAllTheSame() throws Exception {
        var p = new Prefiller(true);
        var port = port(p, Optional.empty());
        var heard = new Recorder();
        ask(channel(), port.address(), "given up", LONG, heard).cancel();
        var asked = p.next();
        assertThat(((Failure) heard.next()).code()).isEqualTo(ErrorCode.CANCELLED);
        assertThat(p.nextGone()).isSameAs(asked.asker());
    }

    @Test
    void anExchangeThatIsGivenUpEndsAtThePrefillerToo() throws Exception {
        var p = new Prefiller(true);
        var port = port(p, Optional.empty());
        var d = channel();
        var heard = new Recorder();
        var call = ask(d, port.address(), "cancelled", LONG, heard);
        var cancelled = p.next();
        call.cancel();
        assertThat(((Failure) heard.next()).code()).isEqualTo(ErrorCode.CANCELLED);
        assertThat(p.nextGone()).isSameAs(cancelled.asker());
        assertThat(cancelled.last("late")).isFalse();

        var limit = Duration.ofMillis(100);
        Recorder ofLate;
        do { // with more time where it was over before the request had left
            ofLate = new Recorder();
            ask(d, port.address(), "late", limit, ofLate);
            assertThat(((Failure) ofLate.next()).code()).isEqualTo(ErrorCode.TIMEOUT);
            limit = limit.multipliedBy(2);
        } while (ofLate.unsent);
        assertThat(p.nextGone()).isSameAs(p.next().asker());

        ask(d, port.address(), "broken", LONG, heard);
        var broken = p.next();
        broken.answer("broken");
        assertThat(heard.next()).isEqualTo("broken");
        assertThat(p.nextGone()).isSameAs(broken.asker());

        ask(d, port.address(), "too early", LONG, heard);
        p.next().last("more");
        assertThat(heard.next()).isEqualTo("more");
        assertThat(((Failure) heard.next()).code()).isEqualTo(ErrorCode.PROTOCOL);

        ask(d, port.address(), "fine", LONG, heard);
        p.next().last("last");
        assertThat(heard.next()).isEqualTo("last");
        assertThat(port.connections()).as("it went on all the while").isEqualTo(1);
    }

    @Test
    void allEndWithTheirConnection() throws Exception {
        var p = new Prefiller(true);
        var port = port(p, Optional.empty());
        var d = channel();
        var heard = new Recorder();
        for (int i = 0; i < 300; i++) {
            ask(d, port.address(), "x", LONG, heard);
        }
        for (int i = 0; i < 300; i++) {
            p.next();
        }
        port.close();
        for (int i = 0; i < 300; i++) {
            assertThat(((Failure) heard.next()).code()).isEqualTo(ErrorCode.PEER_LOST);
            p.nextGone();
        }
        assertThat(heard.heard).isEmpty();
        assertThat(p.gone).isEmpty();

        var second = port(p, Optional.empty());
        ask(d, second.address(), "x", LONG, heard);
        p.next();
        d.close();
        assertThat(((Failure) heard.next()).code()).isEqualTo(ErrorCode.CLOSED);
        p.nextGone();
    }

    @Test
    void aPrefillerThatReadsSlowlyGetsAllInTheEnd() throws Exception {
        var taken = new AtomicInteger();
        var release = new LinkedBlockingQueue<Integer>();
        SideChannel.Requests slow =
                new SideChannel.Requests() {
                    @Override
                    public void onRequest(SideChannel.Asker asker, byte[] message) {
                        try { // the connection is not read meanwhile
                            release.poll(SOON.toSeconds(), TimeUnit.SECONDS);
                        } catch (InterruptedException e) {
                            Thread.currentThread().interrupt();
                        }
                        taken.incrementAndGet();
                        asker.last("last".getBytes(UTF_8));
                    }

                    @Override
                    public boolean shares() {
                        return true;
                    }
                };
        var port = port(slow, Optional.empty());
        var d = channel();
        var heard = new Recorder();
        int count = 50; // of 1 MiB: more than a connection may have unsent
        for (int i = 0; i < count; i++) {
            d.exchange(
                    port.address(),
                    new byte[1 << 20],
                    SOON,
                    LONG,
                    Turn.LONG,
                    Carriage.SHARED,
                    heard);
        }
        for (int i = 0; i < count; i++) {
            release.add(i);
        }
        for (int i = 0; i < count; i++) {
            assertThat(heard.next()).isEqualTo("last");
        }
        assertThat(taken).hasValue(count);
    }

    /// Every exchange hears its own answers, in order, and one end; whoever asked and is not
    /// answered hears or is heard of.
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void whateverHappensEveryExchangeEndsOnceWithItsOwnAnswers(boolean curve) throws Exception {
        long seed = System.nanoTime();
        var random = new Random(seed);
        var p = new Prefiller(true);
        for (int round = 0; round < 4; round++) {
            var port = port(p, keys(curve));
            var d = closing(new SideChannel("d", keys(curve)));
            var heard = new ArrayList<Recorder>();
            var calls = new ArrayList<SideChannel.Call>();
            var asked = new ArrayList<Asked>();
            for (int step = 0; step < 1_500; step++) {
                switch (random.nextInt(8)) {
                    case 0, 1, 2 -> {
                        heard.add(new Recorder());
                        var limit = random.nextInt(20) == 0 ? Duration.ofMillis(1) : LONG;
                        var text = "" + (heard.size() - 1);
                        calls.add(ask(d, port.address(), text, limit, heard.getLast()));
                    }
                    case 3 -> {
                        if (!calls.isEmpty() && random.nextInt(4) == 0) {
                            calls.get(random.nextInt(calls.size())).cancel();
                        }
                    }
                    case 4, 5 -> {
                        var next = p.asked.poll(1, TimeUnit.MILLISECONDS);
                        if (next != null) {
                            asked.add(next);
                        }
                    }
                    case 6 -> {
                        if (!asked.isEmpty()) {
                            var one = asked.get(random.nextInt(asked.size()));
                            one.answer("more " + one.text());
                        }
                    }
                    default -> {
                        if (!asked.isEmpty()) {
                            var one = asked.remove(random.nextInt(asked.size()));
                            one.last("last " + one.text());
                        }
                    }
                }
            }
            if (random.nextBoolean()) {
                port.close();
            } else {
                d.close();
            }
            for (int i = 0; i < heard.size(); i++) {
                Object item = heard.get(i).next();
                while (("more " + i).equals(item)) {
                    item = heard.get(i).next();
                }
                assertThat(item instanceof Failure || ("last " + i).equals(item))
                        .as("seed %d, exchange %d heard %s", seed, i, item)
                        .isTrue();
                assertThat(heard.get(i).heard).as("seed %d, after the end", seed).isEmpty();
            }
            d.close();
            port.close();
            p.asked.clear();
        }
    }

    private static byte[] ready(String socketType, boolean shares) {
        var body = ByteBuffer.allocate(100);
        body.put((byte) 5).put("READY".getBytes(US_ASCII));
        body.put((byte) 11).put("Socket-Type".getBytes(US_ASCII));
        body.putInt(socketType.length()).put(socketType.getBytes(US_ASCII));
        if (shares) {
            body.put((byte) 19).put("X-Kvferry-Exchanges".getBytes(US_ASCII));
            body.putInt(1).put((byte) '1');
        }
        return ByteBuffer.allocate(2 + body.position())
                .put((byte) ZmtpStream.COMMAND)
                .put((byte) body.position())
                .put(body.array(), 0, body.position())
                .array();
    }

    private static byte[] message(byte[] body) {
        assertThat(body).hasSizeLessThan(256);
        return ByteBuffer.allocate(2 + body.length)
                .put((byte) 0)
                .put((byte) body.length)
                .put(body)
                .array();
    }

    /// A decoder that has agreed to share its connection.
    private Socket rawDecoder(RouterPort port) throws IOException {
        int number = URI.create(port.address()).getPort();
        var socket = closing(new Socket(InetAddress.getLoopbackAddress(), number));
        socket.setSoTimeout((int) SOON.toMillis());
        socket.getOutputStream().write(HexFormat.of().parseHex(GREETING));
        socket.getOutputStream().write(ready("DEALER", true));
        var in = new DataInputStream(socket.getInputStream());
        in.readFully(new byte[64]);
        assertThat(in.readByte()).isEqualTo((byte) ZmtpStream.COMMAND);
        in.readFully(new byte[in.readUnsignedByte()]);
        return socket;
    }

    @Test
    void malformedFramesCostADecoderItsConnection() throws Exception {
        var p = new Prefiller(true);
        var port = port(p, Optional.empty());
        var request = ExchangeFrame.encode(7, ExchangeFrame.REQUEST, "x".getBytes(UTF_8));
        for (var wrong :
                List.of(
                        new byte[0],
                        new byte[8],
                        ExchangeFrame.encode(1, 0),
                        ExchangeFrame.encode(1, ExchangeFrame.ANSWER),
                        ExchangeFrame.encode(1, ExchangeFrame.LAST),
                        ExchangeFrame.encode(1, ExchangeFrame.REFUSED),
                        ExchangeFrame.encode(1, 99),
                        request)) { // a second time
            var hostile = rawDecoder(port);
            hostile.getOutputStream().write(message(request));
            var asked = p.next();
            hostile.getOutputStream().write(message(wrong));
            assertThat(p.nextGone()).isSameAs(asked.asker());
            assertThat(hostile.getInputStream().readAllBytes()).isEmpty();
        }
        var fine = rawDecoder(port);
        fine.getOutputStream().write(message(ExchangeFrame.encode(9, ExchangeFrame.CANCEL)));
        fine.getOutputStream().write(message(request));
        p.next().last("last");
        assertThat(fine.getInputStream().readNBytes(2 + 9 + 4))
                .isEqualTo(
                        message(
                                ExchangeFrame.encode(
                                        7, ExchangeFrame.LAST, "last".getBytes(UTF_8))));
    }

    @Test
    void randomFramesDisturbNobodyElse() throws Exception {
        long seed = System.nanoTime();
        var random = new Random(seed);
        var p = new Prefiller(true);
        var port = port(p, Optional.empty());
        var d = channel();
        var heard = new Recorder();
        for (int round = 0; round < 100; round++) {
            var hostile = rawDecoder(port);
            try {
                for (int i = 0; i < 10; i++) {
                    var frame =
                            ExchangeFrame.encode(
                                    random.nextInt(3),
                                    random.nextInt(7),
                                    new byte[random.nextInt(20)]);
                    if (random.nextInt(4) == 0) {
                        random.nextBytes(frame);
                    }
                    hostile.getOutputStream().write(message(frame));
                }
            } catch (IOException e) {
                assertThat(hostile.isConnected()).as("cut off: %s", e).isTrue();
            }
            hostile.close();
            ask(d, port.address(), "fine " + round, LONG, heard);
            Asked asked = p.next();
            while (!asked.text().equals("fine " + round)) {
                asked.last("last");
                asked = p.next();
            }
            asked.last("last " + round);
            assertThat(heard.next()).as("seed %d", seed).isEqualTo("last " + round);
        }
    }

    @Test
    void whoOpensTooManyIsRefusedThose() throws Exception {
        var p = new Prefiller(true);
        var port = port(p, Optional.empty());
        var hostile = rawDecoder(port);
        var out = hostile.getOutputStream();
        for (int i = 0; i <= SharedAskers.MOST_OPEN; i++) {
            out.write(message(ExchangeFrame.encode(i, ExchangeFrame.REQUEST)));
        }
        assertThat(hostile.getInputStream().readNBytes(2 + 9))
                .isEqualTo(
                        message(
                                ExchangeFrame.encode(
                                        SharedAskers.MOST_OPEN, ExchangeFrame.REFUSED)));
        for (int i = 0; i < SharedAskers.MOST_OPEN; i++) {
            p.next();
        }
        hostile.close();
        for (int i = 0; i < SharedAskers.MOST_OPEN; i++) {
            p.nextGone();
        }
    }

    /// A prefiller that has agreed to share connections, and says what it likes.
    private Socket rawPrefiller(ServerSocket listener) throws IOException {
        var socket = closing(listener.accept());
        socket.setSoTimeout((int) SOON.toMillis());
        socket.getOutputStream().write(HexFormat.of().parseHex(GREETING));
        socket.getOutputStream().write(ready("ROUTER", true));
        var in = new DataInputStream(socket.getInputStream());
        in.readFully(new byte[64]);
        in.readByte();
        in.readFully(new byte[in.readUnsignedByte()]);
        return socket;
    }

    @Test
    void malformedFramesOfAPrefillerEndItsExchanges() throws Exception {
        try (var listener = new ServerSocket(0, 16, InetAddress.getLoopbackAddress())) {
            var address = "tcp://127.0.0.1:" + listener.getLocalPort();
            var d = channel();
            for (var wrong :
                    List.of(
                            new byte[3],
                            ExchangeFrame.encode(1, ExchangeFrame.REQUEST),
                            ExchangeFrame.encode(1, ExchangeFrame.CANCEL),
                            ExchangeFrame.encode(1, 77))) {
                var heard = new Recorder();
                ask(d, address, "x", LONG, heard);
                ask(d, address, "y", LONG, heard);
                var p = rawPrefiller(listener);
                // Nobody asked these: they are ignored.
                p.getOutputStream().write(message(ExchangeFrame.encode(99, ExchangeFrame.LAST)));
                p.getOutputStream().write(message(ExchangeFrame.encode(98, ExchangeFrame.REFUSED)));
                p.getOutputStream().write(message(wrong));
                assertThat(((Failure) heard.next()).code()).isEqualTo(ErrorCode.PROTOCOL);
                assertThat(((Failure) heard.next()).code()).isEqualTo(ErrorCode.PROTOCOL);
            }
        }
    }

    @Test
    void aPrefillerThatRefusesOneServesTheOthers() throws Exception {
        try (var listener = new ServerSocket(0, 16, InetAddress.getLoopbackAddress())) {
            var heard = new Recorder();
            ask(channel(), "tcp://127.0.0.1:" + listener.getLocalPort(), "x", LONG, heard);
            var p = rawPrefiller(listener);
            p.getInputStream().readNBytes(2 + 9 + 1);
            p.getOutputStream().write(message(ExchangeFrame.encode(1, ExchangeFrame.REFUSED)));
            assertThat(((Failure) heard.next()).code()).isEqualTo(ErrorCode.BACKPRESSURE);
        }
    }

    @Test
    void aPrefillerThatGivesNoSignOfLifeIsAskedForOneAndThenLost() throws Exception {
        try (var listener = new ServerSocket(0, 16, InetAddress.getLoopbackAddress())) {
            var address = "tcp://127.0.0.1:" + listener.getLocalPort();
            var heard = new Recorder();
            var ended = new LinkedBlockingQueue<List<Exchange>>();
            var room = new ByteBudget(1 << 20);
            var exchange =
                    new Exchange(
                            address,
                            new byte[1],
                            SOON,
                            LONG,
                            Turn.LONG,
                            Carriage.SHARED,
                            heard,
                            clock);
            var terms = new ZmtpHandshake.Terms(ZmtpHandshake.Role.DEALER, Optional.empty(), true);
            var connection =
                    new SharedDealer(
                            exchange,
                            new Dial(address, terms, room, room, clock),
                            new SharedDealer.Listener() {
                                @Override
                                public void onOver(Exchange over) {}

                                @Override
                                public void onEnd(SharedDealer at, List<Exchange> carried) {
                                    ended.add(carried);
                                }

                                @Override
                                public void onRefusedToShare(
                                        SharedDealer at, List<Exchange> carried) {}
                            });
            assertThat(connection.begin(exchange)).isTrue();
            Thread.ofVirtual().start(connection::run);
            var p = rawPrefiller(listener);
            p.getInputStream().readNBytes(2 + 9 + 1);
            long now = System.nanoTime();
            assertThat(connection.look(now, 0)).isTrue();
            assertThat(connection.look(now + Duration.ofSeconds(30).toNanos(), 0)).isTrue();
            assertThat(p.getInputStream().readNBytes(2 + 7))
                    .isEqualTo(HexFormat.of().parseHex("0407" + "0450494e47" + "0000"));
            assertThat(connection.look(now + Duration.ofSeconds(90).toNanos(), 0)).isFalse();
            connection.close();
            var failure = (Failure) heard.next();
            assertThat(failure.code()).isEqualTo(ErrorCode.PEER_LOST);
            assertThat(failure.message()).contains("sign of life");
            assertThat(ended.poll(SOON.toSeconds(), TimeUnit.SECONDS)).containsExactly(exchange);
        }
    }

    @Test
    void aConnectionThatRestedForLongIsClosedAndTheNextExchangeGetsAnother() throws Exception {
        var p = new Prefiller(true);
        var port = port(p, Optional.empty());
        var d = closing(new SideChannel("d", Optional.empty(), Duration.ZERO));
        var heard = new Recorder();
        for (int round = 0; round < 2; round++) {
            ask(d, port.address(), "x", LONG, heard);
            p.next().last("last");
            assertThat(heard.next()).isEqualTo("last");
            var limit = Deadline.in(SOON);
            while (port.connections() > 0 && !limit.passed()) {
                Thread.onSpinWait();
            }
            assertThat(port.connections()).isZero();
        }
    }
}
