// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

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
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

@ParameterizedClass
@EnumSource
class HostPlaneTest {
    private static final Duration SOON = Duration.ofSeconds(50);
    private static final int BLOCKS = 64;

    private final Arena arena = Arena.ofShared();
    private final HostPlane.Ways ways;
    private final HostPlane sender;
    private final HostPlane receiver;

    HostPlaneTest(HostPlane.Ways ways) {
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

    /// Layers with gaps between their blocks, and these blocks of them.
    private Placement placement(int layers, long blockBytes, int... blocks) {
        var parts = new ArrayList<Placement.Part>();
        for (int layer = 0; layer < layers; layer++) {
            long stride = layer % 2 == 0 ? blockBytes : blockBytes + 24;
            parts.add(
                    new Placement.Part(
                            layer,
                            arena.allocate(stride * BLOCKS, 64),
                            stride,
                            blockBytes,
                            blocks));
        }
        return new Placement(parts);
    }

    private static void fill(Placement placement, long seed) {
        var random = new Random(seed);
        for (var part : placement.parts()) {
            for (int at = 0; at < part.count(); at++) {
                var bytes = new byte[(int) part.blockBytes()];
                random.nextBytes(bytes);
                block(part, at).copyFrom(MemorySegment.ofArray(bytes));
            }
        }
    }

    private static MemorySegment block(Placement.Part part, int position) {
        return part.segment()
                .asSlice(part.blocks()[position] * part.strideBytes(), part.blockBytes());
    }

    private static void assertEqualBlocks(Placement sent, Placement received) {
        for (int i = 0; i < sent.parts().size(); i++) {
            for (int at = 0; at < sent.parts().get(i).count(); at++) {
                assertThat(
                                block(sent.parts().get(i), at)
                                        .mismatch(block(received.parts().get(i), at)))
                        .as("part %d block %d", i, at)
                        .isEqualTo(-1);
            }
        }
    }

    private static Outcome await(CompletableFuture<Outcome> outcome) {
        return outcome.orTimeout(SOON.toSeconds(), TimeUnit.SECONDS).join();
    }

    private static ErrorCode code(Outcome outcome) {
        assertThat(outcome).isInstanceOf(Outcome.Failed.class);
        return ((Outcome.Failed) outcome).failure().code();
    }

    /// Both ends of one transfer.
    private final class Run {
        final Grant grant = Grant.draw();
        final CompletableFuture<Outcome> received = new CompletableFuture<>();
        final CompletableFuture<Outcome> sent = new CompletableFuture<>();
        final DataPlane.Window window;
        final DataPlane.Sending sending;

        Run(Placement from, Placement to) {
            window = receiver.receive(grant, to, Deadline.in(SOON), received::complete);
            sending =
                    sender.send(receiver.address(), grant, from, Deadline.in(SOON), sent::complete);
        }
    }

    @Test
    void bringsTheBlocksAndNothingElse() {
        for (long blockBytes : new long[] {1, 32, 4096, (1 << 20) + 512}) {
            var from = placement(3, blockBytes, 5, 6, 7, 1, 0, 63);
            var to = placement(3, blockBytes, 0, 2, 3, 4, 9, 8);
            fill(from, blockBytes);
            var run = new Run(from, to);
            run.sending.commit();
            assertThat(await(run.sent)).isEqualTo(new Outcome.Done(from.bytes()));
            assertThat(await(run.received)).isEqualTo(new Outcome.Done(from.bytes()));
            assertEqualBlocks(from, to);
            for (var part : to.parts()) {
                assertThat(part.segment().get(ValueLayout.JAVA_BYTE, part.strideBytes()))
                        .as("block 1, which is none of the window")
                        .isZero();
            }
        }
    }

    @Test
    void sendsWhatIsAvailableAndIsTakenOnlyWhenCommitted() {
        var from = placement(2, 4096, 1, 2);
        var to = placement(2, 4096, 3, 4);
        fill(from, 1);
        var run = new Run(from, to);
        run.sending.available(1);
        assertThat(run.sending.awaitSent(1, Deadline.in(SOON))).isTrue();
        assertThat(run.sending.awaitSent(2, Deadline.in(Duration.ofMillis(50)))).isFalse();
        run.sending.available(2);
        assertThat(run.sending.awaitSent(2, Deadline.in(SOON))).isTrue();
        assertThat(run.received).isNotDone();
        run.sending.abort();
        assertThat(code(await(run.sent))).isEqualTo(ErrorCode.CANCELLED);
        assertThat(code(await(run.received))).isEqualTo(ErrorCode.PEER_LOST);
    }

    @Test
    void aGrantIsGoodForOneConnectionAndOnlyWhileTheWindowIsOpen() {
        var from = placement(1, 64, 1);
        var to = placement(1, 64, 2);
        fill(from, 2);
        var run = new Run(from, to);
        run.sending.commit();
        assertThat(await(run.sent)).isInstanceOf(Outcome.Done.class);
        var again = new CompletableFuture<Outcome>();
        sender.send(receiver.address(), run.grant, from, Deadline.in(SOON), again::complete)
                .commit();
        assertThat(code(await(again))).isEqualTo(ErrorCode.NOT_FOUND);

        var withdrawn = new CompletableFuture<Outcome>();
        var grant = Grant.draw();
        receiver.receive(grant, to, Deadline.in(SOON), withdrawn::complete).withdraw();
        assertThat(code(await(withdrawn))).isEqualTo(ErrorCode.CANCELLED);
        var late = new CompletableFuture<Outcome>();
        sender.send(receiver.address(), grant, from, Deadline.in(SOON), late::complete).commit();
        assertThat(code(await(late))).isEqualTo(ErrorCode.NOT_FOUND);
    }

    @Test
    void onlyAWindowThatNoSenderCameToIsWithdrawnAsUnused() {
        var from = placement(2, 4096, 1);
        var to = placement(2, 4096, 2);
        fill(from, 3);
        var unused = new CompletableFuture<Outcome>();
        receiver.receive(Grant.draw(), to, Deadline.in(SOON), unused::complete).withdrawUnused();
        assertThat(code(await(unused))).isEqualTo(ErrorCode.TIMEOUT);

        var run = new Run(from, to);
        run.sending.available(1);
        assertThat(run.sending.awaitSent(1, Deadline.in(SOON))).isTrue();
        run.window.withdrawUnused();
        run.sending.commit();
        assertThat(await(run.received)).isInstanceOf(Outcome.Done.class);
    }

    @Test
    void nothingIsWrittenAfterAWithdrawal() {
        var from = placement(2, 1 << 18, 1, 2, 3);
        var to = placement(2, 1 << 18, 4, 5, 6);
        fill(from, 3);
        var run = new Run(from, to);
        run.sending.available(1);
        assertThat(run.sending.awaitSent(1, Deadline.in(SOON))).isTrue();
        run.window.withdraw();
        assertThat(code(await(run.received))).isEqualTo(ErrorCode.CANCELLED);
        for (var part : to.parts()) {
            part.segment().fill((byte) 0x55);
        }
        run.sending.commit();
        assertThat(await(run.sent)).isInstanceOf(Outcome.Failed.class);
        for (var part : to.parts()) {
            for (long i = 0; i < part.segment().byteSize(); i += 512) {
                assertThat(part.segment().get(ValueLayout.JAVA_BYTE, i)).isEqualTo((byte) 0x55);
            }
        }
    }

    @Test
    @DisplayName("P21 a transfer of another size is refused")
    void aTransferOfAnotherSizeIsRefused() {
        var from = placement(2, 4096, 1, 2, 3);
        for (var to :
                List.of(
                        placement(2, 4096, 1, 2),
                        placement(1, 4096, 1, 2, 3),
                        placement(2, 2048, 1, 2, 3))) {
            var run = new Run(from, to);
            run.sending.commit();
            assertThat(code(await(run.received))).isEqualTo(ErrorCode.PROTOCOL);
            assertThat(await(run.sent)).isInstanceOf(Outcome.Failed.class);
        }
        var less = placement(2, 4096, 1);
        var run = new Run(less, from);
        run.sending.commit();
        assertThat(code(await(run.received))).isEqualTo(ErrorCode.PROTOCOL);
        assertThat(await(run.sent)).isInstanceOf(Outcome.Failed.class);
    }

    @Test
    void bothEndsGiveUpAtTheirDeadline() {
        var from = placement(1, 64, 1);
        var to = placement(1, 64, 1);
        var received = new CompletableFuture<Outcome>();
        receiver.receive(Grant.draw(), to, Deadline.in(Duration.ofMillis(30)), received::complete);
        assertThat(code(await(received))).isEqualTo(ErrorCode.TIMEOUT);
        boolean came = false;
        for (int tries = 0; tries < 20 && !came; tries++) { // a busy machine may need longer
            var grant = Grant.draw();
            var open = new CompletableFuture<Outcome>();
            var window = receiver.receive(grant, to, Deadline.in(SOON), open::complete);
            var sent = new CompletableFuture<Outcome>();
            var sending =
                    sender.send(
                            receiver.address(),
                            grant,
                            from,
                            Deadline.in(Duration.ofSeconds(1)),
                            sent::complete); // never committed
            sending.available(1);
            came = sending.awaitSent(1, Deadline.in(SOON));
            assertThat(code(await(sent))).isEqualTo(ErrorCode.TIMEOUT);
            if (came) {
                assertThat(code(await(open))).isEqualTo(ErrorCode.PEER_LOST);
            }
            window.withdraw();
        }
        assertThat(came).as("came to the window within a second").isTrue();
    }

    @Test
    void closingEndsWhatIsOpen() {
        var run = new Run(placement(1, 64, 1), placement(1, 64, 2));
        var waiting = new CompletableFuture<Outcome>();
        receiver.receive(Grant.draw(), placement(1, 64, 3), Deadline.in(SOON), waiting::complete);
        sender.close();
        assertThat(code(await(run.sent))).isEqualTo(ErrorCode.CLOSED);
        receiver.close();
        assertThat(code(await(waiting))).isEqualTo(ErrorCode.CLOSED);
        assertThat(await(run.received)).isInstanceOf(Outcome.Failed.class);
    }

    @Test
    void strangersAreCutOffAndWriteNothing() throws IOException {
        var to = placement(1, 64, 1, 2);
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
                assertThat(answer).as("no go for a stranger").isNotZero();
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
            var to = placement(1, 64, 1, 2);
            var received = new CompletableFuture<Outcome>();
            var grant = Grant.draw();
            receiver.receive(grant, to, Deadline.in(SOON), received::complete);
            var body = new byte[128];
            var crc = new java.util.zip.CRC32C();
            crc.update(body);
            var frame = ByteBuffer.allocate(56 + 24 + 128).order(ByteOrder.LITTLE_ENDIAN);
            frame.putInt(HostWire.MAGIC).putInt(HostWire.VERSION);
            frame.putLong(grant.high()).putLong(grant.low()).position(56);
            frame.putInt((int) piece[0]).putInt((int) piece[1]).putInt((int) piece[2]);
            frame.putInt((int) crc.getValue()).putLong(piece[3]);
            frame.put(body);
            frame.put(56 + 24 + 12, (byte) piece[4]);
            try (var socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
                socket.getOutputStream().write(frame.array());
                assertThat(code(await(received)))
                        .isEqualTo(piece[4] == 1 ? ErrorCode.CORRUPT : ErrorCode.PROTOCOL);
            }
        }
    }

    /// Each of them has five seconds to say who it is.
    @Test
    void silentStrangersKeepNoSenderOutAndCostNoPlatformThread() throws IOException {
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
            for (int i = 0; i < PlanePort.MOST_STRANGERS + 40; i++) {
                silent.add(new Socket(InetAddress.getLoopbackAddress(), port));
            }
            var from = placement(1, 64, 1);
            var to = placement(1, 64, 2);
            fill(from, 6);
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
    void aWindowThatIsBeingFilledTakesNoSecondSender() {
        var from = placement(2, 64, 1);
        var to = placement(2, 64, 2);
        fill(from, 7);
        var run = new Run(from, to);
        run.sending.available(1);
        assertThat(run.sending.awaitSent(1, Deadline.in(SOON))).isTrue();
        var second = new CompletableFuture<Outcome>();
        sender.send(receiver.address(), run.grant, from, Deadline.in(SOON), second::complete)
                .commit();
        assertThat(code(await(second))).isEqualTo(ErrorCode.NOT_FOUND);
        run.sending.commit();
        assertThat(await(run.received)).isEqualTo(new Outcome.Done(128));
        assertEqualBlocks(from, to);
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
            var from = placement(1, 64, 1);
            var to = placement(1, 64, 2);
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
            assertThat(scarce.strangers()).isZero();

            fill(from, 8);
            sender.send(scarce.address(), grant, from, Deadline.in(SOON), _ -> {}).commit();
            assertThat(await(received)).isEqualTo(new Outcome.Done(64));
            assertEqualBlocks(from, to);
        }
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
                        Duration.ofMillis(50));
        var grant = Grant.draw();
        plane.receive(grant, placement(1, 64, 1), Deadline.in(SOON), _ -> {});
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
        var hello = HostWire.buffer(HostWire.HELLO_BYTES + HostWire.PROCESS_BYTES);
        hello.putInt(HostWire.MAGIC).putInt(HostWire.VERSION);
        hello.putLong(grant.high()).putLong(grant.low()).rewind();
        var bytes = new byte[hello.remaining()];
        hello.get(bytes);
        socket.getOutputStream().write(bytes);
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
