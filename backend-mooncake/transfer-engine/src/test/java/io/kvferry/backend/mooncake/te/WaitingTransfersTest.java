// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.peers.ScriptedPeer;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/// Transfers that wait behind others, to a peer that accepts and then says nothing.
@SuppressWarnings("NullAway.Init")
class WaitingTransfersTest {
    private static final long BYTES = 8 << 20;

    private final CountDownLatch connected = new CountDownLatch(2);
    private ScriptedPeer silent;

    @BeforeEach
    void start() throws IOException {
        silent = ScriptedPeer.withData(2, this::sayNothing);
    }

    @AfterEach
    void close() throws IOException {
        silent.close();
    }

    private void sayNothing(InputStream in, OutputStream out) throws IOException {
        connected.countDown();
        while (in.read() >= 0) {
            // Takes everything and answers nothing.
        }
    }

    private EngineTransfer submit(
            JavaTransferEngine engine, RegisteredMemory memory, Duration limit) {
        return engine.submit(
                EngineRequest.read(
                        silent.name(),
                        Ranges.of(memory.address(), 0x7000_0000L, BYTES),
                        Deadline.in(limit)));
    }

    private static ErrorCode ended(EngineTransfer transfer) throws Exception {
        return transfer.outcome().toCompletableFuture().get(60, TimeUnit.SECONDS)
                        instanceof Failed failed
                ? failed.failure().code()
                : ErrorCode.INTERNAL;
    }

    @Test
    void endsAQueuedTransferAtItsOwnDeadlineOrCancellation() throws Exception {
        try (var engine =
                JavaTransferEngine.start(
                        EngineConfig.from(
                                Map.of("stall-timeout-ms", "600000", "lanes-per-peer", "1")))) {
            RegisteredMemory memory = engine.allocate(BYTES);
            EngineTransfer ahead = submit(engine, memory, Duration.ofMinutes(5));
            EngineTransfer hurried = submit(engine, memory, Duration.ofMillis(50));
            EngineTransfer cancelled = submit(engine, memory, Duration.ofMinutes(5));
            cancelled.cancel();

            assertThat(ended(hurried)).isEqualTo(ErrorCode.TIMEOUT);
            assertThat(ended(cancelled)).isEqualTo(ErrorCode.CANCELLED);
            assertThat(ahead.outcome().toCompletableFuture()).isNotDone();
            ahead.cancel();
            assertThat(ended(ahead)).isEqualTo(ErrorCode.CANCELLED);
        }
    }

    @Test
    void endsACancelledTransferThatWaitsForAConnection() throws Exception {
        try (var engine =
                JavaTransferEngine.start(
                        EngineConfig.from(
                                Map.of(
                                        "stall-timeout-ms",
                                        "600000",
                                        "lanes-per-peer",
                                        "2",
                                        "lanes-per-transfer",
                                        "2")))) {
            RegisteredMemory memory = engine.allocate(BYTES);
            EngineTransfer ahead = submit(engine, memory, Duration.ofMinutes(5));
            assertThat(connected.await(60, TimeUnit.SECONDS)).isTrue();
            EngineTransfer waiting = submit(engine, memory, Duration.ofMinutes(5));
            waiting.cancel();

            assertThat(ended(waiting)).isEqualTo(ErrorCode.CANCELLED);
            assertThat(ahead.outcome().toCompletableFuture()).isNotDone();
            ahead.cancel();
            assertThat(ended(ahead)).isEqualTo(ErrorCode.CANCELLED);
            CompletableFuture<Void> quiet = ahead.quiesced().toCompletableFuture();
            quiet.get(60, TimeUnit.SECONDS);
        }
    }
}
