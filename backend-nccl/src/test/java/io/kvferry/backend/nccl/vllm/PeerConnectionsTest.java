// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.gpu.TensorLane;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.zmtp.DealerSocket;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Objects;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/// Peers that connect, without a communicator or several times, and that are lost.
class PeerConnectionsTest extends ExchangeCase {
    @Test
    void aPeerThatIsLostInTheMiddleFailsTheRequestAtOnceAndMayComeBack() {
        start();
        var ended = load(5, 1, 2);
        var vllm = new Caller(FAKE);
        assertThat(vllm.announce(0, TensorForm.Shape.FLASH_ATTN, 5)).isEqualTo(VllmMessage.PUT_GO);
        vllm.close();
        ended.assertFailed(ErrorCode.PEER_LOST);
        assertThat(new Caller(FAKE).announce(1, TensorForm.Shape.FLASH_ATTN, 5))
                .as("what still comes for it")
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
    }

    /// Nothing is known of its communicator any more when its connection goes.
    @Test
    void aPeerThatIsLostAfterAFailureFailsItsOtherRequestsAtOnce() {
        var terms = new Terms();
        terms.turn = SHORT;
        start(terms);
        var failed = load(5, 1, 2);
        var other = new Ended();
        exchange()
                .load(
                        false,
                        ID.replace("_0123456789", "_9876543210"),
                        PeerAddress.parse(FAKE).orElseThrow(),
                        5,
                        new int[] {3, 4},
                        Deadline.in(SOON.multipliedBy(2)),
                        other.outcome::complete);
        var vllm = new Caller(FAKE);
        assertThat(vllm.announce(0, TensorForm.Shape.FLASH_ATTN, 5)).isEqualTo(VllmMessage.PUT_GO);
        failed.assertFailed(ErrorCode.TIMEOUT);
        assertThat(vllm.announce(1, TensorForm.Shape.FLASH_ATTN, 5))
                .as("the communicator has gone")
                .isEqualTo(VllmMessage.PUT_NO_MEMORY);
        assertThat(other.outcome).isNotDone();
        vllm.close();
        other.assertFailed(ErrorCode.PEER_LOST);
    }

    /// As over a connection that was accepted before, and read after.
    @Test
    void aPeerThatConnectsWhileItClosesLeavesNothing() throws Exception {
        start();
        try (var own = lanes(SOON, SOON)) {
            var parts =
                    new VllmParts(
                            own,
                            Objects.requireNonNull(form),
                            ownChannel,
                            address,
                            new VllmParts.Limits(SOON, SOON, SOON));
            var listening = new ListeningEnd(parts, null, null);
            listening.close();
            var id = fakeLanes.uniqueId();
            listening.onRequest(asker("late"), new VllmMessage.New(id).encode());
            try (var _ = fakeLanes.open("late", id, 0)) {
                await("no communicator", () -> nccl.count(NcclDouble.Count.INITS) == 2);
                await("it stays", () -> nccl.count(NcclDouble.Count.LIVE_COMMS) == 1);
            }
        }
    }

    private static void await(String otherwise, BooleanSupplier condition) {
        var limit = Deadline.in(SOON);
        while (!condition.getAsBoolean()) {
            assertThat(limit.passed()).as(otherwise).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    /// Whichever is the last: of the others nothing stays.
    @Test
    void aPeerThatConnectsSeveralTimesAtOnceLeavesNothing() {
        start();
        var lanes = new ArrayList<TensorLane>();
        var sockets = new ArrayList<DealerSocket>();
        for (int i = 0; i < 8; i++) {
            sockets.add(fakeChannel.connect("tcp://" + address, FAKE, Deadline.in(SOON)));
        }
        for (var socket : sockets) {
            var id = fakeLanes.uniqueId();
            lanes.add(fakeLanes.open(address, id, 0));
            socket.send(new VllmMessage.New(id).encode());
        }
        for (var lane : lanes) {
            lane.close();
        }
        sockets.forEach(DealerSocket::close);
    }

    /// It waits for its communicator until it hears of it.
    @Test
    void aPeerHearsAtOnceThatThereAreTooManyCommunicators() {
        start();
        var own = Objects.requireNonNull(ownLanes);
        var others = new ArrayList<TensorLane>();
        assertThatThrownBy(
                        () -> {
                            while (true) {
                                others.add(own.open("other", own.uniqueId(), 0));
                            }
                        })
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.BACKPRESSURE));
        try (var socket = fakeChannel.connect("tcp://" + address, FAKE, Deadline.in(SOON))) {
            for (int i = 1; i <= 3; i++) {
                socket.send(new VllmMessage.New(fakeLanes.uniqueId()).encode());
                assertThat(socket.receive(Deadline.in(SOON))).isEqualTo(VllmMessage.PUT_NO_MEMORY);
            }
        }
        assertThat(exchange().takeRefusedPeers()).isEqualTo(3);
        assertThat(exchange().takeRefusedPeers()).isZero();
        others.forEach(TensorLane::close);
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aPeerThatMakesNoMoreCommunicatorsEndsWhatIsForItAtOnce(boolean gets) {
        start();
        var refusing =
                fakeChannel.listen(
                        "127.0.0.1", (asker, _) -> asker.answer(VllmMessage.PUT_NO_MEMORY));
        var peer = PeerAddress.parse(refusing.substring("tcp://".length())).orElseThrow();
        var ended = new Ended();
        var limit = Deadline.in(SOON.multipliedBy(2));
        if (gets) {
            exchange().load(true, ID, peer, 5, new int[] {1}, limit, ended.outcome::complete);
        } else {
            var put = exchange().put(ID, peer, new int[] {1}, limit, ended.outcome::complete);
            put.available(VllmTensors.LAYERS);
            put.commit();
        }
        ended.assertFailed(ErrorCode.BACKPRESSURE);
    }

    private static SideChannel.Asker asker(String identity) {
        return new SideChannel.Asker() {
            @Override
            public boolean answer(byte[] message) {
                return true;
            }

            @Override
            public String identity() {
                return identity;
            }
        };
    }

    @Test
    void withoutACommunicatorEverythingIsRefused() {
        var terms = new Terms();
        terms.setUp = Duration.ofMillis(300);
        start(terms);
        try (var socket = fakeChannel.connect("tcp://" + address, FAKE, Deadline.in(SOON))) {
            for (int i = 0; i < 2; i++) {
                socket.send(
                        new VllmMessage.Put(tensorId(0), new long[] {2, 1, 4, 2, 8}, "bfloat16")
                                .encode());
                assertThat(socket.receive(Deadline.in(SOON))).isEqualTo(VllmMessage.PUT_NO_MEMORY);
                socket.send(new VllmMessage.Get(tensorId(0)).encode());
                assertThat(VllmMessage.decode(socket.receive(Deadline.in(SOON))))
                        .isInstanceOf(VllmMessage.Missing.class);
                socket.send(new byte[] {1, 2, 3}); // not answered
                socket.send(new VllmMessage.New(fakeLanes.uniqueId()).encode());
            }
        }
    }
}
