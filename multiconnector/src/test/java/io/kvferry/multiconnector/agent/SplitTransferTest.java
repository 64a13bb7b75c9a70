// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.BackendCapabilities.Route;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.tck.faults.ScriptedBackend;
import io.kvferry.tck.faults.ScriptedBackend.Pending;

import org.junit.jupiter.api.Test;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// A transfer in pieces of two descriptors.
class SplitTransferTest {
    private static final int PIECE = 2;
    private static final int MOST = SplitTransfer.IN_FLIGHT;
    private static final TransferOutcome LOST =
            new TransferOutcome.Failed(new Failure(ErrorCode.PEER_LOST, "connection reset"));

    private ScriptedBackend backend = backend(Feature.CANCEL, Feature.PER_DESCRIPTOR_RESULTS);
    private Optional<OwnerLoop> loop = Optional.empty();

    /// Transfers end when a test says so.
    private static ScriptedBackend backend(Feature... features) {
        var route =
                new Route(Operation.WRITE, MemoryKind.HOST, MemoryKind.HOST, Route.Scope.LOOPBACK);
        return new ScriptedBackend(
                        "A",
                        new BackendCapabilities(
                                Set.of(route),
                                Set.of(features),
                                BackendCapabilities.Threading.CONCURRENT,
                                PIECE,
                                Long.MAX_VALUE,
                                1))
                .onSubmit(_ -> Optional.empty());
    }

    private Transfer submit(int pieces, Optional<byte[]> notification) {
        var list =
                DescriptorList.builder(MemoryKind.HOST)
                        .addStrided(0, 4096, 10, 16, pieces * PIECE)
                        .build();
        var options = OptionSchema.NONE.read("test", Map.of());
        var open =
                backend.open(
                        new BackendContext(
                                new PeerId("a", 1), options, new Deaf(), EventSink.NONE));
        return SplitTransfer.submit(
                new OpenBackend("A", 0, open, loop),
                new TransferRequest(
                        Operation.WRITE,
                        open.prepare(Optional.empty(), list),
                        open.prepare(Optional.empty(), list),
                        notification,
                        Deadline.in(Duration.ofSeconds(20)),
                        ""));
    }

    private static final class Deaf implements BackendContext.Sink {
        @Override
        public void notified(PeerId from, byte[] notification) {
            throw new AssertionError("nobody sends anything");
        }

        @Override
        public void peerChanged(PeerId peer, PeerState state, String why) {
            throw new AssertionError("there are no peers");
        }
    }

    private Transfer submit(int pieces) {
        return submit(pieces, Optional.empty());
    }

    private Pending piece(int index) {
        return backend.transfers().get(index);
    }

    private static void done(Pending piece) {
        piece.end(new TransferOutcome.Done(piece.request().local().descriptors().bytes(), true, 1));
    }

    private void refuseAll() {
        backend.onSubmit(_ -> {
            throw new KvFerryException(ErrorCode.BACKPRESSURE, "queue full");
        });
    }

    private List<Pending> inFlight() {
        return backend.transfers().stream().filter(one -> one.poll().isEmpty()).toList();
    }

    private static boolean quiet(Transfer transfer) {
        return transfer.quiesced().toCompletableFuture().isDone();
    }

    @Test
    void hasAFewPiecesInFlightAtATimeAndEndsWithTheLast() {
        var transfer = submit(MOST + 3);
        assertThat(backend.transfers()).hasSize(MOST);

        done(piece(5));
        assertThat(backend.transfers()).hasSize(MOST + 1);
        while (!inFlight().isEmpty()) {
            assertThat(transfer.poll()).isEmpty();
            assertThat(inFlight()).hasSizeLessThanOrEqualTo(MOST);
            done(inFlight().getLast());
        }
        assertThat(backend.transfers()).hasSize(MOST + 3);
        assertThat(transfer.poll())
                .hasValueSatisfying(end ->
                        assertThat(end)
                                .isInstanceOfSatisfying(
                                        TransferOutcome.Done.class,
                                        done ->
                                                assertThat(done.bytes())
                                                        .isEqualTo((MOST + 3) * PIECE * 10L)));
        assertThat(quiet(transfer)).isTrue();
    }

    @Test
    void coversEveryDescriptorOnce() {
        submit(3);

        assertThat(backend.transfers())
                .extracting(one -> one.request().remote().descriptors().address(0))
                .containsExactly(4096L, 4096L + 32, 4096L + 64);
        assertThat(backend.transfers())
                .allMatch(one -> one.request().local().descriptors().count() == PIECE);
    }

    @Test
    void sendsTheNotificationWithTheLastPieceOnceAllOthersAreDone() {
        submit(3, Optional.of(new byte[] {7}));
        assertThat(backend.transfers()).hasSize(2);

        done(piece(1));
        assertThat(backend.transfers()).hasSize(2);
        done(piece(0));
        assertThat(backend.transfers()).hasSize(3);
        assertThat(backend.transfers())
                .extracting(one -> one.request().notification().isPresent())
                .containsExactly(false, false, true);
    }

    @Test
    void doesNotAnnounceWhatFailed() {
        var transfer = submit(3, Optional.of(new byte[] {7}));
        done(piece(0));
        piece(1).end(LOST);

        assertThat(transfer.poll()).hasValueSatisfying(SplitTransferTest::isFailed);
        assertThat(backend.transfers()).hasSize(2);
    }

    private static void isFailed(TransferOutcome outcome) {
        assertThat(outcome).isInstanceOf(TransferOutcome.Failed.class);
    }

    @Test
    void stopsTheOthersWhenAPieceFails() {
        var transfer = submit(MOST + 3);
        piece(2).endBusy(LOST);

        assertThat(backend.transfers()).as("nothing more was posted").hasSize(MOST);
        assertThat(inFlight()).isEmpty();
        assertThat(failure(transfer).code()).isEqualTo(ErrorCode.PEER_LOST);
        assertThat(quiet(transfer)).as("the failed piece may still be writing").isFalse();
        piece(2).quiesce();
        assertThat(quiet(transfer)).isTrue();
    }

    @Test
    void endsWhenNoneIsInFlightWhereTheBackendCannotStopThem() {
        backend = backend(Feature.PER_DESCRIPTOR_RESULTS);
        var transfer = submit(MOST + 3);
        piece(2).end(LOST);
        inFlight().stream().skip(1).forEach(SplitTransferTest::done);
        assertThat(transfer.poll()).isEmpty();

        done(piece(0));
        assertThat(backend.transfers()).hasSize(MOST);
        assertThat(failure(transfer).code()).isEqualTo(ErrorCode.PEER_LOST);
    }

    private static Failure failure(Transfer transfer) {
        return ((TransferOutcome.Failed) transfer.poll().orElseThrow()).failure();
    }

    @Test
    void tellsOfEachDescriptorWhetherItMoved() {
        backend = backend(Feature.PER_DESCRIPTOR_RESULTS);
        var transfer = submit(4);
        done(piece(0));
        backend.transfers()
                .get(1)
                .end(
                        new TransferOutcome.Failed(
                                ((TransferOutcome.Failed) LOST).failure(),
                                new boolean[] {false, true}));
        piece(2).end(new TransferOutcome.Cancelled());
        done(piece(3));

        assertThat(((TransferOutcome.Failed) transfer.poll().orElseThrow()).descriptors())
                .containsExactly(true, true, false, true, false, false, true, true);
    }

    @Test
    void tellsNothingOfDescriptorsWhereTheBackendCannot() {
        backend = backend(Feature.CANCEL);
        var transfer = submit(2);
        done(piece(0));
        piece(1).end(LOST);

        assertThat(((TransferOutcome.Failed) transfer.poll().orElseThrow()).descriptors())
                .isEmpty();
    }

    @Test
    void cancelsWhatIsInFlightAndPostsNoMore() {
        var transfer = submit(MOST + 3);
        assertThat(transfer.cancel()).isTrue();

        assertThat(backend.transfers())
                .hasSize(MOST)
                .allMatch(one -> one.poll().orElseThrow() instanceof TransferOutcome.Cancelled);
        assertThat(transfer.poll()).contains(new TransferOutcome.Cancelled());
        assertThat(transfer.cancel()).isFalse();
    }

    @Test
    void stopsBeforeTheNextPieceWhereTheBackendCannotStopOne() {
        backend = backend();
        var transfer = submit(MOST + 3);
        assertThat(transfer.cancel()).isTrue();

        backend.transfers().forEach(SplitTransferTest::done);
        assertThat(backend.transfers()).hasSize(MOST);
        assertThat(transfer.poll()).contains(new TransferOutcome.Cancelled());
        assertThat(quiet(transfer)).isTrue();
    }

    @Test
    void cannotBeStoppedOnceAllIsPostedWhereTheBackendCannotStopAPiece() {
        backend = backend();
        var transfer = submit(3);
        assertThat(transfer.cancel()).isFalse();

        backend.transfers().forEach(SplitTransferTest::done);
        assertThat(transfer.poll().orElseThrow()).isInstanceOf(TransferOutcome.Done.class);
    }

    @Test
    void endsAsTimedOutWhenAPieceDoes() {
        var transfer = submit(2);
        piece(0).end(new TransferOutcome.TimedOut());

        assertThat(transfer.poll()).contains(new TransferOutcome.TimedOut());
    }

    @Test
    void throwsWhatTheBackendThrowsAtTheFirstPiece() {
        refuseAll();

        assertThatThrownBy(() -> submit(3)).isInstanceOf(KvFerryException.class);
    }

    @Test
    void waitsForAPieceToEndWhenTheQueueIsFull() {
        var transfer = submit(MOST + 2);
        refuseAll();
        done(piece(0));
        assertThat(backend.transfers()).hasSize(MOST);
        assertThat(transfer.poll()).isEmpty();

        backend.onSubmit(_ -> Optional.empty());
        done(piece(1));
        assertThat(backend.transfers()).hasSize(MOST + 2);
    }

    @Test
    void waitsForRoomWhenTheQueueIsFullAndNothingOfItsOwnIsInFlight() throws Exception {
        var transfer = submit(2, Optional.of(new byte[0]));
        refuseAll();
        done(piece(0));
        assertThat(transfer.poll()).isEmpty();

        backend.onSubmit(_ -> Optional.of(new TransferOutcome.Done(1, true, 1)));
        assertThat(transfer.completion().toCompletableFuture().get(20, TimeUnit.SECONDS))
                .isInstanceOf(TransferOutcome.Done.class);
        assertThat(backend.transfers()).hasSize(2);
    }

    @Test
    void canBeCancelledWhileItWaitsForRoom() throws Exception {
        var transfer = submit(2, Optional.of(new byte[0]));
        refuseAll();
        done(piece(0));
        assertThat(transfer.cancel()).isTrue();

        assertThat(transfer.completion().toCompletableFuture().get(20, TimeUnit.SECONDS))
                .isInstanceOf(TransferOutcome.Cancelled.class);
        transfer.quiesced().toCompletableFuture().get(20, TimeUnit.SECONDS);
    }

    @Test
    void canBeCancelledAtAnyMomentWhileTheNextPieceIsRefused() throws Exception {
        var random = new SplittableRandom(11);
        try (var other = Executors.newSingleThreadExecutor()) {
            for (int round = 0; round < 2_000; round++) {
                backend = backend(Feature.CANCEL);
                var transfer = submit(2, Optional.of(new byte[0]));
                refuseAll();
                long pause = random.nextInt(100_000);
                var ready = new AtomicInteger();
                var cancelled =
                        other.submit(() -> {
                            meet(ready);
                            long until = System.nanoTime() + pause;
                            while (System.nanoTime() < until) {
                                Thread.onSpinWait();
                            }
                            return transfer.cancel();
                        });
                meet(ready);
                done(piece(0));

                assertThat(cancelled.get(20, TimeUnit.SECONDS)).isTrue();
                assertThat(transfer.completion().toCompletableFuture().get(5, TimeUnit.SECONDS))
                        .as("round %d, cancelled after %d ns", round, pause)
                        .isInstanceOf(TransferOutcome.Cancelled.class);
            }
        }
    }

    private static void meet(AtomicInteger ready) {
        ready.incrementAndGet();
        while (ready.get() < 2) {
            Thread.onSpinWait();
        }
    }

    @Test
    void endsWhenItIsCancelledBetweenTwoPieces() throws Exception {
        loop = Optional.of(OwnerLoop.ofCaller("test", Duration.ofSeconds(20)));
        var transfer = submit(2, Optional.of(new byte[0]));
        Thread.ofPlatform().start(() -> done(piece(0))).join();
        assertThat(transfer.cancel()).isTrue();
        assertThat(transfer.poll()).isEmpty();

        loop.get().poll();
        assertThat(transfer.poll()).contains(new TransferOutcome.Cancelled());
        assertThat(quiet(transfer)).isTrue();
        assertThat(backend.transfers()).hasSize(1);
    }

    @Test
    void failsWhenTheLoopTakesNoMoreCalls() throws Exception {
        loop = Optional.of(OwnerLoop.ofCaller("test", Duration.ofSeconds(20)));
        var transfer = submit(2, Optional.of(new byte[0]));
        loop.get().close();
        Thread.ofPlatform().start(() -> done(piece(0))).join();

        assertThat(transfer.poll()).hasValueSatisfying(SplitTransferTest::isFailed);
        assertThat(quiet(transfer)).isTrue();
    }

    @Test
    void endsWhenTheLastPieceEndsBeforeTheCallThatPostedItReturns() {
        backend.onSubmit(_ -> Optional.of(new TransferOutcome.Done(1, true, 1)));

        assertThat(submit(20_000).poll().orElseThrow()).isInstanceOf(TransferOutcome.Done.class);
    }
}
