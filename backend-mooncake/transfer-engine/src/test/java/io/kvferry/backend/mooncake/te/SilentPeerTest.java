// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;
import static org.assertj.core.api.Assumptions.assumeThat;

import io.kvferry.backend.mooncake.te.EngineOutcome.Failed;
import io.kvferry.backend.mooncake.te.peers.ScriptedPeer;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/// Peers that take connections and say nothing, while all limits are minutes.
class SilentPeerTest {
    private static final Duration LONG = Duration.ofMinutes(10);

    private static final Executor THREADS = task -> Thread.ofPlatform().daemon().start(task);

    private final CountDownLatch connected = new CountDownLatch(2);

    /// What its caller does when it does not want a transfer any more.
    private enum End {
        CLOSE(ErrorCode.CLOSED),
        CANCEL(ErrorCode.CANCELLED),
        UNREGISTER(ErrorCode.CLOSED);

        private final ErrorCode outcome;

        End(ErrorCode outcome) {
            this.outcome = outcome;
        }
    }

    private static JavaTransferEngine start(Map<String, String> more) {
        var settings = new HashMap<>(more);
        settings.put("connect-timeout-ms", String.valueOf(LONG.toMillis()));
        settings.put("handshake-timeout-ms", String.valueOf(LONG.toMillis()));
        settings.put("stall-timeout-ms", String.valueOf(LONG.toMillis()));
        settings.put("drain-timeout-ms", "1");
        return JavaTransferEngine.start(EngineConfig.from(settings));
    }

    private static ServerSocket silent() throws Exception {
        return new ServerSocket(0, 10, InetAddress.getLoopbackAddress());
    }

    private static String name(ServerSocket peer) {
        return "127.0.0.1:" + peer.getLocalPort();
    }

    private static void end(
            End end, JavaTransferEngine engine, RegisteredMemory memory, EngineTransfer transfer)
            throws Exception {
        switch (end) {
            case CLOSE -> CompletableFuture.runAsync(engine::close).get(60, TimeUnit.SECONDS);
            case CANCEL -> transfer.cancel();
            case UNREGISTER -> CompletableFuture.runAsync(memory::close).get(60, TimeUnit.SECONDS);
        }
    }

    private static ErrorCode code(EngineTransfer transfer) throws Exception {
        return code(transfer.outcome().toCompletableFuture().get(60, TimeUnit.SECONDS));
    }

    private static ErrorCode code(EngineOutcome outcome) {
        return outcome instanceof Failed(var failure, _) ? failure.code() : ErrorCode.INTERNAL;
    }

    @ParameterizedTest
    @EnumSource
    void aTransferEndsThoughThePeerIsBeingLookedUp(End end) throws Exception {
        try (var peer = silent();
                var engine = start(Map.of())) {
            var memory = engine.allocate(4096);
            var ranges = Ranges.of(memory.address(), 4096, 4096);
            var reading = engine.submit(EngineRequest.read(name(peer), ranges, Deadline.in(LONG)));
            try (var question = peer.accept()) {
                assertThat(question.getInputStream().read()).isNotNegative();
                end(end, engine, memory, reading);
                assertThat(code(reading)).isEqualTo(end.outcome);
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void aTransferEndsThoughAnotherOneLooksThePeerUp(End end) throws Exception {
        try (var peer = silent();
                var engine = start(Map.of())) {
            var memory = engine.allocate(4096);
            var ranges = Ranges.of(memory.address(), 4096, 4096);
            var request = EngineRequest.read(name(peer), ranges, Deadline.in(LONG));
            var ahead = engine.submit(request);
            try (var question = peer.accept()) {
                assertThat(question.getInputStream().read()).isNotNegative();
                var behind = engine.submit(request);
                awaitThread("kvferry-te-io-" + engine.info().segmentName(), "begin");
                end(end, engine, memory, behind);
                assertThat(code(behind)).isEqualTo(end.outcome);
                if (end == End.CANCEL) {
                    assertThat(ahead.outcome().toCompletableFuture()).isNotDone();
                    ahead.cancel();
                }
                assertThat(code(ahead)).isIn(ErrorCode.CANCELLED, ErrorCode.CLOSED);
            }
        }
    }

    /// Until a thread of that name waits in a method of the table of peers.
    private static void awaitThread(String name, String method) {
        var limit = Deadline.in(Duration.ofSeconds(30));
        while (Thread.getAllStackTraces().entrySet().stream()
                .filter(thread -> thread.getKey().getName().startsWith(name))
                .flatMap(thread -> Arrays.stream(thread.getValue()))
                .noneMatch(frame ->
                        frame.getClassName().contains("PeerTable")
                                && frame.getMethodName().equals(method))) {
            assertThat(limit.passed()).as("it waits").isFalse();
            Thread.yield();
        }
    }

    @ParameterizedTest
    @EnumSource(
            value = End.class,
            names = {"CLOSE", "CANCEL"})
    void aTransferEndsThoughThePeerDoesNotTakeItsNotification(End end) throws Exception {
        try (var peer = silent();
                var engine = start(Map.of())) {
            var memory = engine.allocate(4096);
            var telling =
                    engine.submit(
                            new EngineRequest(
                                    EngineRequest.Operation.WRITE,
                                    name(peer),
                                    new Ranges(1),
                                    Deadline.in(LONG),
                                    "",
                                    0,
                                    0,
                                    Optional.of(new Notification("name", "text"))));
            try (var question = peer.accept()) {
                assertThat(question.getInputStream().read()).isNotNegative();
                end(end, engine, memory, telling);
                assertThat(code(telling)).isEqualTo(end.outcome);
            }
        }
    }

    @Test
    void aCloseEndsQuestionsOfCallers() throws Exception {
        try (var peer = silent();
                var engine = start(Map.of())) {
            var opened =
                    CompletableFuture.supplyAsync(
                            () -> catchThrowable(() -> engine.open(name(peer), Deadline.in(LONG))),
                            THREADS);
            try (var first = peer.accept()) {
                assertThat(first.getInputStream().read()).isNotNegative();
                var sent =
                        CompletableFuture.supplyAsync(
                                () ->
                                        catchThrowable(() ->
                                                engine.send(
                                                        name(peer),
                                                        new Notification("name", "text"),
                                                        Deadline.in(LONG))),
                                THREADS);
                try (var second = peer.accept()) {
                    assertThat(second.getInputStream().read()).isNotNegative();
                    CompletableFuture.runAsync(engine::close).get(60, TimeUnit.SECONDS);
                    for (var asked : List.of(opened, sent)) {
                        assertThat(asked.get(60, TimeUnit.SECONDS))
                                .isInstanceOfSatisfying(
                                        KvFerryException.class,
                                        e -> assertThat(e.code()).isEqualTo(ErrorCode.CLOSED));
                    }
                }
            }
        }
    }

    /// Its helpers wait for the peer, too.
    @Test
    void anInterruptEndsATransferOfSeveralThreads() throws Exception {
        long bytes = 8 << 20;
        try (var peer =
                        ScriptedPeer.withData(
                                2,
                                (in, _) -> {
                                    connected.countDown();
                                    while (in.read() >= 0) {
                                        // Takes everything and answers nothing.
                                    }
                                });
                var engine = start(Map.of("lanes-per-transfer", "2"))) {
            var memory = engine.allocate(bytes);
            var request =
                    EngineRequest.read(
                            peer.name(),
                            Ranges.of(memory.address(), 0x7000_0000L, bytes),
                            Deadline.in(LONG));
            var outcome = new CompletableFuture<EngineOutcome>();
            var reading =
                    Thread.ofPlatform()
                            .daemon()
                            .start(() -> outcome.complete(engine.transfer(request)));
            assertThat(connected.await(30, TimeUnit.SECONDS)).isTrue();
            reading.interrupt();
            assertThat(code(outcome.get(60, TimeUnit.SECONDS))).isEqualTo(ErrorCode.CANCELLED);
        }
    }

    /// Each processor has a connection that waits for the peer, so a large transfer opens one more
    /// and not one for each processor. What else is busy in this JVM only leaves it fewer.
    @Test
    void aTransferOpensOneConnectionWhileOthersKeepAllProcessorsBusy() throws Exception {
        int processors = Runtime.getRuntime().availableProcessors();
        int most = 64; // lanes-per-peer has no greater value
        assumeThat(processors).as("processors").isLessThan(most);
        var asked = new Semaphore(0);
        try (var peer =
                        ScriptedPeer.withData(
                                2,
                                (in, _) -> {
                                    if (in.read() >= 0) {
                                        asked.release();
                                    }
                                    while (in.read() >= 0) {
                                        // Takes everything and answers nothing.
                                    }
                                });
                var engine = start(Map.of("lanes-per-peer", String.valueOf(most)))) {
            long bytes = (2L * processors + 2) << 20;
            var memory = engine.allocate(bytes);
            for (int i = 0; i < processors; i++) {
                read(engine, peer, memory, 4096);
            }
            assertThat(asked.tryAcquire(processors, 30, TimeUnit.SECONDS)).isTrue();
            read(engine, peer, memory, bytes);
            assertThat(asked.tryAcquire(30, TimeUnit.SECONDS)).isTrue();
            assertThat(asked.tryAcquire(200, TimeUnit.MILLISECONDS)).as("one more").isFalse();
        }
    }

    private static void read(
            JavaTransferEngine engine, ScriptedPeer peer, RegisteredMemory memory, long bytes) {
        var request =
                EngineRequest.read(
                        peer.name(),
                        Ranges.of(memory.address(), 0x7000_0000L, bytes),
                        Deadline.in(LONG));
        THREADS.execute(() -> {
            var _ = engine.transfer(request);
        });
    }
}
