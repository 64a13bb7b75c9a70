// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static io.kvferry.backend.nccl.plane.PlaneRuns.SOON;
import static io.kvferry.backend.nccl.plane.PlaneRuns.await;
import static io.kvferry.backend.nccl.plane.PlaneRuns.code;
import static io.kvferry.backend.nccl.plane.PlaneRuns.contents;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.gpu.NcclDouble.Count;
import io.kvferry.backend.nccl.gpu.NcclDouble.Knob;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.PlanePort;
import io.kvferry.backend.nccl.plane.PlaneRuns.Run;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;

/// Peers, drivers and communicators that fail: each transfer ends with a code, and the next one
/// works.
class NcclPlaneFailuresTest extends NcclPlaneCase {
    @Test
    void aWrongBitIsFoundBeforeAnythingIsWritten() {
        nccl.set(Knob.FLIP, 2);
        var run = run(filled(2, 4096, 1, 2), placement(2, 4096, 3, 4));
        run.sending.commit();
        assertThat(code(await(run.received))).isEqualTo(ErrorCode.CORRUPT);
        assertThat(code(await(run.sent))).isEqualTo(ErrorCode.CORRUPT);
        assertThat(contents(run.to)).isEqualTo(new byte[4 * 4096]);
        run(filled(1, 64, 1), placement(1, 64, 2)).assertArrives();
    }

    @Test
    void bothEndsGiveUpAtTheirDeadline() {
        var received = new CompletableFuture<Outcome>();
        receiver.receive(
                Grant.draw(),
                placement(1, 64, 1),
                Deadline.in(Duration.ofMillis(30)),
                received::complete);
        assertThat(code(await(received))).isEqualTo(ErrorCode.TIMEOUT);
        var run =
                new Run(
                        sender,
                        receiver,
                        filled(1, 64, 1),
                        placement(1, 64, 1),
                        Duration.ofMillis(300)); // never committed
        assertThat(code(await(run.sent)))
                .as("the last one where they met when the window closed")
                .isIn(ErrorCode.TIMEOUT, ErrorCode.NOT_FOUND);
        assertThat(code(await(run.received))).isIn(ErrorCode.TIMEOUT, ErrorCode.PEER_LOST);
    }

    @Test
    @DisplayName("P8 a peer that dies in the initialization is given up in time")
    void aPeerThatHangsInInitializationIsGivenUp() {
        var hasty = plane(Duration.ofSeconds(2)); // enough for all but what hangs
        nccl.set(Knob.HANG_INIT, 1);
        var run = new Run(hasty, receiver, filled(1, 64, 1), placement(1, 64, 2));
        assertThat(code(await(run.sent)))
                .as("the latter where it did not even come to be welcomed in time")
                .isIn(ErrorCode.TIMEOUT, ErrorCode.PEER_LOST);
        assertThat(hasty.refuses(receiver.address())).isTrue();
        assertThat(run.received).as("still open, as no sender came to it").isNotDone();
        run.window.withdraw();
        assertThat(code(await(run.received))).isEqualTo(ErrorCode.CANCELLED);
        nccl.assertClean();
        nccl.set(Knob.HANG_INIT, 0);
        assertArrivesInTheEnd(hasty);
    }

    @Test
    @Timeout(300)
    void aCommunicatorThatFailsIsAbortedOnBothSidesAndMadeAnew() {
        nccl.set(Knob.FAIL_INIT, 1);
        var early = run(filled(1, 64, 1), placement(1, 64, 2));
        early.sending.commit();
        assertThat(await(early.sent)).isInstanceOf(Outcome.Failed.class);
        nccl.set(Knob.FAIL_INIT, 0);
        early.window.withdraw();
        for (int failing = 1; failing <= 3; failing++) {
            nccl.set(Knob.FAIL_GROUP, failing);
            var run = run(filled(4, 1 << 18, 1, 2, 3, 4), placement(4, 1 << 18, 1, 2, 3, 4));
            run.sending.commit();
            assertThat(await(run.sent)).isInstanceOf(Outcome.Failed.class);
            assertThat(await(run.received)).isInstanceOf(Outcome.Failed.class);
            nccl.set(Knob.FAIL_GROUP, 0);
            nccl.assertClean(); // both sides have noticed
            run(filled(1, 64, 1), placement(1, 64, 2)).assertArrives();
        }
        assertThat(nccl.count(Count.ABORTS)).isEqualTo(nccl.count(Count.INITS) - 2);
    }

    /// Whoever tries again when it hears of the failure is to go another way at once. Where the
    /// communicator fails on the receiver's side alone the sender hears of it from there.
    @Test
    @Timeout(300)
    void aSenderThatHearsThatALinkFailedAvoidsThePeer() {
        nccl.set(Knob.FAIL_RANK, 2); // the receiver is rank 1
        for (int round = 0; round < 20; round++) {
            var a = plane(SOON);
            var b = plane(SOON);
            nccl.set(Knob.FAIL_GROUP, 1);
            var run = new Run(a, b, filled(1, 64, 1), placement(1, 64, 2));
            var avoided = run.sent.thenApply(_ -> a.refuses(b.address()));
            run.sending.commit();
            assertThat(await(run.sent)).isInstanceOf(Outcome.Failed.class);
            assertThat(await(run.received)).isInstanceOf(Outcome.Failed.class);
            assertThat(avoided.join()).as("round %d", round).isTrue();
            a.close();
            b.close();
        }
    }

    @Test
    void anOperationThatNeverEndsIsAborted() {
        var hasty = plane(Duration.ofSeconds(2)); // as above
        nccl.set(Knob.STALL, 1);
        var run = new Run(hasty, receiver, filled(1, 64, 1), placement(1, 64, 2));
        run.sending.commit();
        assertThat(code(await(run.sent))).isIn(ErrorCode.TIMEOUT, ErrorCode.PEER_LOST);
        assertThat(hasty.refuses(receiver.address())).isTrue();
        run.window.withdraw(); // where it did not come to it in time
        assertThat(await(run.received)).isInstanceOf(Outcome.Failed.class);
        nccl.assertClean();
        nccl.set(Knob.STALL, 0);
        assertArrivesInTheEnd(hasty);
    }

    @Test
    void silentConnectionsKeepNoSenderOut() throws IOException {
        int port = Integer.parseInt(receiver.address().split(":")[1]);
        var silent = new ArrayList<Socket>();
        try {
            for (int i = 0; i < PlanePort.MOST_HANDSHAKES + 40; i++) {
                silent.add(new Socket(InetAddress.getLoopbackAddress(), port));
            }
            run(filled(1, 64, 1), placement(1, 64, 2)).assertArrives();
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

    /// Its pieces would go into the window unchecked.
    @Test
    @Timeout(300)
    void aBatchThatIsAnnouncedBeforeItsTransferEndsTheLink() throws IOException {
        var received = new CompletableFuture<Outcome>();
        var grant = Grant.draw();
        receiver.receive(grant, placement(1, 64, 1, 2), Deadline.in(SOON), received::complete);
        int port = Integer.parseInt(receiver.address().split(":")[1]);
        try (var channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port))) {
            var nonces = PlayedLink.dial(channel, grant, SLOT);
            var id = nccl.library().uniqueId();
            LinkSocket.writeMessage(channel, new LinkMessage.Identity(id));
            var own = Communicator.begin(nccl.library(), id, 0, 0, new AtomicReference<>());
            try {
                while (!own.ready()) {
                    Thread.onSpinWait();
                }
                LinkSocket.writeMessage(channel, new LinkMessage.Ready());
                assertThat(LinkSocket.readMessage(channel)).isInstanceOf(LinkMessage.Ready.class);
                var pieces = List.of(new LinkMessage.Piece(0, 64, 64, 0));
                LinkSocket.writeMessage(channel, new LinkMessage.Batch(7, pieces));
                assertThat(LinkSocket.readMessage(channel)).isInstanceOf(LinkMessage.Accept.class);
                LinkSocket.writeMessage(channel, PlayedLink.open(7, grant, nonces));
                assertThat(channel.read(ByteBuffer.allocate(1))).isEqualTo(-1);
            } catch (IOException e) {
                assertThat(e).hasMessageContaining("reset");
            } finally {
                own.abort();
            }
        }
        assertThat(received).as("no sender has come to it").isNotDone();
    }

    /// Links are kept, so that this is for long: the other plane is to be taken meanwhile.
    @Test
    void aPeerForWhomThereIsNoRoomIsSaidToBeRefused() throws IOException {
        var silent = new ArrayList<ServerSocket>();
        try {
            var last = new CompletableFuture<Outcome>();
            var lastAddress = "";
            for (int i = 0; i <= NcclPlane.MOST_LINKS; i++) {
                var listener = new ServerSocket(0, 4, InetAddress.getLoopbackAddress());
                silent.add(listener);
                lastAddress = "127.0.0.1:" + listener.getLocalPort();
                last = new CompletableFuture<>();
                sender.send(
                        lastAddress,
                        Grant.draw(),
                        filled(1, 64, 1),
                        Deadline.in(SOON),
                        last::complete);
            }
            assertThat(code(await(last))).isEqualTo(ErrorCode.BACKPRESSURE);
            assertThat(sender.refuses(lastAddress)).isTrue();
            assertThat(sender.refuses("127.0.0.1:" + silent.getFirst().getLocalPort())).isFalse();
            sender.close();
        } finally {
            for (var listener : silent) {
                listener.close();
            }
        }
    }

    /// What is no failure of NCCL ends the link too, and no other one.
    @Test
    void aDriverThatThrowsSomethingElseEndsItsLinkAtOnce() {
        var broken = new AtomicBoolean();
        var plane =
                NcclPlane.open(
                        "broken",
                        "127.0.0.1",
                        "127.0.0.1",
                        nccl.library(),
                        breaking(nccl.driver(), broken),
                        new NcclPlane.Limits(SLOT, SOON, SOON, Duration.ofHours(1), 0));
        planes.add(plane);
        new Run(plane, receiver, filled(1, 64, 1), placement(1, 64, 2)).assertArrives();
        broken.set(true);
        var run = new Run(plane, receiver, filled(1, 64, 1), placement(1, 64, 2));
        run.sending.commit();
        assertThat(code(await(run.sent))).isEqualTo(ErrorCode.INTERNAL);
        assertThat(await(run.received)).isInstanceOf(Outcome.Failed.class);
        broken.set(false);
        new Run(plane, receiver, filled(1, 64, 1), placement(1, 64, 2)).assertArrives();
    }

    /// A driver whose streams throw while `broken` says so.
    private static GpuDriver breaking(GpuDriver real, AtomicBoolean broken) {
        return (GpuDriver)
                Proxy.newProxyInstance(
                        GpuDriver.class.getClassLoader(),
                        new Class<?>[] {GpuDriver.class},
                        (_, method, arguments) -> {
                            var made = method.invoke(real, arguments);
                            return made instanceof GpuDriver.Stream stream
                                    ? breaking(stream, broken)
                                    : made;
                        });
    }

    private static GpuDriver.Stream breaking(GpuDriver.Stream real, AtomicBoolean broken) {
        return (GpuDriver.Stream)
                Proxy.newProxyInstance(
                        GpuDriver.class.getClassLoader(),
                        new Class<?>[] {GpuDriver.Stream.class},
                        (_, method, arguments) -> {
                            if (broken.get() && method.getName().equals("reached")) {
                                throw new IllegalStateException("says the test");
                            }
                            return method.invoke(real, arguments);
                        });
    }

    @Test
    void aPeerThatIsGoneEndsItsTransfersOnly() {
        var other = plane(SOON);
        var stays = new Run(sender, other, filled(2, 4096, 1), placement(2, 4096, 2));
        stays.sending.available(1);
        var lost = run(filled(2, 4096, 1), placement(2, 4096, 2));
        lost.sending.available(1);
        assertThat(lost.sending.awaitSent(1, Deadline.in(SOON))).isTrue();
        receiver.close();
        assertThat(await(lost.sent)).isInstanceOf(Outcome.Failed.class);
        stays.assertArrives();
    }

    @Test
    void clientsWithoutAGrantAndMisbehavingPeersAreCutOff() throws IOException {
        var to = placement(1, 64, 1, 2);
        var received = new CompletableFuture<Outcome>();
        var grant = Grant.draw();
        receiver.receive(grant, to, Deadline.in(SOON), received::complete);
        int port = Integer.parseInt(receiver.address().split(":")[1]);
        var random = new Random(5);
        for (int i = 0; i < 30; i++) {
            try (var socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
                socket.setSoTimeout((int) SOON.toMillis());
                var noise = new byte[1 + random.nextInt(200)];
                random.nextBytes(noise);
                noise[Math.min(3, noise.length - 1)] = (byte) 0xff; // a frame of negative length
                socket.getOutputStream().write(noise);
                socket.shutdownOutput();
                assertThat(socket.getInputStream().read()).isEqualTo(-1);
            } catch (IOException e) {
                assertThat(e).hasMessageContaining("reset");
            }
        }
        var bad =
                List.of(
                        new LinkMessage.Ready(),
                        new LinkMessage.Turn(0, true),
                        new LinkMessage.Accept(),
                        new LinkMessage.Identity(new byte[127]),
                        new LinkMessage.Batch(0, List.of(new LinkMessage.Piece(0, 0, 64, 0))));
        for (var message : bad) {
            try (var channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port))) {
                var _ = PlayedLink.dial(channel, grant, SLOT);
                LinkSocket.writeMessage(channel, message);
                if (message instanceof LinkMessage.Ready) {
                    continue; // alone it is not wrong, and the next one takes the place of its link
                }
                int end = channel.read(ByteBuffer.allocate(1));
                assertThat(end).as("%s", message).isEqualTo(-1);
            } catch (IOException e) {
                assertThat(e).hasMessageContaining("reset");
            }
        }
        assertThat(received).isNotDone();
        assertThat(contents(to)).containsOnly(0);
        assertThat(nccl.count(Count.INITS)).isZero();
    }
}
