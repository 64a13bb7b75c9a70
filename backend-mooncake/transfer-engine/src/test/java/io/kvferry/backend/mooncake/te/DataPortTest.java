// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.backend.mooncake.te.internal.Incarnation;
import io.kvferry.backend.mooncake.te.internal.PeerAuth;
import io.kvferry.backend.mooncake.te.internal.WireJson;
import io.kvferry.backend.mooncake.te.internal.handshake.Handshake;
import io.kvferry.backend.mooncake.te.internal.handshake.HandshakeClient;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDocument;
import io.kvferry.backend.mooncake.te.internal.tcp.DataFrames;
import io.kvferry.backend.mooncake.te.peers.RawSocket;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.net.Cancellation;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.lang.foreign.ValueLayout;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

/// The data port with recorded bytes of native nodes, and with invalid bytes.
@SuppressWarnings("NullAway.Init")
class DataPortTest {
    private static final Duration LIMIT = Duration.ofSeconds(60);
    private static final String OK = "000000005654434d";
    private static final String REJECTED = "010000005654434d";

    private JavaTransferEngine engine;
    private RegisteredMemory memory;
    private int port;

    @BeforeEach
    void start() throws IOException {
        start(Map.of("max-connections", "40"));
    }

    private void start(Map<String, String> settings) throws IOException {
        engine = JavaTransferEngine.start(EngineConfig.from(settings));
        memory = engine.allocate(1 << 20);
        Bytes.fill(memory.memory(), 1);
        port = dataPort(engine);
    }

    static int dataPort(JavaTransferEngine engine) {
        return dataPort(engine, Optional.empty());
    }

    static int dataPort(JavaTransferEngine engine, Optional<PeerAuth> auth) {
        var client = new HandshakeClient(LIMIT, LIMIT, 1 << 20, auth);
        String text =
                client.ask(
                                HostPort.parse(engine.info().segmentName()),
                                new Handshake.Message(
                                        Handshake.METADATA, WireJson.bytes(WireJson.object())),
                                Deadline.in(LIMIT),
                                new Cancellation())
                        .text();
        return SegmentDocument.decode(text).dataPort();
    }

    @AfterEach
    void close() {
        engine.close();
    }

    private byte[] expected(int offset, int length) {
        return memory.memory().asSlice(offset, length).toArray(ValueLayout.JAVA_BYTE);
    }

    /// Header bytes with the address replaced by one of ours.
    private byte[] header(String hex, long offset) {
        byte[] bytes = HexFormat.of().parseHex(hex.replace(" ", ""));
        ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).putLong(8, memory.address() + offset);
        return bytes;
    }

    @Test
    void servesTheGoldenExchangesOfVersion2OnOneConnection() throws IOException {
        try (var peer = new RawSocket(port)) {
            byte[] payload =
                    "hello from a native node, 32 byt"
                            .getBytes(java.nio.charset.StandardCharsets.US_ASCII);
            peer.send(header("2000000000000000 40801f8cc67f0000 81 00000000000000", 64));
            peer.send(payload);
            assertThat(peer.receiveHex(8)).isEqualTo(OK);
            assertThat(expected(64, 32)).isEqualTo(payload);

            peer.send(header("3000000000000000 00801f8cc67f0000 80 e954c9b77f0000", 0));
            assertThat(peer.receiveHex(8)).isEqualTo(OK);
            assertThat(peer.receive(48)).isEqualTo(expected(0, 48));

            peer.sendHex("2000000000000000 0010000000000000 80 00000000000000");
            assertThat(peer.receiveHex(8)).isEqualTo(REJECTED);
            assertThat(peer.drain()).isEmpty();
        }
    }

    @Test
    void servesVersion1WithDirtyPaddingAndMixesVersions() throws IOException {
        try (var peer = new RawSocket(port)) {
            peer.send(header("0a00000000000000 0b308963927f0000 01 e954c9b77f0000", 100));
            peer.send("0123456789".getBytes(java.nio.charset.StandardCharsets.US_ASCII));
            peer.send(header("1400000000000000 0000000000000000 00 ffffffffffffff", 95));
            assertThat(peer.receive(20))
                    .isEqualTo(expected(95, 20))
                    .contains("0123456789".getBytes(java.nio.charset.StandardCharsets.US_ASCII));
            // Every low value but 1 is a READ.
            peer.send(header("0400000000000000 0000000000000000 85 00000000000000", 0));
            assertThat(peer.receiveHex(8)).isEqualTo(OK);
            assertThat(peer.receive(4)).isEqualTo(expected(0, 4));
        }
    }

    @Test
    void answersRequestsThatArriveTogether() throws IOException {
        try (var peer = new RawSocket(port)) {
            var together = ByteBuffer.allocate(24 * 20);
            for (int i = 0; i < 20; i++) {
                together.put(RawSocket.header(10, memory.address() + i * 10L, 0x80));
            }
            peer.send(together.array());
            for (int i = 0; i < 20; i++) {
                assertThat(peer.receiveHex(8)).isEqualTo(OK);
                assertThat(peer.receive(10)).isEqualTo(expected(i * 10, 10));
            }
        }
    }

    @Test
    void rejectsRangesThatAreNotInsideOneRegion() throws IOException {
        RegisteredMemory second = engine.allocate(4096);
        long end = memory.address() + memory.bytes();
        long[][] ranges = {
            {0, memory.address()},
            {memory.bytes() + 1, memory.address()},
            {2, end - 1},
            {1, end},
            {-1, memory.address()},
            {Long.MIN_VALUE, memory.address()},
            {16, -8},
            {second.address() - memory.address() + 1, memory.address()},
        };
        for (long[] range : ranges) {
            for (int opcode : new int[] {0x80, 0x81}) {
                try (var peer = new RawSocket(port)) {
                    peer.send(RawSocket.header(range[0], range[1], opcode));
                    assertThat(peer.receiveHex(8))
                            .as("%d at %x", range[0], range[1])
                            .isEqualTo(REJECTED);
                    assertThat(peer.drain()).isEmpty();
                }
                try (var old = new RawSocket(port)) {
                    assertThat(old.send(RawSocket.header(range[0], range[1], opcode & 1)).drain())
                            .isEmpty();
                }
            }
        }
    }

    @Test
    void dropsAPeerThatStopsInTheMiddleAndServesTheOthers() throws IOException {
        engine.close();
        start(Map.of("stall-timeout-ms", "700"));
        try (var headless = new RawSocket(port);
                var bodyless = new RawSocket(port);
                var deaf = new RawSocket(port)) {
            // Each in one piece: between two the server may have given it up.
            headless.send(new byte[17]);
            // Where nobody else looks: when its ten bytes land is for the machine to say.
            var header = RawSocket.header(1000, memory.address() + 4096, 0x81);
            bodyless.send(Arrays.copyOf(header, header.length + 10));
            var reads = ByteBuffer.allocate(64 * 24);
            while (reads.hasRemaining()) {
                reads.put(RawSocket.header(memory.bytes(), memory.address(), 0x00));
            }
            deaf.send(reads.array());
            awaitServed();
            assertThat(headless.drain()).isEmpty();
            assertThat(bodyless.drain()).isEmpty();
            // Not by reading: that would be progress, and the server would rightly go on.
            assertThat(deaf.isDroppedUnread(Deadline.in(LIMIT))).isTrue();
        }
    }

    /// Serves whoever comes next. A thread of the server that stands still for longer than the
    /// stall timeout, or has not yet seen that its peer is gone, may cost a try.
    private void awaitServed() throws IOException {
        var limit = Deadline.in(LIMIT);
        while (!isServed()) {
            assertThat(limit.passed()).as("nobody is served").isFalse();
        }
    }

    private boolean isServed() throws IOException {
        try (var peer = new RawSocket(port)) {
            peer.send(header("3000000000000000 00801f8cc67f0000 80 e954c9b77f0000", 0));
            if (!peer.receiveHex(8).equals(OK)) {
                return false;
            }
            byte[] bytes = peer.receive(48);
            assertThat(expected(0, 48)).startsWith(bytes);
            return bytes.length == 48;
        } catch (SocketException e) {
            return false; // reset, as one that makes room is
        }
    }

    @Test
    void survivesGarbage() throws IOException {
        long seed = System.nanoTime();
        var random = new Random(seed);
        for (int i = 0; i < 100; i++) {
            try (var peer = new RawSocket(port)) {
                byte[] garbage = new byte[random.nextInt(2000)];
                random.nextBytes(garbage);
                if (garbage.length > 16 && random.nextBoolean()) {
                    garbage[16] = (byte) (0xC0 + random.nextInt(2));
                }
                peer.send(garbage);
            }
        }
        awaitServed();
        servesTheGoldenExchangesOfVersion2OnOneConnection();
    }

    @Test
    void makesRoomForNewPeersByClosingTheOneThatRestedLongest() throws Exception {
        try (var first = new RawSocket(port)) {
            first.send(RawSocket.header(8, memory.address(), 0x80));
            assertThat(first.receiveHex(8)).isEqualTo(OK);
            var others = new ArrayList<RawSocket>();
            var end = new FutureTask<>(first::drain);
            Thread.ofPlatform().daemon().start(end);
            // Its thread may come to rest after those of others. Then these go first.
            for (int i = 0; i < 45 || !end.isDone(); i++) {
                var other = new RawSocket(port);
                others.add(other);
                other.send(RawSocket.header(8, memory.address(), 0x80));
                assertThat(other.receiveHex(8)).isEqualTo(OK);
                if (i >= 45) {
                    TimeUnit.MILLISECONDS.sleep(20);
                }
            }
            assertThat(end.get()).hasSize(8);
            for (RawSocket other : others) {
                other.close();
            }
        }
    }

    @Test
    void refusesBatchesThatLieAboutThemselves() throws IOException {
        long incarnation = Incarnation.shortForm(engine.info().incarnation());
        String stale = "03000200" + "5946564b";
        assertThat(batchReply(1, incarnation + 1, 8, 8)).startsWith(stale);
        assertThat(batchReply(0, incarnation, 8, 8)).startsWith("03000300");
        assertThat(batchReply(2000, incarnation, 8, 8)).startsWith("03000300");
        assertThat(batchReply(1, incarnation, 9, 8)).startsWith("03000300");
        assertThat(batchReply(1, incarnation, -8, -8)).startsWith("03000300");
        assertThat(batchReply(1, incarnation, 8, 8)).startsWith("00000000");
    }

    private String batchReply(int count, long incarnation, long size, long entry)
            throws IOException {
        try (var peer = new RawSocket(port)) {
            var message = ByteBuffer.allocate(24 + 24 + 16).order(ByteOrder.LITTLE_ENDIAN);
            message.put(RawSocket.header(size, count, DataFrames.BATCH_READ));
            message.putLong(incarnation).putLong(0).putLong(0);
            message.putLong(memory.address()).putLong(entry);
            peer.send(message.array());
            return peer.receiveHex(16);
        }
    }

    @Test
    void reportsABatchWhoseChecksumIsWrong() throws IOException {
        try (var peer = new RawSocket(port)) {
            var message = ByteBuffer.allocate(24 + 24 + 16 + 8 + 64).order(ByteOrder.LITTLE_ENDIAN);
            message.put(RawSocket.header(8, 1L | 1L << 32, DataFrames.BATCH_WRITE));
            message.putLong(Incarnation.shortForm(engine.info().incarnation()))
                    .putLong(0)
                    .putLong(0);
            message.putLong(memory.address()).putLong(8).putLong(42).putInt(12345).putInt(0);
            peer.send(message.array());
            assertThat(peer.receiveHex(8)).isEqualTo("01000600" + "5946564b");
        }
    }
}
