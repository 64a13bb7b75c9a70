// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.zmtp;

import static org.assertj.core.api.Assertions.assertThat;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.Failure;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// The side channel's protocol against JeroMQ, and against bytes that make JeroMQ's own thread spin
/// or die.
class ZmtpTest {
    private static final Duration SOON = Duration.ofSeconds(20);

    /// Signature, version 3.0, mechanism NULL.
    private static final String GREETING =
            "ff00000000000000017f" + "0300" + "4e554c4c" + "00".repeat(16) + "00".repeat(32);

    private static final String READY =
            "0419"
                    + "055245414459"
                    + "0b"
                    + HexFormat.of().formatHex("Socket-Type".getBytes(UTF_8))
                    + "00000003"
                    + HexFormat.of().formatHex("REQ".getBytes(UTF_8));

    /// Frames that are fine after the handshake.
    private static final Set<String> READY_ONLY = Set.of("0405524541445a", "0000");

    /// Keeps what it hears.
    private static final class Recorder implements SideChannel.Answers {
        private final BlockingQueue<Object> heard = new LinkedBlockingQueue<>();

        @Override
        public SideChannel.Reading onAnswer(byte[] message) {
            heard.add(new String(message, UTF_8));
            return SideChannel.Reading.DONE;
        }

        @Override
        public void onLost(Failure failure) {
            heard.add(failure);
        }

        Object next() throws InterruptedException {
            var item = heard.poll(SOON.toSeconds(), TimeUnit.SECONDS);
            assertThat(item).as("nothing heard").isNotNull();
            return item;
        }
    }

    private static int port(String address) {
        return Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
    }

    /// What a peer that does everything right begins with, and then this.
    static byte[] hello(String frames) {
        return HexFormat.of().parseHex(GREETING + READY + frames);
    }

    private static Socket connect(String address, String hex) throws IOException {
        var socket = new Socket(InetAddress.getLoopbackAddress(), port(address));
        socket.setSoTimeout((int) SOON.toMillis());
        socket.getOutputStream().write(HexFormat.of().parseHex(hex));
        return socket;
    }

    private static void assertServes(SideChannel d, String address) throws InterruptedException {
        var heard = new Recorder();
        d.exchange(address, new byte[70_000], SOON, SOON, heard);
        assertThat(heard.next()).isEqualTo("answer");
    }

    private static String echo(SideChannel p) {
        return p.listen("127.0.0.1", (asker, _) -> asker.answer("answer".getBytes(UTF_8)));
    }

    /// All of them within the first 73 bytes, before anybody has shown who they are.
    @ParameterizedTest
    @ValueSource(
            strings = {
                "02ffffffffffffffff",
                "06ffffffffffffffff",
                "028000000080000001",
                "067fffffffffffffff",
                "020000000001000001",
                "08000000",
                "0500",
                "0405524541445a",
                "0000"
            })
    void malformedFramesCostTheirSenderTheConnection(String frame) throws Exception {
        try (var p = new SideChannel("p");
                var d = new SideChannel("d")) {
            var address = echo(p);
            try (var hostile = connect(address, GREETING + frame)) {
                // Greeting and READY, and then the end.
                assertThat(hostile.getInputStream().readAllBytes()).hasSizeGreaterThan(63);
            }
            if (!READY_ONLY.contains(frame)) {
                try (var hostile = connect(address, GREETING + READY + frame)) {
                    assertThat(hostile.getInputStream().readAllBytes()).hasSizeGreaterThan(63);
                }
            }
            assertServes(d, address);
        }
    }

    @Test
    void announcedBytesTakeNoMemoryBeforeTheyArrive() throws Exception {
        try (var p = new SideChannel("p");
                var d = new SideChannel("d")) {
            var address = echo(p);
            var open = new ArrayList<Socket>();
            try {
                System.gc();
                long before = used();
                for (int i = 0; i < 300; i++) { // 4.7 GiB
                    open.add(connect(address, GREETING + READY + "020000000001000000" + "aabb"));
                }
                assertServes(d, address);
                System.gc();
                assertThat(used() - before).isLessThan(100L << 20);
            } finally {
                for (var socket : open) {
                    socket.close();
                }
            }
        }
    }

    private static long used() {
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    @Test
    void aPrefillerThatAnswersNothingHoldsUpNobodyElse() throws Exception {
        try (var slow = new SideChannel("slow");
                var idle = new SideChannel("idle");
                var d = new SideChannel("d")) {
            var deaf = slow.listen("127.0.0.1", (_, _) -> {});
            var prompt = echo(idle);
            var never = new Recorder();
            for (int i = 0; i < 3 * Turns.MOST_PER_PREFILLER; i++) {
                d.exchange(deaf, new byte[1], SOON, Duration.ofMinutes(5), never);
            }
            assertServes(d, prompt);
            assertThat(never.heard).isEmpty();
        }
    }

    @Test
    void whatIsAnsweredAtOnceDoesNotWaitBehindWhatIsNot() throws Exception {
        try (var p = new SideChannel("p");
                var d = new SideChannel("d")) {
            var address =
                    p.listen(
                            "127.0.0.1",
                            (asker, message) -> {
                                if (message.length == 2) {
                                    asker.answer("answer".getBytes(UTF_8));
                                }
                            });
            var never = new Recorder();
            for (int i = 0; i < 2 * Turns.MOST_PER_PREFILLER; i++) {
                d.exchange(address, new byte[1], SOON, Duration.ofMinutes(5), never);
            }
            for (int i = 0; i < 2 * Turns.MOST_PER_PREFILLER; i++) {
                var heard = new Recorder();
                d.exchange(address, new byte[2], SOON, SOON, SideChannel.Turn.SHORT, heard);
                assertThat(heard.next()).isEqualTo("answer");
            }
            assertThat(never.heard).isEmpty();
        }
    }

    @Test
    void whatIsDoneEverySoOftenIsDoneAgainThoughItFailed() throws Exception {
        try (var channel = new SideChannel("timed")) {
            var ran = new LinkedBlockingQueue<String>();
            channel.every(
                    Duration.ofMillis(1),
                    () -> {
                        ran.add("ran");
                        throw new OutOfMemoryError("says the test");
                    });
            for (int i = 0; i < 3; i++) {
                assertThat(ran.poll(SOON.toSeconds(), TimeUnit.SECONDS)).isNotNull();
            }
        }
    }

    @Test
    void anExchangeThatWaitsForItsTurnKeepsItsTimeToConnect() throws Exception {
        try (var p = new SideChannel("p");
                var d = new SideChannel("d")) {
            var askers = new LinkedBlockingQueue<SideChannel.Asker>();
            var address = p.listen("127.0.0.1", (asker, _) -> askers.add(asker));
            var heard = new Recorder();
            for (int i = 0; i < Turns.MOST_PER_PREFILLER; i++) {
                d.exchange(address, new byte[1], SOON, Duration.ofMinutes(5), heard);
            }
            var connectLimit = Duration.ofMillis(300);
            for (int i = 0; i < 50; i++) {
                d.exchange(address, new byte[1], connectLimit, Duration.ofMinutes(5), heard);
            }
            for (int i = 0; i < Turns.MOST_PER_PREFILLER; i++) {
                assertThat(askers.poll(SOON.toSeconds(), TimeUnit.SECONDS)).isNotNull();
            }
            assertThat(askers).as("the others wait").isEmpty();
            // Longer than the others had to connect, if that time ran while they wait.
            LockSupport.parkNanos(connectLimit.multipliedBy(3).toNanos());
            assertThat(heard.heard).isEmpty();
        }
    }

    @Test
    void timersGoWithWhatTheyTime() throws Exception {
        try (var p = new SideChannel("p");
                var d = new SideChannel("d")) {
            int before = d.timers();
            for (int i = 0; i < 10; i++) {
                assertServes(d, echoOnce(p, i));
            }
            d.after(Duration.ofHours(1), () -> {}).cancel();
            // An exchange tells its caller before it cancels its timers.
            long limit = System.nanoTime() + SOON.toNanos();
            while (d.timers() != before && System.nanoTime() < limit) {
                Thread.onSpinWait();
            }
            assertThat(d.timers()).isEqualTo(before);
        }
    }

    private String known = "";

    private String echoOnce(SideChannel p, int i) {
        if (i == 0) {
            known = echo(p);
        }
        return known;
    }

    @Test
    void saysThatAnAskerHasGone() throws Exception {
        try (var p = new SideChannel("p")) {
            var asked = new LinkedBlockingQueue<SideChannel.Asker>();
            var gone = new LinkedBlockingQueue<SideChannel.Asker>();
            var address =
                    p.listen(
                            "127.0.0.1",
                            new SideChannel.Requests() {
                                @Override
                                public void onRequest(SideChannel.Asker asker, byte[] message) {
                                    asked.add(asker);
                                }

                                @Override
                                public void onGone(SideChannel.Asker asker) {
                                    gone.add(asker);
                                }
                            });
            var hostile = connect(address, GREETING + READY + "000161");
            var asker = asked.poll(SOON.toSeconds(), TimeUnit.SECONDS);
            assertThat(asker).isNotNull();
            hostile.close();
            assertThat(gone.poll(SOON.toSeconds(), TimeUnit.SECONDS)).isSameAs(asker);
            var limit = Deadline.in(SOON);
            while (asker.answer(new byte[1]) && !limit.passed()) {
                Thread.onSpinWait();
            }
            assertThat(asker.answer(new byte[1])).isFalse();
        }
    }

    @Test
    void speaksCurveWithJeroMqInBothRoles() throws Exception {
        var server = ZMQ.Curve.generateKeyPair();
        var client = ZMQ.Curve.generateKeyPair();
        var serverKeys =
                new CurveKeys(
                        server.publicKey,
                        server.secretKey,
                        server.publicKey,
                        Set.of(client.publicKey));
        var clientKeys =
                new CurveKeys(
                        client.publicKey,
                        client.secretKey,
                        server.publicKey,
                        Set.of(client.publicKey));
        var message = "x".repeat(100_000).getBytes(UTF_8);
        try (var context = new ZContext()) {
            try (var p = new SideChannel("p", Optional.of(serverKeys))) {
                var address = p.listen("127.0.0.1", SideChannel.Asker::answer);
                // One in a hundred connections that JeroMQ makes stalls, with its own ROUTER too.
                byte[] answer = null;
                for (int attempt = 0; attempt < 5 && answer == null; attempt++) {
                    var dealer = context.createSocket(SocketType.DEALER);
                    dealer.setCurvePublicKey(ZMQ.Curve.z85Decode(client.publicKey));
                    dealer.setCurveSecretKey(ZMQ.Curve.z85Decode(client.secretKey));
                    dealer.setCurveServerKey(ZMQ.Curve.z85Decode(server.publicKey));
                    dealer.setReceiveTimeOut(5_000);
                    dealer.connect(address);
                    dealer.send(message);
                    answer = dealer.recv();
                }
                assertThat(Arrays.equals(answer, message)).isTrue();
            }
            try (var d = new SideChannel("d", Optional.of(clientKeys))) {
                var router = context.createSocket(SocketType.ROUTER);
                router.setCurveServer(true);
                router.setCurvePublicKey(ZMQ.Curve.z85Decode(server.publicKey));
                router.setCurveSecretKey(ZMQ.Curve.z85Decode(server.secretKey));
                router.setReceiveTimeOut((int) SOON.toMillis());
                int port = router.bindToRandomPort("tcp://127.0.0.1");
                var heard = new Recorder();
                d.exchange("tcp://127.0.0.1:" + port, message, SOON, SOON, heard);
                var identity = router.recv();
                assertThat(Arrays.equals(router.recv(), message)).isTrue();
                router.send(identity, ZMQ.SNDMORE);
                router.send(message);
                assertThat(heard.next()).isEqualTo(new String(message, UTF_8));
            }
        }
    }

    @Test
    void answersAPing() throws Exception {
        try (var p = new SideChannel("p")) {
            var ping = "040a" + "0450494e47" + "0064" + "616263";
            try (var peer = connect(echo(p), GREETING + READY + ping)) {
                var in = peer.getInputStream();
                in.readNBytes(64);
                assertThat(in.read()).isEqualTo(ZmtpStream.COMMAND);
                in.readNBytes(in.read()); // READY
                assertThat(HexFormat.of().formatHex(in.readNBytes(10)))
                        .isEqualTo("0408" + "04504f4e47" + "616263");
            }
        }
    }
}
