// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import static io.kvferry.backend.nccl.plane.PlaneRuns.BLOCKS;
import static io.kvferry.backend.nccl.plane.PlaneRuns.SOON;
import static io.kvferry.backend.nccl.plane.PlaneRuns.assertEqualBlocks;
import static io.kvferry.backend.nccl.plane.PlaneRuns.await;
import static io.kvferry.backend.nccl.plane.PlaneRuns.code;
import static io.kvferry.backend.nccl.plane.PlaneRuns.fill;
import static io.kvferry.backend.nccl.plane.PlaneRuns.placement;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// What connects to a plane: clients without a grant, peers that say wrong things, and threads that
/// cannot be had.
@ParameterizedClass
@EnumSource
class HostPlanePeersTest {
    private final Arena arena = Arena.ofShared();
    private final HostPlane.Ways ways;
    private final HostPlane sender;
    private final HostPlane receiver;

    HostPlanePeersTest(HostPlane.Ways ways) {
        this.ways = ways;
        sender = plane(ways);
        receiver = plane(ways);
    }

    private static HostPlane plane(HostPlane.Ways ways) {
        return HostPlane.open("test", "127.0.0.1", "127.0.0.1", ways);
    }

    @AfterEach
    void close() {
        sender.close();
        receiver.close();
        arena.close();
    }

    @Test
    void clientsWithoutAGrantAreCutOffAndWriteNothing() throws IOException {
        var to = placement(arena, 1, 64, 1, 2);
        var received = new CompletableFuture<Outcome>();
        var grant = Grant.draw();
        receiver.receive(grant, to, Deadline.in(SOON), received::complete);
        int port = Integer.parseInt(receiver.address().split(":")[1]);
        var random = new Random(5);
        for (int i = 0; i < 50; i++) {
            try (var socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
                socket.setSoTimeout((int) SOON.toMillis());
                var hello = ByteBuffer.allocate(56 + 24 + 64).order(ByteOrder.LITTLE_ENDIAN);
                hello.putInt(i % 2 == 0 ? HostWire.MAGIC : random.nextInt());
                hello.putInt(HostWire.VERSION);
                hello.putLong(random.nextLong()).putLong(random.nextLong());
                socket.getOutputStream().write(hello.array());
                int answer = socket.getInputStream().read();
                assertThat(answer).as("no go without a grant").isNotZero();
            } catch (IOException e) {
                assertThat(e).hasMessageContaining("reset");
            }
        }
        assertThat(received).isNotDone();
        assertThat(to.parts().getFirst().segment().mismatch(arena.allocate(64 * BLOCKS)))
                .isEqualTo(-1);
    }

    @Test
    @DisplayName("P21 damaged bytes, and pieces out of place, end the transfer")
    void damagedBytesAndPiecesOutOfPlaceEndTheTransfer() throws IOException {
        int port = Integer.parseInt(receiver.address().split(":")[1]);
        // part, first, count, length, flip a bit
        long[][] pieces = {
            {0, 0, 2, 128, 1}, {0, 1, 1, 64, 0}, {0, 0, 3, 192, 0}, {1, 0, 1, 64, 0},
            {-2, 0, 1, 64, 0}, {0, 0, 2, 127, 0}, {0, 0, -1, -64, 0}, {0, 0, 0, 0, 0},
            {-1, 0, 0, 128, 0}
        };
        for (var piece : pieces) {
            var to = placement(arena, 1, 64, 1, 2);
            var received = new CompletableFuture<Outcome>();
            var grant = Grant.draw();
            receiver.receive(grant, to, Deadline.in(SOON), received::complete);
            var body = new byte[128];
            var crc = new java.util.zip.CRC32C();
            crc.update(body);
            var frame = HostWire.buffer(24 + 128);
            frame.putInt((int) piece[0]).putInt((int) piece[1]).putInt((int) piece[2]);
            frame.putInt((int) crc.getValue()).putLong(piece[3]);
            frame.put(body);
            frame.put(24 + 12, (byte) piece[4]);
            try (var channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port))) {
                HostWire.writeFully(channel, PlayedEnd.sender(channel, grant, true));
                HostWire.writeFully(channel, frame.flip());
                assertThat(code(await(received)))
                        .isEqualTo(piece[4] == 1 ? ErrorCode.CORRUPT : ErrorCode.PROTOCOL);
            }
        }
    }

    /// Each of them has five seconds to say who it is.
    @Test
    void silentConnectionsKeepNoSenderOutAndCostNoPlatformThread() throws IOException {
        var made = new AtomicInteger();
        var silent = new ArrayList<Socket>();
        try (var counting =
                HostPlane.open(
                        "test-s",
                        "127.0.0.1",
                        "127.0.0.1",
                        ways,
                        work -> {
                            made.incrementAndGet();
                            return Thread.ofPlatform().daemon(true).unstarted(work);
                        })) {
            int port = Integer.parseInt(counting.address().split(":")[1]);
            for (int i = 0; i < PlanePort.MOST_HANDSHAKES + 40; i++) {
                silent.add(new Socket(InetAddress.getLoopbackAddress(), port));
            }
            var from = placement(arena, 1, 64, 1);
            var to = placement(arena, 1, 64, 2);
            fill(from, new Random(6));
            var grant = Grant.draw();
            var received = new CompletableFuture<Outcome>();
            counting.receive(grant, to, Deadline.in(SOON), received::complete);
            sender.send(counting.address(), grant, from, Deadline.in(SOON), _ -> {}).commit();
            assertThat(await(received)).isEqualTo(new Outcome.Done(64));
            assertEqualBlocks(from, to);
            assertThat(made).as("threads, for the one transfer").hasValue(1);
            silent.getFirst().setSoTimeout((int) SOON.toMillis());
            assertThat(silent.getFirst().getInputStream().read())
                    .as("the oldest made room")
                    .isEqualTo(-1);
        } finally {
            for (var socket : silent) {
                socket.close();
            }
        }
    }

    @Test
    void threadsThatCannotBeHadCostTheirConnectionsOnly() throws IOException {
        var none = new AtomicInteger(6);
        try (var scarce =
                HostPlane.open(
                        "test-t",
                        "127.0.0.1",
                        "127.0.0.1",
                        ways,
                        work -> {
                            if (none.getAndDecrement() > 0) {
                                throw new OutOfMemoryError("no thread, says the test");
                            }
                            return Thread.ofVirtual().unstarted(work);
                        })) {
            var from = placement(arena, 1, 64, 1);
            var to = placement(arena, 1, 64, 2);
            var grant = Grant.draw();
            var received = new CompletableFuture<Outcome>();
            scarce.receive(grant, to, Deadline.in(SOON), received::complete);
            while (none.get() > 3) {
                try (var refused = shows(scarce, grant)) {
                    refused.setSoTimeout((int) SOON.toMillis());
                    assertThat(refused.getInputStream().read()).isEqualTo(-1);
                }
            }
            assertThat(received).as("open to a later sender").isNotDone();
            while (none.get() > 0) {
                assertThatThrownBy(() ->
                                scarce.send(
                                        receiver.address(),
                                        Grant.draw(),
                                        from,
                                        Deadline.in(SOON),
                                        _ -> {}))
                        .isInstanceOf(KvFerryException.class);
            }
            awaitWorking(scarce, 0);
            assertThat(scarce.handshakes()).isZero();

            fill(from, new Random(8));
            sender.send(scarce.address(), grant, from, Deadline.in(SOON), _ -> {}).commit();
            assertThat(await(received)).isEqualTo(new Outcome.Done(64));
            assertEqualBlocks(from, to);
        }
    }

    @Test
    void aWindowWhoseLimitHasPassedIsNotKept() throws InterruptedException {
        int windows = 100_000;
        var ended = new CountDownLatch(windows);
        var to = placement(arena, 1, 64, 2);
        for (int i = 0; i < windows; i++) {
            receiver.receive(Grant.draw(), to, Deadline.in(Duration.ZERO), _ -> ended.countDown());
        }
        assertThat(ended.await(SOON.toSeconds(), TimeUnit.SECONDS)).isTrue();
        assertThat(receiver.openWindows()).isZero();
    }

    /// Without a time limit nothing begins.
    @Test
    void aTransferForWhichThereIsNoClockDoesNotBegin() {
        var none = new AtomicInteger(2);
        var begun = new AtomicInteger();
        var clock =
                new PlaneClock(work -> {
                    if (none.getAndDecrement() > 0) {
                        throw new OutOfMemoryError("no thread, says the test");
                    }
                    return Thread.ofPlatform().daemon(true).unstarted(work);
                });
        try (var scarce =
                HostPlane.open(
                        "test-l",
                        "127.0.0.1",
                        "127.0.0.1",
                        ways,
                        work -> {
                            begun.incrementAndGet();
                            return Thread.ofPlatform().daemon(true).unstarted(work);
                        },
                        clock,
                        SOON)) {
            var from = placement(arena, 1, 64, 1);
            var to = placement(arena, 1, 64, 2);
            fill(from, new Random(9));
            var ended = new AtomicInteger();
            assertThatThrownBy(() ->
                            scarce.receive(
                                    Grant.draw(), to, almost(), _ -> ended.incrementAndGet()))
                    .isInstanceOf(OutOfMemoryError.class);
            assertThatThrownBy(() ->
                            scarce.send(
                                    receiver.address(),
                                    Grant.draw(),
                                    from,
                                    almost(),
                                    _ -> ended.incrementAndGet()))
                    .isInstanceOf(KvFerryException.class);
            assertThat(begun).as("threads of transfers").hasValue(0);
            assertThat(scarce.working()).isZero();

            var grant = Grant.draw();
            var received = new CompletableFuture<Outcome>();
            receiver.receive(grant, to, Deadline.in(SOON), received::complete);
            scarce.send(receiver.address(), grant, from, Deadline.in(SOON), _ -> {}).commit();
            assertThat(await(received)).isEqualTo(new Outcome.Done(64));
            assertEqualBlocks(from, to);
            var due = new CountDownLatch(1);
            var _ = clock.after(Duration.ofMillis(20), due::countDown); // after those limits
            awaitQuietly(due);
            assertThat(ended).as("told of what never began").hasValue(0);
        }
    }

    private static Deadline almost() {
        return Deadline.in(Duration.ofMillis(1));
    }

    /// The engine keeps the memory in place then, see the contract of worker halves.
    @Test
    void aCloseThatLeavesAThreadWithBlocksSaysSo() throws IOException {
        var begun = new CountDownLatch(1);
        var mayEnd = new CountDownLatch(1);
        var plane =
                HostPlane.open(
                        "test-c",
                        "127.0.0.1",
                        "127.0.0.1",
                        ways,
                        work ->
                                Thread.ofVirtual()
                                        .unstarted(() -> {
                                            begun.countDown();
                                            awaitQuietly(mayEnd);
                                            work.run();
                                        }),
                        new PlaneClock("test-c-clock"),
                        Duration.ofMillis(50));
        var grant = Grant.draw();
        plane.receive(grant, placement(arena, 1, 64, 1), Deadline.in(SOON), _ -> {});
        try (var connection = shows(plane, grant)) {
            awaitQuietly(begun);
            awaitWorking(plane, 1);
            for (int i = 0; i < 2; i++) { // and says so again
                assertThatThrownBy(plane::close)
                        .isInstanceOfSatisfying(
                                KvFerryException.class,
                                e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT))
                        .hasMessageContaining("1 connections still use blocks");
            }
            assertThat(connection.isConnected()).isTrue();
        } finally {
            mayEnd.countDown();
        }
        awaitWorking(plane, 0);
        plane.close();
    }

    /// A connection that has said hello, and no more.
    private static Socket shows(HostPlane plane, Grant grant) throws IOException {
        int port = Integer.parseInt(plane.address().split(":")[1]);
        var socket = new Socket(InetAddress.getLoopbackAddress(), port);
        var hello = HostWire.hello(new GrantProof(grant).name(), GrantProof.nonce());
        socket.getOutputStream().write(HostWire.bytes(hello, HostWire.HELLO_BYTES));
        return socket;
    }

    private static void awaitWorking(HostPlane plane, int connections) {
        var limit = Deadline.in(SOON);
        while (plane.working() != connections) {
            assertThat(limit.passed()).isFalse();
            Thread.onSpinWait();
        }
    }

    private static void awaitQuietly(CountDownLatch latch) {
        try {
            assertThat(latch.await(SOON.toSeconds(), TimeUnit.SECONDS)).isTrue();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
