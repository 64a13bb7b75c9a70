// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.peers.ScriptedPeer;
import io.kvferry.backend.mooncake.te.peers.ScriptedPeer.DataScript;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.io.OutputStream;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.random.RandomGenerator;

/// A READ of one range takes the reply's head and the bytes in one call: in whatever parts they
/// come, whatever the head says.
@SuppressWarnings("NullAway.Init")
class ReadAnswersTest {
    private static final byte[] OK = HexFormat.of().parseHex("000000005654434d");
    private static final byte[] REFUSED = HexFormat.of().parseHex("010000005654434d");
    private static final byte[] BATCH_OK =
            Arrays.copyOf(HexFormat.of().parseHex("000000005946564b"), 64);
    private static final String INCARNATION = "00112233445566778899aabbccddeeff";
    private static final int BYTES = 400_000;

    private JavaTransferEngine engine;
    private RegisteredMemory memory;

    @BeforeEach
    void start() {
        engine =
                JavaTransferEngine.start(
                        EngineConfig.from(
                                Map.of("stall-timeout-ms", "60000", "checksum", "false")));
        memory = engine.allocate(1 << 20);
    }

    @AfterEach
    void close() {
        engine.close();
    }

    private EngineOutcome read(ScriptedPeer peer) {
        memory.memory().fill((byte) 0x55);
        return engine.transfer(
                new EngineRequest(
                        Operation.READ,
                        peer.name(),
                        Ranges.of(memory.address(), 0x7000_0000L, BYTES),
                        Deadline.in(Duration.ofSeconds(60)),
                        "",
                        0,
                        0,
                        Optional.empty()));
    }

    private static byte[] content(int seed) {
        var bytes = new byte[BYTES];
        for (int i = 0; i < BYTES; i++) {
            bytes[i] = (byte) (i * 31 + i / 997 + seed);
        }
        return bytes;
    }

    private byte[] received() {
        return memory.memory().asSlice(0, BYTES).toArray(ValueLayout.JAVA_BYTE);
    }

    /// Writes head and bytes in parts that end `first` bytes behind the start and then anywhere.
    private static void answer(OutputStream out, byte[] head, byte[] bytes, int first)
            throws IOException {
        var all = Arrays.copyOf(head, head.length + bytes.length);
        System.arraycopy(bytes, 0, all, head.length, bytes.length);
        var random = RandomGenerator.of("L64X128MixRandom");
        int from = 0;
        int part = first;
        while (from < all.length) {
            int length = Math.min(part, all.length - from);
            out.write(all, from, length);
            out.flush();
            from += length;
            part = random.nextInt(1, 100_000);
            Thread.yield();
        }
    }

    private void readsInParts(ScriptedPeerMaker maker, int request, byte[] head) throws Exception {
        for (int first = 1; first <= head.length + 1; first++) {
            int cut = first;
            byte[] bytes = content(first);
            DataScript script =
                    (in, out) -> {
                        in.skipNBytes(request);
                        answer(out, head, bytes, cut);
                        in.skipNBytes(1); // until the engine ends the connection
                    };
            try (var peer = maker.make(script)) {
                assertThat(read(peer)).as("cut after %d", cut).isInstanceOf(Completed.class);
                assertThat(received()).as("cut after %d", cut).isEqualTo(bytes);
            }
        }
    }

    private interface ScriptedPeerMaker {
        ScriptedPeer make(DataScript script) throws IOException;
    }

    @Test
    void takesAnAnswerWithReceiptInWhateverPartsItComes() throws Exception {
        readsInParts(script -> ScriptedPeer.withData(2, script), 24, OK);
    }

    @Test
    void takesABatchAnswerInWhateverPartsItComes() throws Exception {
        readsInParts(script -> ScriptedPeer.ofKvferry(INCARNATION, script), 64, BATCH_OK);
    }

    @Test
    void aRefusedReadLeavesTheMemoryAlone() throws Exception {
        DataScript script =
                (in, out) -> {
                    in.skipNBytes(24);
                    out.write(REFUSED);
                    out.flush();
                    in.skipNBytes(1);
                };
        try (var peer = ScriptedPeer.withData(2, script)) {
            assertThat(read(peer))
                    .isInstanceOfSatisfying(
                            Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.PEER_REFUSED));
            assertThat(received()).containsOnly(0x55);
        }
    }

    @Test
    void doesNotTakeWhatNobodyAskedForForTheNextAnswer() throws Exception {
        var connections = new AtomicInteger();
        var sent = new Semaphore(0);
        byte[] bytes = content(7);
        DataScript script =
                (in, out) -> {
                    connections.incrementAndGet();
                    while (true) {
                        in.skipNBytes(24);
                        out.write(OK);
                        out.write(bytes);
                        out.write(OK); // once too often
                        out.flush();
                        sent.release();
                    }
                };
        try (var peer = ScriptedPeer.withData(2, script)) {
            for (int i = 1; i <= 3; i++) {
                assertThat(read(peer)).isInstanceOf(Completed.class);
                assertThat(received()).isEqualTo(bytes);
                assertThat(sent.tryAcquire(60, TimeUnit.SECONDS)).isTrue();
                Thread.sleep(50); // for the surplus, which the system has, to arrive
                assertThat(connections).hasValue(i);
            }
        }
    }
}
