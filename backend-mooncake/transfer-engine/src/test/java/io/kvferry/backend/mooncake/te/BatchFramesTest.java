// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.backend.mooncake.te.internal.Incarnation;
import io.kvferry.backend.mooncake.te.peers.RawSocket;
import io.kvferry.backend.mooncake.te.peers.ScriptedPeer;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/// The bytes of kvferry's own messages on the data port: every head, reply and checksum fills whole
/// cache lines.
class BatchFramesTest {
    private static final String INCARNATION = "00112233445566778899aabbccddeeff";
    private static final Duration LIMIT = Duration.ofSeconds(60);
    private static final String ACCEPTED = "00000000 5946564b 0000000000000000" + zeros(48);

    /// CRC32C of sixteen bytes of 0x41.
    private static final String SUM = "33c369bb";

    private static String zeros(int bytes) {
        return "00".repeat(bytes);
    }

    private static String hex(String spaced) {
        return spaced.replace(" ", "");
    }

    private static String little(long number) {
        return HexFormat.of().toHexDigits(Long.reverseBytes(number));
    }

    private static byte[] bytes(String spaced) {
        return HexFormat.of().parseHex(hex(spaced));
    }

    private static JavaTransferEngine engine(boolean checksum) {
        return JavaTransferEngine.start(
                EngineConfig.from(
                        Map.of("checksum", String.valueOf(checksum), "shared-memory", "false")));
    }

    private static Ranges twoRanges(RegisteredMemory near) {
        return Ranges.of(near.address(), 0x7000_0000L, 8).add(near.address() + 64, 0x7000_1000L, 8);
    }

    private static EngineRequest request(Operation operation, ScriptedPeer peer, Ranges ranges) {
        return new EngineRequest(
                operation, peer.name(), ranges, Deadline.in(LIMIT), "", 0, 0, Optional.empty());
    }

    @Test
    void asksForABatchAndTakesIt() throws Exception {
        var asked = new CompletableFuture<byte[]>();
        try (var peer =
                        ScriptedPeer.ofKvferry(
                                INCARNATION,
                                (in, out) -> {
                                    asked.complete(in.readNBytes(128));
                                    out.write(bytes(ACCEPTED + "41".repeat(16)));
                                    in.skipNBytes(1);
                                });
                var engine = engine(false)) {
            var near = engine.allocate(4096);
            assertThat(engine.transfer(request(Operation.READ, peer, twoRanges(near))))
                    .isInstanceOf(Completed.class);
            assertThat(HexFormat.of().formatHex(asked.get(60, TimeUnit.SECONDS)))
                    .isEqualTo(
                            hex(
                                    "1000000000000000 02000000 00000000 c0 00000000000000"
                                            + little(Incarnation.shortForm(INCARNATION))
                                            + zeros(16)
                                            + "0000007000000000 0800000000000000"
                                            + "0010007000000000 0800000000000000"
                                            + zeros(48)));
            assertThat(near.memory().get(ValueLayout.JAVA_BYTE, 71)).isEqualTo((byte) 0x41);
        }
    }

    @Test
    void writesABatchWithItsChecksum() throws Exception {
        var written = new CompletableFuture<byte[]>();
        try (var peer =
                        ScriptedPeer.ofKvferry(
                                INCARNATION,
                                (in, out) -> {
                                    written.complete(in.readNBytes(128 + 16 + 64));
                                    out.write(bytes(ACCEPTED));
                                    in.skipNBytes(1);
                                });
                var engine = engine(true)) {
            var near = engine.allocate(4096);
            near.memory().fill((byte) 0x41);
            assertThat(engine.transfer(request(Operation.WRITE, peer, twoRanges(near))))
                    .isInstanceOf(Completed.class);
            var sent = HexFormat.of().formatHex(written.get(60, TimeUnit.SECONDS));
            assertThat(sent)
                    .startsWith(hex("1000000000000000 02000000 01000000 c1"))
                    .endsWith(zeros(48) + "41".repeat(16) + SUM + zeros(60));
        }
    }

    /// Whoever names the token of an attempt to write has it refused.
    @Test
    void whatIsWrittenToOnePeerDoesNotTellTheTokensForAnother() throws Exception {
        try (var engine = engine(false)) {
            var near = engine.allocate(4096);
            long first = token(engine, near);
            long second = token(engine, near);
            assertThat(Math.abs(second - first)).isGreaterThan(1L << 32);
        }
    }

    /// Of a WRITE to a peer that nothing has been written to.
    private static long token(JavaTransferEngine engine, RegisteredMemory near) throws Exception {
        var written = new CompletableFuture<byte[]>();
        try (var peer =
                ScriptedPeer.ofKvferry(
                        INCARNATION,
                        (in, out) -> {
                            written.complete(in.readNBytes(128 + 16));
                            out.write(bytes(ACCEPTED));
                            in.skipNBytes(1);
                        })) {
            assertThat(engine.transfer(request(Operation.WRITE, peer, twoRanges(near))))
                    .isInstanceOf(Completed.class);
            return ByteBuffer.wrap(written.get(60, TimeUnit.SECONDS))
                    .order(ByteOrder.LITTLE_ENDIAN)
                    .getLong(40);
        }
    }

    /// Two messages at once; what is in the place of the padding is nobody's business.
    @Test
    void servesBatchesThatFollowEachOther() throws IOException {
        try (var engine = engine(false)) {
            var memory = engine.allocate(1 << 20);
            memory.memory().fill((byte) 0x41);
            var ask =
                    "1000000000000000 02000000 01000000 c0 00000000000000"
                            + little(Incarnation.shortForm(engine.info().incarnation()))
                            + zeros(16)
                            + little(memory.address())
                            + "0800000000000000"
                            + little(memory.address() + 4096)
                            + "0800000000000000"
                            + "ff".repeat(48);
            var answer = hex(ACCEPTED) + "41".repeat(16) + SUM + zeros(60);
            try (var peer = new RawSocket(DataPortTest.dataPort(engine))) {
                peer.sendHex(ask + ask);
                assertThat(peer.receiveHex(2 * (64 + 16 + 64))).isEqualTo(answer + answer);
            }
        }
    }

    @Test
    void answersAFence() throws IOException {
        try (var engine = engine(false);
                var peer = new RawSocket(DataPortTest.dataPort(engine))) {
            peer.sendHex(
                    zeros(16)
                            + "c2"
                            + zeros(7)
                            + little(Incarnation.shortForm(engine.info().incarnation()))
                            + zeros(8)
                            + little(77)
                            + zeros(16));
            assertThat(peer.receiveHex(64)).isEqualTo(hex(ACCEPTED));
        }
    }
}
