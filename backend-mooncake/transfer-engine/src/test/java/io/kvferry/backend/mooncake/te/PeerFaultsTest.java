// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.internal.HostPort;
import io.kvferry.backend.mooncake.te.internal.handshake.Handshake;
import io.kvferry.backend.mooncake.te.internal.handshake.HandshakeClient;
import io.kvferry.backend.mooncake.te.internal.metadata.SegmentDocument;
import io.kvferry.backend.mooncake.te.peers.ScriptedPeer;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.net.Cancellation;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.time.LocalDateTime;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// The asking side against peers that misbehave at every point.
@SuppressWarnings("NullAway.Init")
class PeerFaultsTest {
    private static final byte[] OK = HexFormat.of().parseHex("000000005654434d");
    private static final int BYTES = 100_000;
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private JavaTransferEngine engine;
    private RegisteredMemory memory;

    @BeforeEach
    void start() {
        start(Map.of("lanes-per-peer", "2"));
    }

    private void start(Map<String, String> settings) {
        engine = JavaTransferEngine.start(EngineConfig.from(settings));
        memory = engine.allocate(1 << 20);
        Bytes.fill(memory.memory(), 1);
    }

    @AfterEach
    void close() {
        engine.close();
    }

    private EngineOutcome transfer(ScriptedPeer peer, Operation operation, Duration limit) {
        return engine.transfer(
                new EngineRequest(
                        operation,
                        peer.name(),
                        Ranges.of(memory.address(), 0x7000_0000L, BYTES)
                                .add(memory.address(), 0x7100_0000L, 10),
                        Deadline.in(limit),
                        "",
                        0,
                        0,
                        Optional.empty()));
    }

    private static ErrorCode codeOf(EngineOutcome outcome) {
        return outcome instanceof Failed failed ? failed.failure().code() : ErrorCode.INTERNAL;
    }

    private static long requestBytes(InputStream in) throws IOException {
        var reader = new DataInputStream(in);
        long size = Long.reverseBytes(reader.readLong());
        reader.readNBytes(16);
        return size;
    }

    @Test
    void reportsAPeerThatClosesAfterAnyNumberOfReplyBytes() throws IOException {
        for (int bytes = 0; bytes < 8 + 200; bytes += bytes < 10 ? 1 : 50) {
            int before = bytes;
            byte[] reply = java.util.Arrays.copyOf(OK, bytes);
            try (var peer =
                    ScriptedPeer.withData(
                            2,
                            (in, out) -> {
                                requestBytes(in);
                                out.write(reply);
                                out.flush();
                            })) {
                assertThat(codeOf(transfer(peer, Operation.READ, LIMIT)))
                        .as("closed after %d bytes", before)
                        .isEqualTo(ErrorCode.PEER_LOST);
            }
        }
    }

    @Test
    void givesUpOnAPeerThatNeitherReadsNorAnswers() throws IOException {
        engine.close();
        start(Map.of("stall-timeout-ms", "400", "lanes-per-peer", "2"));
        try (var peer = ScriptedPeer.withData(2, (in, _) -> awaitEnd(in))) {
            for (Operation operation : Operation.values()) {
                // Ends at the stall timeout, long before the deadline.
                long began = System.nanoTime();
                assertThat(codeOf(transfer(peer, operation, Duration.ofMinutes(10))))
                        .isEqualTo(ErrorCode.TIMEOUT);
                assertThat(Duration.ofNanos(System.nanoTime() - began))
                        .isBetween(Duration.ofMillis(300), Duration.ofMinutes(5));
                assertThat(codeOf(transfer(peer, operation, Duration.ofMillis(100))))
                        .isEqualTo(ErrorCode.TIMEOUT);
            }
        }
    }

    /// A peer of version 1 closes the connection once it has taken a WRITE, and answers nothing
    /// else.
    @Test
    void aResetIsNoReceiptForAWrite() throws IOException {
        try (var peer =
                ScriptedPeer.withData(
                        1,
                        (in, out) -> {
                            long bytes = requestBytes(in);
                            if (bytes == 1) { // a READ that asks whether it closes
                                out.write(0);
                            } else {
                                in.skipNBytes(Math.min(bytes, 1000));
                                if (bytes > 1000) {
                                    throw new ScriptedPeer.Reset();
                                }
                            }
                        })) {
            for (int i = 0; i < 20; i++) {
                var outcome = transfer(peer, Operation.WRITE, LIMIT);
                assertThat(codeOf(outcome)).as("%s", outcome).isEqualTo(ErrorCode.PEER_LOST);
            }
        }
    }

    @Test
    void aWriteIsNotDoneBeforeAPeerThatClosesHasClosed() throws IOException {
        try (var peer =
                ScriptedPeer.withData(
                        1,
                        (in, out) -> {
                            long bytes = requestBytes(in);
                            if (bytes == 1) {
                                out.write(0);
                            } else {
                                in.skipNBytes(bytes);
                                awaitEnd(in);
                            }
                        })) {
            var outcome = transfer(peer, Operation.WRITE, Duration.ofMillis(500));
            assertThat(codeOf(outcome)).as("%s", outcome).isEqualTo(ErrorCode.TIMEOUT);
        }
    }

    private static void awaitEnd(InputStream in) throws IOException {
        // Reads a header and then nothing more, for longer than any test takes.
        in.readNBytes(24);
        try {
            new java.util.concurrent.CountDownLatch(1).await(10, TimeUnit.MINUTES);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @Test
    void reportsAnAnswerThatIsNoStatus() throws IOException {
        try (var peer =
                ScriptedPeer.withData(
                        2,
                        (in, out) -> {
                            in.skipNBytes(24);
                            out.write(new byte[4096]);
                            out.flush();
                            in.skipNBytes(BYTES);
                        })) {
            assertThat(codeOf(transfer(peer, Operation.READ, LIMIT))).isEqualTo(ErrorCode.PROTOCOL);
        }
    }

    /// Who has the data port that a peer had before it started anew, under the name that it had.
    enum Successor {
        ENGINE(ErrorCode.PEER_REFUSED),
        NO_ENGINE(ErrorCode.PROTOCOL),
        SILENT(ErrorCode.TIMEOUT);

        private final ErrorCode code;

        Successor(ErrorCode code) {
            this.code = code;
        }
    }

    private static ScriptedPeer noEngine(Successor who) throws IOException {
        return ScriptedPeer.withData(
                2,
                (in, out) -> {
                    if (who == Successor.SILENT) {
                        awaitEnd(in);
                    }
                    in.skipNBytes(24);
                    out.write(new byte[4096]);
                    out.flush();
                    in.skipNBytes(BYTES);
                });
    }

    @ParameterizedTest
    @EnumSource
    void aPeerWhoseDataPortIsSomebodyElsesNowIsLookedUpAgain(Successor who) throws Exception {
        if (who == Successor.SILENT) {
            engine.close();
            start(Map.of("stall-timeout-ms", "400"));
        }
        var settings = EngineConfig.from(Map.of("extension", "false"));
        var port = new AtomicInteger();
        var names = new String[1];
        try (var peer = new ScriptedPeer(_ -> document(names[0], port.get()));
                var now = JavaTransferEngine.start(settings);
                var engine = JavaTransferEngine.start(settings);
                var noEngine = noEngine(who)) {
            names[0] = peer.name();
            var far = now.allocate(BYTES);
            Bytes.fill(far.memory(), 2);
            var ranges = Ranges.of(memory.address(), far.address(), BYTES);
            port.set(who == Successor.ENGINE ? dataPort(engine) : noEngine.dataPort());
            assertThat(codeOf(read(peer, ranges))).isEqualTo(who.code);
            port.set(dataPort(now));
            var limit = Deadline.in(LIMIT);
            var outcome = read(peer, ranges);
            while (!(outcome instanceof Completed)) { // until it has been looked up
                assertThat(codeOf(outcome)).isEqualTo(who.code);
                assertThat(limit.passed()).as("%s", outcome).isFalse();
                Thread.sleep(10);
                outcome = read(peer, ranges);
            }
            assertThat(Bytes.mismatch(memory.memory(), 0, BYTES, 2)).isEqualTo(-1);
        }
    }

    /// Its handshake port answers nonsense for a while.
    @Test
    void aPeerThatIsNotFoundAgainGoesOnBeingUsed() throws Exception {
        var asked = new AtomicInteger();
        var names = new String[1];
        var port = new AtomicInteger();
        try (var peer =
                        new ScriptedPeer(_ ->
                                asked.incrementAndGet() == 1
                                        ? document(names[0], port.get())
                                        : new byte[9]);
                var there =
                        JavaTransferEngine.start(EngineConfig.from(Map.of("extension", "false")))) {
            names[0] = peer.name();
            port.set(dataPort(there));
            var far = there.allocate(BYTES);
            var nowhere = Ranges.of(memory.address(), far.address() + BYTES, BYTES);
            var limit = Deadline.in(LIMIT);
            while (asked.get() < 3) { // the second look-up has ended when there is a third
                assertThat(codeOf(read(peer, nowhere))).isEqualTo(ErrorCode.PEER_REFUSED);
                assertThat(limit.passed()).isFalse();
                Thread.sleep(10);
            }
            var ranges = Ranges.of(memory.address(), far.address(), BYTES);
            assertThat(read(peer, ranges)).isInstanceOf(Completed.class);
        }
    }

    private EngineOutcome read(ScriptedPeer peer, Ranges ranges) {
        return engine.transfer(EngineRequest.read(peer.name(), ranges, Deadline.in(LIMIT)));
    }

    private static int dataPort(JavaTransferEngine engine) {
        var address = HostPort.parse(engine.info().segmentName());
        var client = new HandshakeClient(LIMIT, LIMIT, 1 << 20);
        var asked = new Handshake.Message(Handshake.METADATA, new byte[0]);
        var answer = client.ask(address, asked, Deadline.in(LIMIT), new Cancellation());
        return SegmentDocument.decode(answer.text()).dataPort();
    }

    private static byte[] document(String name, int dataPort) {
        byte[] document =
                new SegmentDocument(
                                name, "tcp", dataPort, 2, List.of(), SegmentDocument.Extension.NONE)
                        .encode(LocalDateTime.now(), 1 << 20);
        return ByteBuffer.allocate(9 + document.length)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putLong(1L + document.length)
                .put((byte) 1)
                .put(document)
                .array();
    }

    @Test
    void asksAgainOnceWhenAKeptConnectionTurnsOutToBeClosed() throws IOException {
        var connections = new AtomicInteger();
        // Serves one request pair per connection, then closes, as a proxy with an idle limit would.
        try (var peer =
                ScriptedPeer.withData(
                        2,
                        (in, out) -> {
                            connections.incrementAndGet();
                            for (int i = 0; i < 2; i++) {
                                long bytes = requestBytes(in);
                                out.write(OK);
                                out.write(new byte[(int) bytes]);
                                out.flush();
                            }
                        })) {
            for (int i = 0; i < 5; i++) {
                assertThat(transfer(peer, Operation.READ, LIMIT)).isInstanceOf(Completed.class);
            }
            assertThat(connections).hasValueBetween(5, 6);
        }
    }

    @Test
    void worksWithVersion1PeersThatCloseAfterEachRequest() throws IOException {
        var written = new AtomicInteger();
        try (var peer = ScriptedPeer.withData(1, (in, out) -> oneShot(in, out, written))) {
            assertThat(transfer(peer, Operation.WRITE, LIMIT))
                    .isEqualTo(new Completed(BYTES + 10, Guarantee.SENT, "tcp"));
            assertThat(written).hasValue(BYTES + 10);
            assertThat(transfer(peer, Operation.READ, LIMIT))
                    .isEqualTo(new Completed(BYTES + 10, Guarantee.APPLIED, "tcp"));
        }
    }

    private static void oneShot(InputStream in, OutputStream out, AtomicInteger written)
            throws IOException {
        var reader = new DataInputStream(in);
        int size = (int) Long.reverseBytes(reader.readLong());
        reader.readLong();
        int opcode = reader.read();
        reader.readNBytes(7);
        if (opcode == 1) {
            in.skipNBytes(size);
            written.addAndGet(size);
        } else {
            out.write(new byte[size]);
        }
    }

    @Test
    void aStalledPeerHoldsUpNobodyElse() throws Exception {
        // With patience, so that nobody waits only until the stalled peer is given up.
        var patient =
                JavaTransferEngine.start(
                        EngineConfig.from(
                                Map.of("lanes-per-peer", "2", "stall-timeout-ms", "600000")));
        try (var stalled = ScriptedPeer.withData(2, (in, _) -> awaitEnd(in));
                var other =
                        JavaTransferEngine.start(EngineConfig.from(Map.of("extension", "false")))) {
            RegisteredMemory own = patient.allocate(4096);
            RegisteredMemory far = other.allocate(4096);
            var stuck = new EngineTransfer[20];
            for (int i = 0; i < stuck.length; i++) {
                stuck[i] =
                        patient.submit(
                                EngineRequest.write(
                                        stalled.name(),
                                        Ranges.of(own.address(), 0x7000_0000L, 10),
                                        Deadline.in(Duration.ofMinutes(5))));
            }
            EngineOutcome outcome =
                    patient.submit(
                                    EngineRequest.write(
                                            other.info().segmentName(),
                                            Ranges.of(own.address(), far.address(), 4096),
                                            Deadline.in(LIMIT)))
                            .outcome()
                            .toCompletableFuture()
                            .get(60, TimeUnit.SECONDS);
            assertThat(outcome).isInstanceOf(Completed.class);
            for (EngineTransfer transfer : stuck) {
                assertThat(transfer.outcome().toCompletableFuture()).isNotDone();
                transfer.cancel();
            }
            for (EngineTransfer transfer : stuck) {
                assertThat(
                                codeOf(
                                        transfer.outcome()
                                                .toCompletableFuture()
                                                .get(60, TimeUnit.SECONDS)))
                        .isEqualTo(ErrorCode.CANCELLED);
            }
        } finally {
            patient.close();
        }
    }

    @Test
    void refusesMoreThanItsQueueHolds() throws Exception {
        var small =
                JavaTransferEngine.start(
                        EngineConfig.from(Map.of("queue-per-peer", "2", "lanes-per-peer", "1")));
        try (var stalled = ScriptedPeer.withData(2, (in, _) -> awaitEnd(in))) {
            RegisteredMemory own = small.allocate(4096);
            var transfers = new EngineTransfer[4];
            for (int i = 0; i < 4; i++) {
                transfers[i] =
                        small.submit(
                                EngineRequest.write(
                                        stalled.name(),
                                        Ranges.of(own.address(), 0x7000_0000L, 10),
                                        Deadline.in(Duration.ofMinutes(5))));
            }
            assertThat(
                            codeOf(
                                    transfers[3]
                                            .outcome()
                                            .toCompletableFuture()
                                            .get(60, TimeUnit.SECONDS)))
                    .isEqualTo(ErrorCode.BACKPRESSURE);
            small.close();
            for (int i = 0; i < 3; i++) {
                assertThat(
                                codeOf(
                                        transfers[i]
                                                .outcome()
                                                .toCompletableFuture()
                                                .get(60, TimeUnit.SECONDS)))
                        .isEqualTo(ErrorCode.CLOSED);
            }
        }
    }
}
