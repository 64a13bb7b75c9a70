// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.kvferry.backend.mooncake.p2p.testkit.Stranger;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.backend.mooncake.p2p.wire.RequestBlocks;
import io.kvferry.backend.mooncake.p2p.wire.WireRegions;
import io.kvferry.backend.mooncake.p2p.wire.XferEncoder;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.te.Doors;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.Notification;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.backend.mooncake.te.TransferOutcome;
import io.kvferry.backend.mooncake.te.TransferRequest;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/// Every listening port of a prefiller and of a decoder under bytes that nobody should send, while
/// they hand prompts over.
class PortsUnderFireTest {
    private static final String GREETING =
            "ff00000000000000017f0300" + "4e554c4c" + "00".repeat(48);
    private static final String READY =
            "0419" + "055245414459" + "0b" + "536f636b65742d54797065" + "00000003" + "524551";

    /// Of a decoder whose requests share the connection.
    private static final String SHARES =
            "0435055245414459"
                    + "0b536f636b65742d54797065"
                    + "00000006"
                    + "4445414c4552"
                    + "13582d4b7666657272792d45786368616e676573"
                    + "00000001"
                    + "31";

    private static final Map<String, Object> OPTIONS = Map.of("side_channel", "auto");

    /// How hard the ports are hit.
    ///
    /// @param frames mutated ones to each port
    /// @param attackers of each port, who share the frames out: one of eight frames waits for an
    ///   answer that may not come
    /// @param halfOpen connections to each port that never say anything
    /// @param slow connections to each port that say a byte now and then
    /// @param threads more than before that may be left: those of data connections rest for a
    ///   minute
    private record Fire(int frames, int attackers, int halfOpen, int slow, int threads) {}

    /// A port, and what a peer that is in order sends to it.
    private record Target(String name, int port, List<byte[]> frames) {}

    @Test
    @Timeout(300)
    void handOversGoOnWhilePortsAreUnderFire() throws Exception {
        run(new Fire(600, 1, 60, 20, 200));
    }

    @Test
    @Tag("soak")
    @Timeout(3_000)
    void handOversGoOnWhilePortsAreUnderHeavyFire() throws Exception {
        run(new Fire(200_000, 16, 2_000, 500, 40));
    }

    private static void run(Fire fire) throws Exception {
        long seed = System.nanoTime();
        var bySocket = EngineConfig.from(Map.of("shared-memory", "false"));
        try (var p = new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", OPTIONS);
                var d = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", OPTIONS);
                var te = JavaTransferEngine.start(bySocket);
                var peer = JavaTransferEngine.start(bySocket)) {
            var here = peer.allocate(4096);
            var there = te.allocate(1 << 20);
            int handOvers = 0;
            for (; handOvers < 3; handOvers++) {
                handOver(p, d, handOvers);
                write(peer, here, te, there);
            }
            var targets = targets(p, te);
            System.gc();
            long heap = heap();
            int descriptors = descriptors();
            int threads = Thread.activeCount();

            var over = new AtomicBoolean();
            var attackers = new ArrayList<Thread>();
            var sent = new AtomicInteger();
            var opened = new AtomicInteger();
            for (var target : targets) {
                for (int i = 0; i < fire.attackers(); i++) {
                    var random = new Random(seed ^ target.name().hashCode() ^ i * 0x9E3779B9L);
                    attackers.add(
                            Thread.ofPlatform()
                                    .daemon()
                                    .name("fire-" + target.name())
                                    .start(() ->
                                            attack(
                                                    target,
                                                    fire.frames() / fire.attackers(),
                                                    random,
                                                    sent)));
                }
                attackers.add(
                        Thread.ofPlatform()
                                .daemon()
                                .name("slow-" + target.name())
                                .start(() -> crawl(target, fire, over, opened)));
            }
            while (attackers.stream()
                    .anyMatch(each -> each.getName().startsWith("fire") && each.isAlive())) {
                handOver(p, d, handOvers++);
                write(peer, here, te, there);
                LockSupport.parkNanos(Duration.ofMillis(200).toNanos());
            }
            for (int i = 0; i < 3; i++) { // while the slow ones are still there
                handOver(p, d, handOvers++);
                write(peer, here, te, there);
            }
            over.set(true);
            for (var attacker : attackers) {
                attacker.join(Duration.ofMinutes(1));
            }
            // A port may refuse some; most have to reach it for the rest to mean anything.
            assertThat(sent.get()).isGreaterThan(targets.size() * fire.frames() / 2);
            assertThat(opened.get())
                    .isGreaterThan(targets.size() * (fire.halfOpen() + fire.slow()) / 2);
            handOver(p, d, handOvers++);
            write(peer, here, te, there);
            awaitAtMost("descriptors", descriptors + 40, PortsUnderFireTest::descriptors);
            awaitAtMost("threads", threads + fire.threads(), Thread::activeCount);
            awaitAtMost(
                    "MiB of heap",
                    (heap >> 20) + 64,
                    () -> {
                        System.gc();
                        return heap() >> 20;
                    });
            System.out.println(handOvers + " hand-overs under " + sent + " frames, seed " + seed);
        }
    }

    private interface Measure {
        long now();
    }

    private static void awaitAtMost(String what, long most, Measure measure) {
        var limit = Deadline.in(Duration.ofSeconds(90));
        long now = measure.now();
        while (now > most && !limit.passed()) {
            LockSupport.parkNanos(Duration.ofMillis(100).toNanos());
            now = measure.now();
        }
        assertThat(now).as(what).isLessThanOrEqualTo(most);
    }

    private static void handOver(TestEngine p, TestEngine d, int number) {
        var name = "fire-" + number;
        var hold = p.prefill(p.request("p-" + number, 64, 5, decodeElsewhere(name)), number);
        var target = d.request("d-" + number, 64, 20, prefillAt(p.bootstrap, "p", name));
        assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
        d.assertHolds(target, 0, number);
        assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
    }

    /// Through the attacked data port, and on the first time through the handshake port.
    private static void write(
            JavaTransferEngine from,
            RegisteredMemory here,
            JavaTransferEngine to,
            RegisteredMemory there) {
        byte value = (byte) (there.memory().get(ValueLayout.JAVA_BYTE, 0) + 1);
        here.memory().fill(value);
        var outcome =
                from.transfer(
                        TransferRequest.write(
                                to.info().segmentName(),
                                Ranges.of(here.address(), there.address(), 4096),
                                Deadline.in(TestEngine.SOON)));
        assertThat(outcome).isInstanceOf(TransferOutcome.Completed.class);
        assertThat(there.memory().get(ValueLayout.JAVA_BYTE, 4095)).isEqualTo(value);
        from.send(
                to.info().segmentName(), new Notification("n", "m"), Deadline.in(TestEngine.SOON));
        assertThat(to.takeNotifications(1 << 20)).contains(new Notification("n", "m"));
    }

    private static List<Target> targets(TestEngine p, JavaTransferEngine te) throws Exception {
        var side = URI.create(Stranger.sideChannel(p));
        var data = te.info();
        return List.of(
                new Target("handshake", data.rpcPort(), handshakeFrames()),
                new Target("data", Doors.dataPort(te), dataFrames()),
                new Target("side", side.getPort(), sideFrames()),
                new Target("bootstrap", URI.create(p.bootstrap).getPort(), httpFrames()));
    }

    private static List<byte[]> handshakeFrames() {
        var frames = new ArrayList<byte[]>();
        for (var json :
                List.of(
                        "{}",
                        "{\"name\":\"n\",\"notify_msg\":\"\"}",
                        "{\"local_nic_path\":\"a\"}")) {
            for (int type = 0; type < 4; type++) {
                frames.add(
                        ByteBuffer.allocate(9 + json.length())
                                .order(ByteOrder.LITTLE_ENDIAN)
                                .putLong(1L + json.length())
                                .put((byte) type)
                                .put(json.getBytes(US_ASCII))
                                .array());
            }
        }
        return frames;
    }

    private static List<byte[]> dataFrames() {
        var frames = new ArrayList<byte[]>();
        for (int opcode : new int[] {0, 1, 0x80, 0x81, 0xC0, 0xC1, 0xC2}) {
            frames.add(
                    ByteBuffer.allocate(24 + 24 + 32 + 64)
                            .order(ByteOrder.LITTLE_ENDIAN)
                            .putLong(64)
                            .putLong(2) // the address, or how many ranges follow
                            .putLong(opcode)
                            .array());
        }
        return frames;
    }

    private static List<byte[]> sideFrames() throws IOException {
        var regions =
                new WireRegions(
                        new long[] {1 << 20},
                        new long[] {64},
                        new long[] {64},
                        List.of("model.layers.0"),
                        new int[1],
                        new int[1],
                        List.of(),
                        new long[0]);
        var message =
                XferEncoder.request(
                        new XferMetadata(
                                Generation.G7,
                                "127.0.0.1",
                                9,
                                1,
                                0,
                                Map.of("r", new RequestBlocks("t", List.of(new int[] {1, 2}))),
                                regions,
                                1,
                                0,
                                Optional.empty()));
        var hex = HexFormat.of();
        var frames = new ArrayList<byte[]>();
        frames.add(hex.parseHex(GREETING + READY));
        frames.add(hex.parseHex(GREETING + READY + "0400" + "0000"));
        var whole = new ByteArrayOutputStream();
        whole.write(hex.parseHex(GREETING + READY + "02"));
        whole.write(ByteBuffer.allocate(8).putLong(message.length).array());
        whole.write(message);
        frames.add(whole.toByteArray());
        frames.add(sharedFrames(message));
        frames.add(whole.toByteArray());
        return frames;
    }

    /// Two requests, and one of them given up.
    private static byte[] sharedFrames(byte[] message) throws IOException {
        var hex = HexFormat.of();
        var whole = new ByteArrayOutputStream();
        whole.write(hex.parseHex(GREETING + SHARES));
        for (int number = 1; number <= 2; number++) {
            whole.write(2);
            whole.write(
                    ByteBuffer.allocate(8 + 9)
                            .putLong(9 + message.length)
                            .putLong(number)
                            .put((byte) 1)
                            .array());
            whole.write(message);
        }
        whole.write(hex.parseHex("0009" + "0000000000000001" + "05"));
        return whole.toByteArray();
    }

    private static List<byte[]> httpFrames() {
        var body =
                "{\"engine_id\":\"x\",\"dp_rank\":77,\"tp_rank\":0,\"pp_rank\":0,\"addr\":\"tcp://127.0.0.1:9\"}";
        return List.of(
                "GET /query HTTP/1.1\r\nHost: x\r\n\r\n".getBytes(US_ASCII),
                ("POST /register HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
                                + body.length()
                                + "\r\n\r\n"
                                + body)
                        .getBytes(US_ASCII),
                ("POST /register HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                                + "5\r\nabcde\r\n")
                        .getBytes(US_ASCII));
    }

    /// Frames with some bytes changed, cut off, or with sizes of 2^24 to 2^63 in the place of
    /// others.
    private static void attack(Target target, int frames, Random random, AtomicInteger sent) {
        for (int i = 0; i < frames; i++) {
            var frame = target.frames().get(random.nextInt(target.frames().size())).clone();
            mutate(
                    frame,
                    random,
                    target.name().equals("handshake") || target.name().equals("data"));
            int length = random.nextInt(4) == 0 ? random.nextInt(frame.length + 1) : frame.length;
            try (var socket = connect(target.port())) {
                socket.setSoLinger(true, 0); // no ports in TIME_WAIT
                socket.getOutputStream().write(frame, 0, length);
                if (random.nextInt(8) == 0) {
                    socket.setSoTimeout(50);
                    awaitWord(socket);
                }
                sent.incrementAndGet();
            } catch (IOException e) {
                // Refused is fine. Refusing everybody is not, and that is for the hand-overs to
                // say.
                LockSupport.parkNanos(1);
            }
        }
    }

    private static void awaitWord(Socket socket) throws IOException {
        try {
            var _ = socket.getInputStream().read();
        } catch (SocketTimeoutException e) {
            LockSupport.parkNanos(1); // it may wait for the rest
        }
    }

    private static void mutate(byte[] frame, Random random, boolean little) {
        for (int n = random.nextInt(4); n > 0; n--) {
            frame[random.nextInt(frame.length)] = (byte) random.nextInt();
        }
        if (random.nextInt(3) == 0 && frame.length > 8) {
            var size = 1L << (24 + random.nextInt(40));
            ByteBuffer.wrap(frame)
                    .order(little ? ByteOrder.LITTLE_ENDIAN : ByteOrder.BIG_ENDIAN)
                    .putLong(random.nextInt(frame.length - 7), size);
        }
    }

    /// Connections that say nothing, and some that say a byte now and then.
    private static void crawl(Target target, Fire fire, AtomicBoolean over, AtomicInteger opened) {
        var silent = new ArrayList<Socket>();
        var slow = new ArrayList<Socket>();
        try {
            for (int i = 0; i < fire.halfOpen() && !over.get(); i++) {
                silent.add(connect(target.port()));
                opened.incrementAndGet();
            }
            for (int i = 0; i < fire.slow() && !over.get(); i++) {
                slow.add(connect(target.port()));
                opened.incrementAndGet();
            }
            var frame = target.frames().getLast();
            for (int at = 0; !over.get(); at++) {
                for (var socket : slow) {
                    drip(socket, frame[at % frame.length]);
                }
                LockSupport.parkNanos(Duration.ofMillis(100).toNanos());
            }
        } catch (IOException e) {
            LockSupport.parkNanos(1); // refused, which is fine
        } finally {
            silent.forEach(PortsUnderFireTest::closeQuietly);
            slow.forEach(PortsUnderFireTest::closeQuietly);
        }
    }

    private static void drip(Socket socket, byte value) {
        try {
            socket.getOutputStream().write(value);
        } catch (IOException e) {
            closeQuietly(socket); // cut off, as it should be
        }
    }

    private static void closeQuietly(Socket socket) {
        try {
            socket.close();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Socket connect(int port) throws IOException {
        var socket = new Socket();
        socket.connect(
                new java.net.InetSocketAddress(InetAddress.getLoopbackAddress(), port), 5_000);
        return socket;
    }

    private static long heap() {
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    private static int descriptors() {
        try (var files = Files.list(Path.of("/proc/self/fd"))) {
            return (int) files.count();
        } catch (IOException e) {
            return 0; // not Linux
        }
    }
}
