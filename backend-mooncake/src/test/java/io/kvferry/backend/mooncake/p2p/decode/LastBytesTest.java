// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import static io.kvferry.backend.mooncake.p2p.testkit.Outcomes.assertFailed;
import static io.kvferry.backend.mooncake.p2p.testkit.ScriptedPrefiller.answer;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.testkit.ScriptedPrefiller;
import io.kvferry.backend.mooncake.p2p.testkit.ScriptedPrefiller.Asked;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine.Shape;
import io.kvferry.backend.mooncake.te.peers.PlainClient;
import io.kvferry.backend.mooncake.te.peers.RawSocket;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/// Mooncake before 0.3.12 calls a WRITE done when its own socket has taken it, so that the answer
/// of its prefiller overtakes the bytes: no load is complete before its bytes are there.
@SuppressWarnings("NullAway.Init")
class LastBytesTest {
    private static final int LAYERS = 3;
    private static final int FIRST = 20;
    private static final int BLOCKS = 4;
    private static final int BLOCK = 1024;
    private static final byte SENT = 0x55;

    private ScriptedPrefiller prefiller;
    private TestEngine decoder;

    @BeforeEach
    void start() throws InterruptedException {
        prefiller = new ScriptedPrefiller();
        decoder = decoder(Map.of());
    }

    private static TestEngine decoder(Map<String, Object> options) {
        var all = new HashMap<>(options);
        all.put("peer_layout", "alike");
        return new TestEngine(Shape.SMALL, KvRole.CONSUMER, "d", all);
    }

    /// In place of the one that the test began with.
    private void decoderWith(Map<String, Object> options) {
        decoder.close();
        decoder = decoder(options);
    }

    @AfterEach
    void close() {
        decoder.close();
        prefiller.close();
    }

    private TransferId load(String request) {
        return decoder.beginDecode(
                decoder.request(
                        request, BLOCKS * TestEngine.BLOCK_TOKENS, FIRST, prefiller.params("x")),
                0);
    }

    private static long address(Asked asked, int layer) {
        return asked.message().regions().baseAddresses()[layer] + FIRST * BLOCK;
    }

    private static PlainClient client(Asked asked, int version) {
        return new PlainClient(asked.message().segmentName(), version);
    }

    private static byte[] bytes(int count) {
        var bytes = new byte[count];
        Arrays.fill(bytes, SENT);
        return bytes;
    }

    private static void write(Asked asked, int layer) {
        client(asked, 1).write(address(asked, layer), bytes(BLOCKS * BLOCK));
    }

    private void assertHasNotEnded(TransferId load) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(300);
        while (System.nanoTime() - end < 0) {
            assertThat(decoder.resultNow(load)).as("reported before its bytes came").isEmpty();
            Thread.sleep(5);
        }
    }

    private void assertFilled() {
        for (int layer = 0; layer < LAYERS; layer++) {
            var blocks =
                    decoder.regions
                            .getFirst()
                            .get(layer)
                            .segment()
                            .asSlice(FIRST * BLOCK, BLOCKS * BLOCK);
            assertThat(blocks.toArray(ValueLayout.JAVA_BYTE)).containsOnly(SENT);
        }
    }

    @Test
    void theAnswerOvertakesWholeWrites() throws Exception {
        var load = load("d-1");
        var asked = prefiller.request();
        write(asked, 0);
        answer(asked, List.of("d-1"), List.of());
        assertHasNotEnded(load);
        write(asked, 1);
        write(asked, 2);
        assertThat(decoder.await(load)).isInstanceOf(Completion.Completed.class);
        assertFilled();
    }

    @Test
    void theAnswerOvertakesTheConnectionItself() throws Exception {
        var load = load("d-1");
        var asked = prefiller.request();
        answer(asked, List.of("d-1"), List.of());
        assertHasNotEnded(load);
        for (int layer = 0; layer < LAYERS; layer++) {
            write(asked, layer);
        }
        assertThat(decoder.await(load)).isInstanceOf(Completion.Completed.class);
        assertFilled();
    }

    @Test
    void theAnswerOvertakesTheRestOfAWrite() throws Exception {
        var load = load("d-1");
        var asked = prefiller.request();
        write(asked, 0);
        write(asked, 2);
        try (var writer = client(asked, 1).beginWrite(address(asked, 1), BLOCKS * BLOCK)) {
            writer.send(bytes(BLOCK + 100));
            answer(asked, List.of("d-1"), List.of());
            assertHasNotEnded(load);
            writer.send(bytes(BLOCKS * BLOCK - BLOCK - 100));
            assertThat(decoder.await(load)).isInstanceOf(Completion.Completed.class);
        }
        assertFilled();
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aWriteThatEndsInTheMiddleFailsTheLoad(boolean beforeTheAnswer) throws Exception {
        var load = load("d-1");
        var asked = prefiller.request();
        try (var writer = client(asked, 1).beginWrite(address(asked, 1), BLOCKS * BLOCK)) {
            writer.send(bytes(BLOCK + 100));
            if (beforeTheAnswer) {
                assertThat(writer.endOutput().drain()).isEmpty();
            }
            answer(asked, List.of("d-1"), List.of());
        }
        assertFailed(decoder.await(load), ErrorCode.CORRUPT, "ended in the middle");
    }

    /// Its sender is not told.
    @Test
    void aWriteThatWasRefusedFailsTheLoad() throws Exception {
        var load = load("d-1");
        var asked = prefiller.request();
        assertThat(client(asked, 1).write(address(asked, 0) - 1, bytes(BLOCK))).isEmpty();
        answer(asked, List.of("d-1"), List.of());
        assertFailed(decoder.await(load), ErrorCode.CORRUPT, "was refused");
    }

    @Test
    void bytesThatNeverComeFailTheLoad() throws Exception {
        decoderWith(Map.of("transfer_timeout", "300ms"));
        var load = load("d-1");
        var asked = prefiller.request();
        write(asked, 0);
        answer(asked, List.of("d-1"), List.of());
        assertFailed(decoder.await(load), ErrorCode.TIMEOUT, "not all bytes arrived");
    }

    /// Since 0.3.12: the sender waits for receipts before it answers.
    @Test
    void acknowledgedWritesNeedNotFillEverything() throws Exception {
        var load = load("d-1");
        var asked = prefiller.request();
        client(asked, 2).write(address(asked, 0), bytes(BLOCK));
        answer(asked, List.of("d-1"), List.of());
        assertThat(decoder.await(load)).isInstanceOf(Completion.Completed.class);
    }

    @Test
    void theOperatorMayTrustAnswers() throws Exception {
        decoderWith(Map.of("trust_answers", true));
        var load = load("d-1");
        var asked = prefiller.request();
        write(asked, 0);
        answer(asked, List.of("d-1"), List.of());
        assertThat(decoder.await(load)).isInstanceOf(Completion.Completed.class);
    }

    /// What is on its way for the first load would land in the second, whatever the answer to the
    /// first says.
    @Test
    void blocksStayClosedToOthersWhileBytesMayBeOnTheirWay() throws Exception {
        var first = load("d-1");
        var asked = prefiller.request();
        write(asked, 0);
        decoder.revoke(first);
        assertThat(decoder.await(first)).isInstanceOf(Completion.Revoked.class);
        answer(asked, List.of("d-1"), List.of());
        assertFailed(
                decoder.await(load("d-2")), ErrorCode.BACKPRESSURE, "may still write the blocks");
    }

    /// The end of a load and of the window are no moment in which a write could get lost.
    @Test
    void writesThatRaceWithTheAnswerLeaveNoLoadCompleteWithOldBytes() throws Exception {
        for (int round = 0; round < 20; round++) {
            for (int layer = 0; layer < LAYERS; layer++) {
                decoder.regions.getFirst().get(layer).segment().fill((byte) 0);
            }
            var load = load("d-" + round);
            var asked = prefiller.request();
            var writers = new RawSocket[LAYERS];
            for (int layer = 0; layer < LAYERS; layer++) {
                writers[layer] = begun(asked, layer);
            }
            answer(asked, List.of("d-" + round), List.of());
            for (var writer : writers) {
                writer.send(bytes(BLOCKS * BLOCK - 1));
            }
            assertThat(decoder.await(load)).isInstanceOf(Completion.Completed.class);
            assertFilled();
            for (var writer : writers) {
                writer.close();
            }
        }
    }

    private static RawSocket begun(Asked asked, int layer) throws IOException {
        return client(asked, 1).beginWrite(address(asked, layer), BLOCKS * BLOCK).send(bytes(1));
    }
}
