// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static io.kvferry.backend.nccl.plane.PlaneRuns.SOON;
import static io.kvferry.backend.nccl.plane.PlaneRuns.assertEqualBlocks;
import static io.kvferry.backend.nccl.plane.PlaneRuns.await;
import static io.kvferry.backend.nccl.plane.PlaneRuns.code;
import static io.kvferry.backend.nccl.plane.PlaneRuns.contents;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.gpu.NcclDouble.Count;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.DataPlane.Sending;
import io.kvferry.backend.nccl.plane.GrantProof;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;

/// Neither end does anything with NCCL for a transfer whose other end does not know its grant.
@Timeout(300)
class NcclPlaneProofTest extends NcclPlaneCase {
    /// What a listener that knows no grant may answer: as when there were no proofs, with random
    /// numbers, with what the sender said itself, and out of turn.
    private static final List<Function<LinkMessage.Hello, LinkMessage>> ANSWERS =
            List.of(
                    _ -> new LinkMessage.Welcome(new LinkMessage.PlaneId(1, 2), 0, 0, SLOT),
                    _ -> new LinkMessage.Challenge(GrantProof.nonce(), GrantProof.nonce()),
                    hello -> new LinkMessage.Challenge(hello.nonce(), hello.nonce()),
                    _ -> new LinkMessage.Ready());

    private final CompletableFuture<Outcome> sent = new CompletableFuture<>();
    private final CompletableFuture<Outcome> received = new CompletableFuture<>();
    private final Grant grant = Grant.draw();

    private static ServerSocketChannel listen() throws IOException {
        return ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
    }

    private Sending send(
            ServerSocketChannel to, Grant shown, Duration limit, CompletableFuture<Outcome> end) {
        var address = "127.0.0.1:" + to.socket().getLocalPort();
        return sender.send(address, shown, filled(1, 64, 1), Deadline.in(limit), end::complete);
    }

    private SocketChannel connect() throws IOException {
        int port = Integer.parseInt(receiver.address().split(":")[1]);
        return SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
    }

    private static void assertTellsNot(LinkMessage message, Grant grant) {
        var said = message.encode();
        var numbers = ByteBuffer.wrap(said).order(ByteOrder.LITTLE_ENDIAN);
        for (int at = 0; at <= said.length - Long.BYTES; at++) {
            assertThat(numbers.getLong(at)).isNotIn(grant.high(), grant.low());
        }
    }

    private void assertNothingOfNccl() {
        assertThat(nccl.count(Count.IDS)).isZero();
        assertThat(nccl.count(Count.INITS)).isZero();
    }

    @Test
    void whoListensAtThePortOfAReceiverThatIsGoneIsSentNothing() throws IOException {
        for (var answer : ANSWERS) {
            var end = new CompletableFuture<Outcome>();
            try (var stranger = listen()) {
                send(stranger, grant, SOON, end).commit();
                try (var channel = stranger.accept()) {
                    var hello = PlayedLink.read(channel, LinkMessage.Hello.class);
                    assertTellsNot(hello, grant);
                    LinkSocket.writeMessage(channel, answer.apply(hello));
                    assertThat(channel.read(ByteBuffer.allocate(1))).isEqualTo(-1);
                }
            }
            assertThat(code(await(end))).isEqualTo(ErrorCode.PEER_REFUSED);
        }
        assertNothingOfNccl();
    }

    @Test
    void whoListensAndSaysNothingKeepsATransferUntilItsDeadline() throws IOException {
        try (var stranger = listen()) {
            send(stranger, grant, Duration.ofMillis(300), sent).commit();
            assertThat(code(await(sent))).isEqualTo(ErrorCode.TIMEOUT);
        }
        assertNothingOfNccl();
    }

    /// A link is made with the grant of one transfer; it says nothing of the others.
    @Test
    void aLinkedPeerThatDoesNotKnowTheGrantOfATransferIsSentNothing() throws IOException {
        try (var listener = listen()) {
            var known = send(listener, grant, SOON, sent);
            try (var channel = listener.accept()) {
                var nonces = PlayedLink.answer(channel, grant, SLOT);
                var id = PlayedLink.read(channel, LinkMessage.Identity.class).uniqueId();
                var own = Communicator.begin(nccl.library(), id, 1, 0, new AtomicReference<>());
                try {
                    while (!own.ready()) {
                        Thread.onSpinWait();
                    }
                    LinkSocket.writeMessage(channel, new LinkMessage.Ready());
                    var _ = PlayedLink.read(channel, LinkMessage.Ready.class);
                    var open = PlayedLink.read(channel, LinkMessage.Open.class);
                    assertTellsNot(open, grant);
                    assertSentNothing(listener, channel, nonces);
                    var proof = nonces.ofReceiver(new GrantProof(grant));
                    LinkSocket.writeMessage(
                            channel, new LinkMessage.Opened(open.transfer(), proof));
                    known.commit();
                    assertThat(PlayedLink.read(channel, LinkMessage.Batch.class).transfer())
                            .isEqualTo(open.transfer());
                } finally {
                    own.abort();
                }
            }
        }
        assertThat(await(sent)).isInstanceOf(Outcome.Failed.class);
        assertThat(nccl.count(Count.SENDS)).isZero();
    }

    /// Whatever it answers, or where it answers nothing.
    private void assertSentNothing(
            ServerSocketChannel listener, SocketChannel channel, LinkNonces nonces)
            throws IOException {
        var other = Grant.draw();
        var elsewhere = new LinkNonces(GrantProof.nonce(), nonces.peers());
        var proofs =
                List.of(
                        GrantProof.nonce(),
                        nonces.ofReceiver(new GrantProof(grant)), // of another grant
                        elsewhere.ofReceiver(new GrantProof(other)), // said once on another link
                        nonces.ofSender(new GrantProof(other)),
                        new byte[0]);
        for (var proof : proofs) {
            boolean answers = proof.length > 0;
            var end = new CompletableFuture<Outcome>();
            var sending = send(listener, other, SOON, end);
            sending.commit();
            var transfer = PlayedLink.read(channel, LinkMessage.Open.class).transfer();
            if (answers) {
                LinkSocket.writeMessage(channel, new LinkMessage.Opened(transfer, proof));
            } else {
                sending.abort();
            }
            assertThat(code(await(end)))
                    .isEqualTo(answers ? ErrorCode.PEER_REFUSED : ErrorCode.CANCELLED);
            assertThat(LinkSocket.readMessage(channel))
                    .as("and no batch before it")
                    .isEqualTo(new LinkMessage.Cancel(transfer));
        }
    }

    @Test
    void whatASenderSaidOnceOpensNoWindow() throws IOException {
        var to = placement(1, 64, 1, 2);
        receiver.receive(grant, to, Deadline.in(SOON), received::complete);
        var proof = new GrantProof(grant);
        var hello = PlayedLink.hello(grant, SLOT);
        LinkNonces once;
        try (var channel = connect()) {
            once = PlayedLink.challenged(channel, hello, proof);
        }
        try (var channel = connect()) {
            var _ = PlayedLink.challenged(channel, hello, proof);
            LinkSocket.writeMessage(channel, new LinkMessage.Proof(once.ofSender(proof)));
            var welcome = PlayedLink.read(channel, LinkMessage.Welcome.class);
            assertThat(welcome.code()).isEqualTo(ErrorCode.PEER_REFUSED.wire());
        }
        var other = Grant.draw();
        var window =
                receiver.receive(other, placement(1, 64, 1), Deadline.in(SOON), sent::complete);
        try (var channel = connect()) {
            var _ = PlayedLink.dial(channel, other, SLOT);
            LinkSocket.writeMessage(channel, PlayedLink.open(3, grant, once));
            assertThat(LinkSocket.readMessage(channel))
                    .isEqualTo(new LinkMessage.Result(3, ErrorCode.PEER_REFUSED.wire()));
        }
        window.withdraw();
        assertNothingOfNccl();
        assertThat(received).isNotDone();
        assertThat(contents(to)).containsOnly(0);

        var from = filled(1, 64, 3, 4);
        sender.send(receiver.address(), grant, from, Deadline.in(SOON), _ -> {}).commit();
        assertThat(await(received)).isEqualTo(new Outcome.Done(128));
        assertEqualBlocks(from, to);
    }

    @Test
    void aPeerOfAnotherVersionIsToldSo() throws IOException {
        receiver.receive(grant, placement(1, 64, 1), Deadline.in(SOON), received::complete);
        var frame = PlayedLink.hello(grant, SLOT).encode();
        var older =
                ByteBuffer.allocate(Integer.BYTES + frame.length).order(ByteOrder.LITTLE_ENDIAN);
        older.putInt(frame.length).put(frame).putInt(Integer.BYTES + 1 + Integer.BYTES, 1).flip();
        try (var channel = connect()) {
            assertThat(channel.write(older)).isEqualTo(older.limit());
            var welcome = PlayedLink.read(channel, LinkMessage.Welcome.class);
            assertThat(welcome.code()).isEqualTo(ErrorCode.INCOMPATIBLE.wire());
        }
        assertNothingOfNccl();
        assertThat(received).isNotDone();
    }
}
