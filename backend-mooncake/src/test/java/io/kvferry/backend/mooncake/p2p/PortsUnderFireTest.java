// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.decodeElsewhere;
import static io.kvferry.backend.mooncake.p2p.testkit.TestEngine.prefillAt;

import static org.assertj.core.api.Assertions.assertThat;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.kvferry.backend.mooncake.p2p.testkit.Held;
import io.kvferry.backend.mooncake.p2p.testkit.ListeningPorts;
import io.kvferry.backend.mooncake.p2p.testkit.Stranger;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.backend.mooncake.p2p.wire.Generation;
import io.kvferry.backend.mooncake.p2p.wire.RequestBlocks;
import io.kvferry.backend.mooncake.p2p.wire.WireRegions;
import io.kvferry.backend.mooncake.p2p.wire.XferEncoder;
import io.kvferry.backend.mooncake.p2p.wire.XferMetadata;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.MetadataServer;
import io.kvferry.backend.mooncake.te.Notification;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.toolkit.secret.FleetSecret;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.zeromq.ZMQ;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.ToLongFunction;

/// Invalid bytes on every listening port of a prefiller and of a decoder, while they hand prompts
/// over.
class PortsUnderFireTest {
    private static final String GREETING =
            "ff00000000000000017f0300" + "4e554c4c" + "00".repeat(48);
    private static final String CURVE = "ff00000000000000017f0300" + "4355525645" + "00".repeat(47);
    private static final String HELLO =
            "04c8" + "0548454c4c4f" + "0100" + "00".repeat(72) + "11".repeat(32 + 8 + 80);
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

    private static final Map<String, Object> OPTIONS =
            Map.of("side_channel", "auto", "cross_memory", false); // through the data port

    /// How hard the ports are hit.
    ///
    /// @param frames mutated ones to each port
    /// @param attackers of each port, who share the frames out: one of eight frames waits for an
    ///   answer that may not come
    /// @param halfOpen connections to each port that never say anything
    /// @param slow connections to each port that say a byte now and then
    /// @param threads more than before that may be left: those of data connections rest for a
    ///   minute
    /// @param pace of the requests that must succeed
    /// @param ports that are hit at a time: both ends of all connections are in this process, which
    ///   may not have more than some ten thousand files open
    private record Fire(
            int frames,
            int attackers,
            int halfOpen,
            int slow,
            int threads,
            Duration pace,
            int ports) {}

    /// A port, and what a peer that is in order sends to it.
    private record Target(String name, int port, List<byte[]> frames, Count count) {
        Target(String name, int port, List<byte[]> frames) {
            this(name, port, frames, new Count(new AtomicInteger(), new AtomicInteger()));
        }
    }

    /// What has reached a port.
    ///
    /// @param opened connections that say nothing or little, also in place of those that were cut
    ///   off
    private record Count(AtomicInteger sent, AtomicInteger opened) {}

    /// Longer than any request may wait.
    private static final Duration LONGEST_WAIT = Duration.ofSeconds(20);

    /// Requests before the fire.
    private static final int WARM_UP = 3;

    @TempDir private Path folder;

    @Test
    @Timeout(300)
    void handOversGoOnWhilePortsAreUnderFire() throws Exception {
        run(new Fire(400, 1, 30, 10, 200, Duration.ofMillis(200), 11), Map.of(), Optional.empty());
    }

    @Test
    @Timeout(300)
    void handOversOfAFleetWithASecretGoOnWhilePortsAreUnderFire() throws Exception {
        withSecret(new Fire(150, 1, 30, 10, 200, Duration.ofMillis(200), 11));
    }

    @Test
    @Timeout(300)
    void encryptedHandOversGoOnWhilePortsAreUnderFire() throws Exception {
        withCurve(new Fire(100, 1, 20, 10, 200, Duration.ofMillis(200), 11));
    }

    @Test
    @Tag("soak")
    @Timeout(3_000)
    void handOversGoOnWhilePortsAreUnderHeavyFire() throws Exception {
        run(heavy(), Map.of(), Optional.empty());
    }

    @Test
    @Tag("soak")
    @Timeout(3_000)
    void handOversOfAFleetWithASecretGoOnWhilePortsAreUnderHeavyFire() throws Exception {
        withSecret(heavy());
    }

    @Test
    @Tag("soak")
    @Timeout(3_000)
    void encryptedHandOversGoOnWhilePortsAreUnderHeavyFire() throws Exception {
        withCurve(heavy());
    }

    private static Fire heavy() {
        return new Fire(
                Integer.getInteger("kvferry.soak.frames", 200_000),
                16,
                2_000,
                500,
                40,
                Duration.ofSeconds(1),
                2);
    }

    private void withSecret(Fire fire) throws Exception {
        var file = Files.writeString(folder.resolve("secret"), "0123456789abcdef");
        run(fire, Map.of("secret_file", file.toString()), Optional.of(file));
    }

    private static void withCurve(Fire fire) throws Exception {
        var pair = ZMQ.Curve.generateKeyPair();
        var keys = Map.of("curve_public_key", pair.publicKey, "curve_secret_key", pair.secretKey);
        run(fire, keys, Optional.empty());
    }

    private static void run(Fire fire, Map<String, ?> more, Optional<Path> secret)
            throws Exception {
        long seed = System.nanoTime();
        var options = new HashMap<>(OPTIONS);
        options.putAll(more);
        var before = ListeningPorts.now();
        try (var p = new TestEngine(Shape.SMALL, KvRole.PRODUCER, "p", options);
                var d = new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", options);
                var metadata = MetadataServer.start("127.0.0.1", 0, secret.map(FleetSecret::read));
                var te = JavaTransferEngine.start(engine("te", metadata, secret));
                var peer = JavaTransferEngine.start(engine("peer", metadata, secret))) {
            var ports = ListeningPorts.now();
            ports.removeAll(before);
            var bench = new Bench(p, d, te, peer, te.allocate(1 << 20), peer.allocate(4096));
            for (int i = 0; i < WARM_UP; i++) {
                bench.request(i);
            }
            var targets = targets(ports, p, metadata, secret.isPresent());
            var held = Held.now();

            var requests = new Requests(bench, fire.pace());
            for (int i = 0; i < targets.size(); i += fire.ports()) {
                hit(
                        targets.subList(i, Math.min(i + fire.ports(), targets.size())),
                        fire,
                        seed,
                        requests);
            }
            System.out.printf(
                    "%d requests, the longest took %d ms; %s; seed %d%n",
                    requests.next,
                    requests.longest / 1_000_000,
                    targets.stream()
                            .map(target ->
                                    "%s %s frames, %s held open"
                                            .formatted(
                                                    target.name(),
                                                    target.count().sent(),
                                                    target.count().opened()))
                            .toList(),
                    seed);
            for (var target : targets) {
                // A port may refuse some; most have to reach it for the rest to mean anything.
                assertThat(target.count().sent().get())
                        .as("frames to %s", target.name())
                        .isGreaterThan(fire.frames() / 2);
                assertThat(target.count().opened().get())
                        .as("connections to %s", target.name())
                        .isGreaterThan((fire.halfOpen() + fire.slow()) / 2);
            }
            assertThat(Duration.ofNanos(requests.longest)).as("a request").isLessThan(LONGEST_WAIT);
            requests.one();
            awaitAtMost("descriptors", held.descriptors() + 40, Held::descriptors);
            awaitAtMost("threads", held.threads() + fire.threads(), Held::threads);
            awaitAtMost("MiB of heap", held.heap() + 64, Held::heap);
            awaitAtMost("MiB of native memory", held.resident() + 192, Held::resident);
        }
    }

    /// The requests that must succeed, one after the other.
    private static final class Requests {
        private final Bench bench;
        private final Duration pace;
        private int next = WARM_UP;
        private long longest;

        Requests(Bench bench, Duration pace) {
            this.bench = bench;
            this.pace = pace;
        }

        void one() {
            long began = System.nanoTime();
            bench.request(next++);
            long took = System.nanoTime() - began;
            longest = Math.max(longest, took);
            LockSupport.parkNanos(pace.toNanos() - took);
        }
    }

    private static void hit(List<Target> targets, Fire fire, long seed, Requests requests)
            throws InterruptedException {
        var over = new AtomicBoolean();
        var attackers = new ArrayList<Thread>();
        for (var target : targets) {
            for (int i = 0; i < fire.attackers(); i++) {
                var random = new Random(seed ^ target.name().hashCode() ^ i * 0x9E3779B9L);
                int frames = fire.frames() / fire.attackers();
                attackers.add(start("fire-" + target.name(), () -> attack(target, frames, random)));
            }
            attackers.add(start("slow-" + target.name(), () -> crawl(target, fire, over)));
        }
        int afterwards = 3; // while the slow ones are still there
        while (afterwards > 0) {
            if (attackers.stream()
                    .noneMatch(each -> each.getName().startsWith("fire") && each.isAlive())) {
                afterwards--;
            }
            requests.one();
        }
        over.set(true);
        for (var attacker : attackers) {
            attacker.join(Duration.ofMinutes(1));
        }
    }

    private static Thread start(String name, Runnable work) {
        return Thread.ofPlatform().daemon().name(name).start(work);
    }

    private static EngineConfig engine(
            String name, MetadataServer metadata, Optional<Path> secret) {
        var settings = new HashMap<>(Map.of("shared-memory", "false"));
        settings.put("metadata", metadata.connection());
        settings.put("name", name);
        secret.ifPresent(file -> settings.put("secret-file", file.toString()));
        return EngineConfig.from(settings);
    }

    private static void awaitAtMost(String what, long most, ToLongFunction<Held> measure)
            throws IOException {
        var limit = Deadline.in(Duration.ofSeconds(90));
        long now = measure.applyAsLong(Held.now());
        while (now > most && !limit.passed()) {
            LockSupport.parkNanos(Duration.ofMillis(100).toNanos());
            now = measure.applyAsLong(Held.now());
        }
        assertThat(now).as(what).isLessThanOrEqualTo(most);
    }

    /// Who uses the ports as they are meant to be used.
    private record Bench(
            TestEngine p,
            TestEngine d,
            JavaTransferEngine te,
            JavaTransferEngine peer,
            RegisteredMemory there,
            RegisteredMemory here) {
        void request(int number) {
            handOver(p, d, number);
            write(peer, here, te, there);
        }
    }

    private static void handOver(TestEngine p, TestEngine d, int number) {
        var name = "fire-" + number;
        var hold = p.prefill(p.request("p-" + number, 64, 5, decodeElsewhere(name)), number);
        var target = d.request("d-" + number, 64, 20, prefillAt(p.bootstrap, "p", name));
        assertThat(d.await(d.beginDecode(target, 0))).isInstanceOf(Completion.Completed.class);
        d.assertHolds(target, 0, number);
        assertThat(p.await(hold)).isInstanceOf(Completion.Completed.class);
    }

    /// Through data and handshake port of an engine that is found through the metadata server.
    private static void write(
            JavaTransferEngine from,
            RegisteredMemory here,
            JavaTransferEngine to,
            RegisteredMemory there) {
        byte value = (byte) (there.memory().get(ValueLayout.JAVA_BYTE, 0) + 1);
        here.memory().fill(value);
        var outcome =
                from.transfer(
                        EngineRequest.write(
                                to.info().segmentName(),
                                Ranges.of(here.address(), there.address(), 4096),
                                Deadline.in(TestEngine.SOON)));
        assertThat(outcome).isInstanceOf(EngineOutcome.Completed.class);
        assertThat(there.memory().get(ValueLayout.JAVA_BYTE, 4095)).isEqualTo(value);
        from.send(
                to.info().segmentName(), new Notification("n", "m"), Deadline.in(TestEngine.SOON));
        assertThat(to.takeNotifications(1 << 20)).contains(new Notification("n", "m"));
    }

    /// Every port that listens; those of the transfer engines get frames of both of theirs.
    private static List<Target> targets(
            Set<Integer> ports, TestEngine p, MetadataServer metadata, boolean secret)
            throws Exception {
        int bootstrap = URI.create(p.bootstrap).getPort();
        int documents = URI.create(metadata.connection()).getPort();
        // With a secret the bootstrap service does not tell it.
        int side = secret ? 0 : URI.create(Stranger.sideChannel(p)).getPort();
        var targets = new ArrayList<Target>();
        for (int port : ports) {
            if (port == bootstrap) {
                targets.add(new Target("bootstrap", port, httpFrames()));
            } else if (port == documents) {
                targets.add(new Target("metadata", port, httpFrames()));
            } else if (port == side) {
                targets.add(new Target("side", port, sideFrames()));
            } else {
                var frames = new ArrayList<byte[]>(secret ? sideFrames() : List.of());
                frames.addAll(handshakeFrames());
                frames.addAll(dataFrames());
                targets.add(new Target("engine-" + port, port, frames));
            }
        }
        assertThat(targets)
                .as("side channel, two services, data and handshake of four engines")
                .hasSize(11);
        return targets;
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
        frames.add(hex.parseHex(CURVE + HELLO));
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
    private static void attack(Target target, int frames, Random random) {
        for (int i = 0; i < frames; i++) {
            var frame = target.frames().get(random.nextInt(target.frames().size())).clone();
            mutate(frame, random, target.name().startsWith("engine"));
            int length = random.nextInt(4) == 0 ? random.nextInt(frame.length + 1) : frame.length;
            try (var socket = connect(target.port())) {
                socket.setSoLinger(true, 0); // no ports in TIME_WAIT
                socket.getOutputStream().write(frame, 0, length);
                if (random.nextInt(8) == 0) {
                    socket.setSoTimeout(50);
                    awaitWord(socket);
                }
                target.count().sent().incrementAndGet();
            } catch (IOException e) {
                // A refusal is fine. Whether well-behaved peers are served is checked by the
                // hand-overs.
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

    /// Connections that say nothing, and some that say a byte now and then, until the end: others
    /// take the place of those that the port cuts off.
    private static void crawl(Target target, Fire fire, AtomicBoolean over) {
        var open = new ArrayDeque<SocketChannel>();
        var frame = target.frames().getLast();
        try {
            for (int at = 0; !over.get(); at++) {
                for (int i = open.size(); i > 0; i--) {
                    var channel = open.removeFirst();
                    boolean speaks = i <= fire.slow();
                    if (goesOn(channel, speaks, frame[at % frame.length])) {
                        open.addLast(channel);
                    } else {
                        closeQuietly(channel);
                    }
                }
                while (open.size() < fire.halfOpen() + fire.slow() && !over.get()) {
                    var channel = opened(target);
                    if (channel.isEmpty()) {
                        break; // refused, which is fine: again in a moment
                    }
                    open.addLast(channel.get());
                }
                LockSupport.parkNanos(Duration.ofMillis(100).toNanos());
            }
        } finally {
            open.forEach(PortsUnderFireTest::closeQuietly);
        }
    }

    private static Optional<SocketChannel> opened(Target target) {
        try {
            var channel = SocketChannel.open();
            channel.socket()
                    .connect(
                            new InetSocketAddress(InetAddress.getLoopbackAddress(), target.port()),
                            5_000);
            channel.configureBlocking(false);
            target.count().opened().incrementAndGet();
            return Optional.of(channel);
        } catch (IOException e) {
            return Optional.empty();
        }
    }

    /// Whether the port has not cut a connection off.
    private static boolean goesOn(SocketChannel channel, boolean speaks, byte value) {
        try {
            if (speaks) {
                channel.write(ByteBuffer.wrap(new byte[] {value}));
            }
            return channel.read(ByteBuffer.allocate(1024)) >= 0;
        } catch (IOException e) {
            return false;
        }
    }

    private static void closeQuietly(SocketChannel socket) {
        try {
            socket.close();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Socket connect(int port) throws IOException {
        var socket = new Socket();
        socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 5_000);
        return socket;
    }
}
