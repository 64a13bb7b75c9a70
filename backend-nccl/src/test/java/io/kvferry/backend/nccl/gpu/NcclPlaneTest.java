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
import io.kvferry.backend.nccl.plane.PlaneRuns.Run;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;

class NcclPlaneTest extends NcclPlaneCase {
    @Test
    void bringsTheBlocksAndNothingElse() {
        nccl.set(Knob.INIT_POLLS, 3);
        nccl.set(Knob.GROUP_POLLS, 3);
        for (long blockBytes : new long[] {1, 32, 4096, SLOT + 512}) {
            var to = placement(3, blockBytes, 0, 2, 3, 4, 9, 8);
            run(filled(3, blockBytes, 5, 6, 7, 1, 0, 31), to).assertArrives();
            for (var part : to.parts()) {
                assertThat(part.segment().get(ValueLayout.JAVA_BYTE, part.strideBytes()))
                        .as("block 1, which is none of the window")
                        .isZero();
            }
        }
        assertThat(nccl.count(Count.IDS)).as("one communicator for all").isEqualTo(1);
        assertThat(nccl.count(Count.LARGEST_GROUP)).as("layers in one group").isEqualTo(3);
    }

    @Test
    void movesInBothDirectionsOverOneCommunicator() {
        var runs = new ArrayList<Run>();
        for (int i = 0; i < 8; i++) {
            var from = filled(2, 60_000 + i, 1, 2, 3, 4);
            var to = placement(2, 60_000 + i, 5, 6, 7, 8);
            runs.add(
                    i % 2 == 0
                            ? new Run(sender, receiver, from, to)
                            : new Run(receiver, sender, from, to));
        }
        runs.forEach(Run::assertArrives);
        assertThat(nccl.count(Count.INITS)).isEqualTo(2);
    }

    /// The first of many transfers to a peer makes its communicator, all others use it.
    @Test
    @Timeout(300)
    @DisplayName("P6 one communicator for a thousand tensors")
    void oneCommunicatorForAThousandTensors() {
        for (int i = 0; i < 20; i++) {
            run(filled(50, 64, i), placement(50, 64, 31 - i)).assertArrives();
        }
        assertThat(nccl.count(Count.IDS)).isEqualTo(1);
        assertThat(nccl.count(Count.INITS)).isEqualTo(2);
        assertThat(nccl.count(Count.SENDS)).isEqualTo(20 * 50);
        assertThat(nccl.count(Count.LIVE_COMMS)).isEqualTo(2);
    }

    /// Both sides dial at the same time, again and again: one communicator comes of it.
    @Test
    @DisplayName("P7 both sides dial at once: one communicator, and no deadlock")
    @Timeout(300)
    void simultaneousConnectsEndInOneCommunicator() {
        for (int round = 0; round < 15; round++) {
            var a = plane(SOON);
            var b = plane(SOON);
            nccl.reset();
            var there = new Run(a, b, filled(1, 512, 1), placement(1, 512, 2));
            var back = new Run(b, a, filled(1, 256, 1), placement(1, 256, 2));
            there.assertArrives();
            back.assertArrives();
            assertThat(nccl.count(Count.IDS)).isEqualTo(1);
            assertThat(nccl.count(Count.INITS)).isEqualTo(2);
            assertThat(nccl.count(Count.LIVE_COMMS)).isEqualTo(2);
            a.close();
            b.close();
            nccl.assertClean();
        }
    }

    @Test
    void sendsWhatIsAvailableAndIsTakenOnlyWhenCommitted() {
        var run = run(filled(2, 4096, 1, 2), placement(2, 4096, 3, 4));
        run.sending.available(1);
        assertThat(run.sending.awaitSent(1, Deadline.in(SOON))).isTrue();
        assertThat(run.sending.awaitSent(2, Deadline.in(Duration.ofMillis(50)))).isFalse();
        run.sending.available(2);
        assertThat(run.sending.awaitSent(2, Deadline.in(SOON))).isTrue();
        assertThat(run.received).isNotDone();
        run.sending.abort();
        assertThat(code(await(run.sent))).isEqualTo(ErrorCode.CANCELLED);
        assertThat(code(await(run.received))).isEqualTo(ErrorCode.PEER_LOST);
        run(filled(1, 64, 1), placement(1, 64, 2)).assertArrives();
        assertThat(nccl.count(Count.IDS)).as("the link outlives it").isEqualTo(1);
    }

    @Test
    void aGrantIsGoodOnceAndOnlyWhileTheWindowIsOpen() {
        var never = new CompletableFuture<Outcome>();
        var from = filled(1, 64, 1);
        sender.send(receiver.address(), Grant.draw(), from, Deadline.in(SOON), never::complete)
                .commit();
        assertThat(code(await(never))).isEqualTo(ErrorCode.NOT_FOUND);
        assertThat(nccl.count(Count.IDS)).as("strangers get no communicator").isZero();

        var to = placement(1, 64, 2);
        var run = run(from, to);
        run.assertArrives();
        var again = new CompletableFuture<Outcome>();
        sender.send(receiver.address(), run.grant, from, Deadline.in(SOON), again::complete)
                .commit();
        assertThat(code(await(again))).isEqualTo(ErrorCode.NOT_FOUND);

        var unused = new CompletableFuture<Outcome>();
        receiver.receive(Grant.draw(), to, Deadline.in(SOON), unused::complete).withdrawUnused();
        assertThat(code(await(unused))).isEqualTo(ErrorCode.TIMEOUT);
        var begun = run(filled(2, 64, 1), placement(2, 64, 2));
        begun.sending.available(1);
        assertThat(begun.sending.awaitSent(1, Deadline.in(SOON))).isTrue();
        begun.window.withdrawUnused();
        begun.assertArrives();
    }

    @Test
    @Timeout(300)
    void nothingIsWrittenAfterAWithdrawal() {
        nccl.set(Knob.DELAY_US, 500);
        for (int round = 0; round < 10; round++) {
            var from = filled(3, 1 << 18, 1, 2, 3, 4);
            var to = placement(3, 1 << 18, 4, 5, 6, 7);
            var run = run(from, to);
            run.sending.available(3);
            assertThat(run.sending.awaitSent(1 + round % 2, Deadline.in(SOON))).isTrue();
            run.window.withdraw();
            assertThat(code(await(run.received))).isEqualTo(ErrorCode.CANCELLED);
            for (var part : to.parts()) {
                part.segment().fill((byte) 0x55);
            }
            run.sending.commit();
            assertThat(await(run.sent)).isInstanceOf(Outcome.Failed.class);
            var quiet = new byte[(int) to.bytes()];
            Arrays.fill(quiet, (byte) 0x55);
            assertThat(Arrays.equals(contents(to), quiet)).isTrue();
        }
        assertThat(nccl.count(Count.IDS)).isEqualTo(1);
    }

    @Test
    void aTransferOfAnotherSizeIsRefused() {
        var from = filled(2, 4096, 1, 2, 3);
        for (var to :
                List.of(
                        placement(2, 4096, 1, 2),
                        placement(1, 4096, 1, 2, 3),
                        placement(2, 2048, 1, 2, 3),
                        placement(2, 4096, 1, 2, 3, 4))) {
            var run = run(from, to);
            run.sending.commit();
            assertThat(code(await(run.received))).isEqualTo(ErrorCode.PROTOCOL);
            assertThat(code(await(run.sent))).isEqualTo(ErrorCode.PROTOCOL);
        }
        run(from, placement(2, 4096, 1, 2, 3)).assertArrives();
    }

    @Test
    void closingEndsWhatIsOpenAndEndsIdleCommunicatorsInOrder() {
        run(filled(1, 64, 1), placement(1, 64, 2)).assertArrives();
        var run = run(filled(1, 64, 1), placement(1, 64, 2));
        var waiting = new CompletableFuture<Outcome>();
        receiver.receive(Grant.draw(), placement(1, 64, 3), Deadline.in(SOON), waiting::complete);
        sender.close();
        assertThat(code(await(run.sent))).isEqualTo(ErrorCode.CLOSED);
        receiver.close();
        assertThat(code(await(waiting))).isEqualTo(ErrorCode.CLOSED);
        assertThat(await(run.received)).isInstanceOf(Outcome.Failed.class);
        assertThat(nccl.count(Count.DESTROYS)).isPositive();
        var late = new CompletableFuture<Outcome>();
        sender.send(receiver.address(), Grant.draw(), run.from, Deadline.in(SOON), late::complete);
        assertThat(code(await(late))).isEqualTo(ErrorCode.CLOSED);
    }
}
