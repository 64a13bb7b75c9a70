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

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;

/// Neither end says anything of its memory to one that does not know the grant.
@ParameterizedClass
@EnumSource
class HostPlaneProofTest {
    private static final int FIRST_ANSWER = Integer.BYTES + HostWire.CHALLENGE_BYTES;

    private final Arena arena = Arena.ofShared();
    private final HostPlane sender;
    private final HostPlane receiver;

    HostPlaneProofTest(HostPlane.Ways ways) {
        sender = HostPlane.open("test", "127.0.0.1", "127.0.0.1", ways);
        receiver = HostPlane.open("test", "127.0.0.1", "127.0.0.1", ways);
    }

    @AfterEach
    void close() {
        sender.close();
        receiver.close();
        arena.close();
    }

    /// What a listener that knows no grant may answer: a go as it was before there were proofs, one
    /// with random numbers, and one with what the sender said itself.
    private static List<byte[]> answers(byte[] hello) {
        var guessed = new byte[FIRST_ANSWER];
        new Random(1).nextBytes(guessed);
        var echoed = ByteBuffer.allocate(FIRST_ANSWER).putInt(0);
        echoed.put(hello, hello.length - 32, 32).put(hello, hello.length - 32, 32);
        return List.of(
                new byte[FIRST_ANSWER], ByteBuffer.wrap(guessed).putInt(0).array(), echoed.array());
    }

    @Test
    void whoListensAtThePortOfAReceiverThatIsGoneIsSentNothing() throws IOException {
        var from = placement(arena, 2, 64, 1, 2);
        fill(from, new Random(2));
        for (int kind = 0; kind < answers(new byte[HostWire.HELLO_BYTES]).size(); kind++) {
            var grant = Grant.draw();
            var sent = new CompletableFuture<Outcome>();
            try (var other = new ServerSocket()) {
                other.bind(new InetSocketAddress("127.0.0.1", 0));
                var address = "127.0.0.1:" + other.getLocalPort();
                sender.send(address, grant, from, Deadline.in(SOON), sent::complete).commit();
                try (var socket = other.accept()) {
                    socket.setSoTimeout((int) SOON.toMillis());
                    var hello = socket.getInputStream().readNBytes(HostWire.HELLO_BYTES);
                    assertTellsNot(hello, grant);
                    socket.getOutputStream().write(answers(hello).get(kind));
                    assertThat(socket.getInputStream().readAllBytes()).isEmpty();
                }
            }
            assertThat(code(await(sent))).isEqualTo(ErrorCode.PEER_REFUSED);
        }
    }

    private static void assertTellsNot(byte[] hello, Grant grant) {
        var numbers = ByteBuffer.wrap(hello).order(ByteOrder.LITTLE_ENDIAN);
        for (int at = 0; at <= hello.length - Long.BYTES; at++) {
            assertThat(numbers.getLong(at)).isNotIn(grant.high(), grant.low());
        }
    }

    private SocketChannel connect() throws IOException {
        int port = Integer.parseInt(receiver.address().split(":")[1]);
        return SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
    }

    @Test
    void whatASenderSaidOnceOpensNoWindow() throws IOException {
        var to = placement(arena, 1, 64, 1, 2);
        var grant = Grant.draw();
        var received = new CompletableFuture<Outcome>();
        receiver.receive(grant, to, Deadline.in(SOON), received::complete);
        var proof = new GrantProof(grant);
        var nonce = GrantProof.nonce();
        ByteBuffer said;
        try (var channel = connect()) {
            said = PlayedEnd.sender(channel, grant, false);
        }
        for (var name : List.of(proof.name(), new GrantProof.Name(grant.high(), grant.low()))) {
            try (var channel = connect()) {
                HostWire.writeFully(channel, HostWire.hello(name, nonce));
                var number = HostWire.buffer(Integer.BYTES);
                if (!name.equals(proof.name())) {
                    assertThat(HostWire.readInt(channel, number))
                            .isEqualTo(ErrorCode.NOT_FOUND.wire());
                    continue;
                }
                assertThat(HostWire.readInt(channel, number)).isZero();
                HostWire.readFully(channel, HostWire.buffer(HostWire.CHALLENGE_BYTES));
                HostWire.writeFully(channel, said.rewind());
                assertThat(HostWire.readInt(channel, number))
                        .isEqualTo(ErrorCode.PEER_REFUSED.wire());
            }
        }
        assertThat(received).isNotDone();
        assertThat(to.parts().getFirst().segment().mismatch(arena.allocate(64 * BLOCKS)))
                .isEqualTo(-1);

        var from = placement(arena, 1, 64, 3, 4);
        fill(from, new Random(3));
        sender.send(receiver.address(), grant, from, Deadline.in(SOON), _ -> {}).commit();
        assertThat(await(received)).isEqualTo(new Outcome.Done(128));
        assertEqualBlocks(from, to);
    }

    /// A connection that has named a grant and is then silent gets no more time than any other, and
    /// blocks no peer.
    @Test
    void whoNamesAGrantAndProvesNothingKeepsTheWindowOpen() throws IOException {
        var from = placement(arena, 1, 64, 1);
        var to = placement(arena, 1, 64, 2);
        fill(from, new Random(4));
        var grant = Grant.draw();
        var received = new CompletableFuture<Outcome>();
        receiver.receive(grant, to, Deadline.in(SOON), received::complete);
        try (var silent = connect()) {
            var _ = PlayedEnd.sender(silent, grant, false);
            assertThat(receiver.handshakes()).isOne();
            sender.send(receiver.address(), grant, from, Deadline.in(SOON), _ -> {}).commit();
            assertThat(await(received)).isEqualTo(new Outcome.Done(64));
            assertEqualBlocks(from, to);
            silent.socket().setSoTimeout((int) SOON.toMillis());
            assertThat(silent.socket().getInputStream().read()).as("cut off").isEqualTo(-1);
        }
    }
}
