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
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;

/// Peers that answer requests before they have them.
@SuppressWarnings("NullAway.Init")
class EarlyReceiptsTest {
    private static final byte[] OK = HexFormat.of().parseHex("000000005654434d");
    private static final byte[] REFUSED = HexFormat.of().parseHex("010000005654434d");
    private static final byte[] BATCH_OK =
            Arrays.copyOf(HexFormat.of().parseHex("000000005946564b"), 64);
    private static final String INCARNATION = "00112233445566778899aabbccddeeff";
    private static final int HEADER = 24;
    private static final long FAR = 0x7000_0000L;

    private JavaTransferEngine engine;
    private RegisteredMemory memory;

    @BeforeEach
    void start() {
        engine =
                JavaTransferEngine.start(
                        EngineConfig.from(
                                Map.of(
                                        "stall-timeout-ms", "20000",
                                        "checksum", "false",
                                        "lanes-per-peer", "1")));
        memory = engine.allocate(4 << 20);
    }

    @AfterEach
    void close() {
        engine.close();
    }

    private EngineOutcome transfer(
            ScriptedPeer peer, Operation operation, int ranges, int bytesOfEach) {
        var all = Ranges.of(memory.address(), FAR, bytesOfEach);
        for (int i = 1; i < ranges; i++) {
            all =
                    all.add(
                            memory.address() + (long) i * bytesOfEach,
                            FAR + i * 0x20000L,
                            bytesOfEach);
        }
        return engine.transfer(
                new EngineRequest(
                        operation,
                        peer.name(),
                        all,
                        Deadline.in(Duration.ofSeconds(60)),
                        "",
                        0,
                        0,
                        Optional.empty()));
    }

    private static void assertProtocolError(EngineOutcome outcome) {
        assertFailed(outcome, ErrorCode.PROTOCOL);
    }

    private static void assertFailed(EngineOutcome outcome, ErrorCode code) {
        assertThat(outcome)
                .isInstanceOfSatisfying(
                        Failed.class,
                        failed -> assertThat(failed.failure().code()).isEqualTo(code));
    }

    private static byte[] times(byte[] answer, int count) {
        var all = new byte[answer.length * count];
        for (int i = 0; i < count; i++) {
            System.arraycopy(answer, 0, all, i * answer.length, answer.length);
        }
        return all;
    }

    /// Answers all requests when it has the first header, and takes whatever comes.
    private static DataScript early(byte[] answers) {
        return (in, out) -> {
            in.skipNBytes(HEADER);
            out.write(answers);
            out.flush();
            in.transferTo(OutputStream.nullOutputStream());
        };
    }

    @Test
    void aWriteWhoseReceiptsComeBeforeItsBytesHaveLeftFails() throws IOException {
        try (var peer = ScriptedPeer.withData(2, early(times(OK, 80)))) {
            assertProtocolError(transfer(peer, Operation.WRITE, 80, 48 << 10));
        }
    }

    @Test
    void aReadThatIsAnsweredBeforeItIsAskedFails() throws IOException {
        byte[] answer = Arrays.copyOf(OK, OK.length + 1);
        try (var peer = ScriptedPeer.withData(2, early(times(answer, 80)))) {
            assertProtocolError(transfer(peer, Operation.READ, 80, 1));
        }
    }

    @ParameterizedTest
    @EnumSource
    void aBatchThatIsAnsweredBeforeItHasLeftFails(Operation operation) throws IOException {
        int messages = 5;
        int entries = 1024; // the most of one
        byte[] answer =
                Arrays.copyOf(
                        BATCH_OK, BATCH_OK.length + (operation == Operation.READ ? entries : 0));
        try (var peer = ScriptedPeer.ofKvferry(INCARNATION, early(times(answer, messages)))) {
            assertProtocolError(transfer(peer, operation, messages * entries, 1));
        }
    }

    /// A peer refuses a request by its header alone.
    @Test
    void aRefusalMayComeBeforeTheBytesHaveLeft() throws IOException {
        byte[] answers = times(OK, 65);
        System.arraycopy(REFUSED, 0, answers, 64 * OK.length, OK.length);
        try (var peer = ScriptedPeer.withData(2, early(answers))) {
            assertFailed(transfer(peer, Operation.WRITE, 65, 48 << 10), ErrorCode.PEER_REFUSED);
        }
    }

    @Test
    void whatABatchPeerAnswersTwiceIsNoAnswerToTheNextTransfer() throws IOException {
        var connections = new AtomicInteger();
        DataScript script =
                (in, out) -> {
                    connections.incrementAndGet();
                    while (skips(in, BATCH_OK.length)) { // a batch of one READ
                        byte[] answer = Arrays.copyOf(BATCH_OK, BATCH_OK.length + 1);
                        out.write(times(answer, 2));
                        out.flush();
                    }
                };
        try (var peer = ScriptedPeer.ofKvferry(INCARNATION, script)) {
            for (int i = 1; i <= 3; i++) {
                assertThat(transfer(peer, Operation.READ, 1, 1)).isInstanceOf(Completed.class);
                assertThat(connections).hasValue(i);
            }
        }
    }

    private static boolean skips(InputStream in, int bytes) throws IOException {
        return in.readNBytes(bytes).length == bytes;
    }
}
