// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import static io.kvferry.backend.nccl.plane.PlaneRuns.SOON;
import static io.kvferry.backend.nccl.plane.PlaneRuns.assertEqualBlocks;
import static io.kvferry.backend.nccl.plane.PlaneRuns.await;
import static io.kvferry.backend.nccl.plane.PlaneRuns.code;
import static io.kvferry.backend.nccl.plane.PlaneRuns.fill;
import static io.kvferry.backend.nccl.plane.PlaneRuns.placement;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.PlaneRuns.Run;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.net.SilentNameServer;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

@ParameterizedClass
@EnumSource
class HostPlaneTest {
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

    @Test
    void bringsTheBlocksAndNothingElse() {
        for (long blockBytes : new long[] {1, 32, 4096, (1 << 20) + 512}) {
            var from = placement(arena, 3, blockBytes, 5, 6, 7, 1, 0, 63);
            var to = placement(arena, 3, blockBytes, 0, 2, 3, 4, 9, 8);
            fill(from, new Random(blockBytes));
            var run = new Run(sender, receiver, from, to);
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
        var from = placement(arena, 2, 4096, 1, 2);
        var to = placement(arena, 2, 4096, 3, 4);
        fill(from, new Random(1));
        var run = new Run(sender, receiver, from, to);
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
        var from = placement(arena, 1, 64, 1);
        var to = placement(arena, 1, 64, 2);
        fill(from, new Random(2));
        var run = new Run(sender, receiver, from, to);
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
        var from = placement(arena, 2, 4096, 1);
        var to = placement(arena, 2, 4096, 2);
        fill(from, new Random(3));
        var unused = new CompletableFuture<Outcome>();
        receiver.receive(Grant.draw(), to, Deadline.in(SOON), unused::complete).withdrawUnused();
        assertThat(code(await(unused))).isEqualTo(ErrorCode.TIMEOUT);

        var run = new Run(sender, receiver, from, to);
        run.sending.available(1);
        assertThat(run.sending.awaitSent(1, Deadline.in(SOON))).isTrue();
        run.window.withdrawUnused();
        run.sending.commit();
        assertThat(await(run.received)).isInstanceOf(Outcome.Done.class);
    }

    /// No name server answers.
    @Test
    void aSendingThatLooksItsReceiverUpEndsAtOnce() throws Exception {
        var from = placement(arena, 1, 64, 1);
        var receiver = "receiver" + SilentNameServer.SUFFIX + ":1";
        var limit = Deadline.in(Duration.ofMinutes(10));
        var aborted = new CompletableFuture<Outcome>();
        sender.send(receiver, Grant.draw(), from, limit, aborted::complete).abort();
        assertThat(code(aborted.get(30, TimeUnit.SECONDS))).isEqualTo(ErrorCode.CANCELLED);

        var closed = new CompletableFuture<Outcome>();
        sender.send(receiver, Grant.draw(), from, limit, closed::complete);
        CompletableFuture.runAsync(sender::close).get(30, TimeUnit.SECONDS);
        assertThat(code(closed.get(30, TimeUnit.SECONDS))).isEqualTo(ErrorCode.CLOSED);
    }

    @Test
    void nothingIsWrittenAfterAWithdrawal() {
        var from = placement(arena, 2, 1 << 18, 1, 2, 3);
        var to = placement(arena, 2, 1 << 18, 4, 5, 6);
        fill(from, new Random(3));
        var run = new Run(sender, receiver, from, to);
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
        var from = placement(arena, 2, 4096, 1, 2, 3);
        for (var to :
                List.of(
                        placement(arena, 2, 4096, 1, 2),
                        placement(arena, 1, 4096, 1, 2, 3),
                        placement(arena, 2, 2048, 1, 2, 3))) {
            var run = new Run(sender, receiver, from, to);
            run.sending.commit();
            assertThat(code(await(run.received))).isEqualTo(ErrorCode.PROTOCOL);
            assertThat(await(run.sent)).isInstanceOf(Outcome.Failed.class);
        }
        var less = placement(arena, 2, 4096, 1);
        var run = new Run(sender, receiver, less, from);
        run.sending.commit();
        assertThat(code(await(run.received))).isEqualTo(ErrorCode.PROTOCOL);
        assertThat(await(run.sent)).isInstanceOf(Outcome.Failed.class);
    }

    @Test
    void bothEndsGiveUpAtTheirDeadline() {
        var from = placement(arena, 1, 64, 1);
        var to = placement(arena, 1, 64, 1);
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
        var run = new Run(sender, receiver, placement(arena, 1, 64, 1), placement(arena, 1, 64, 2));
        var waiting = new CompletableFuture<Outcome>();
        receiver.receive(
                Grant.draw(), placement(arena, 1, 64, 3), Deadline.in(SOON), waiting::complete);
        sender.close();
        assertThat(code(await(run.sent))).isEqualTo(ErrorCode.CLOSED);
        receiver.close();
        assertThat(code(await(waiting))).isEqualTo(ErrorCode.CLOSED);
        assertThat(await(run.received)).isInstanceOf(Outcome.Failed.class);
    }

    @Test
    void aWindowThatIsBeingFilledTakesNoSecondSender() {
        var from = placement(arena, 2, 64, 1);
        var to = placement(arena, 2, 64, 2);
        fill(from, new Random(7));
        var run = new Run(sender, receiver, from, to);
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
}
