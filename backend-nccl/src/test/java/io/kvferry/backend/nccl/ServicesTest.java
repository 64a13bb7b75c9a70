// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.CacheShape;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.staging.BuddyStagingPool;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/// The two services of a rank, where what they call fails in the middle.
class ServicesTest {
    private static final CacheShape SHAPE = new CacheShape("aa", "LBHNC/1", "float32", 0, 1, "l");
    private static final PromptMark PROMPT = new PromptMark(1, 1);
    private static final long EPOCH = 7;
    private static final int BLOCKS = 4;
    private static final long BLOCK_BYTES = 4096;

    private final Arena arena = Arena.ofShared();
    private final SerialLoop loop = new SerialLoop("test-loop");
    private final SideChannel channel = new SideChannel("test-channel");
    private final PlayedPlane plane = new PlayedPlane();
    private final BuddyStagingPool pool = new BuddyStagingPool(1 << 20);
    private final Outbox outbox = new Outbox(0, () -> {});
    private final CacheBlocks cache = new CacheBlocks(List.of(region(BLOCKS, BLOCK_BYTES)));

    private KvRegion region(int blocks, long blockBytes) {
        var memory = new MemoryRange.Host(arena.allocate(blocks * blockBytes, 64));
        return new KvRegion("l", 0, 0, memory, blocks, blockBytes, blockBytes);
    }

    private RankParts parts(int rank) {
        return parts(rank, cache);
    }

    private RankParts parts(int rank, CacheBlocks cache) {
        var settings =
                P2pSettings.from(new P2pNcclConnectorProvider().options().read("t", Map.of()));
        return new RankParts(loop, channel, plane, cache, SHAPE, rank, EPOCH, settings, outbox);
    }

    @AfterEach
    void close() {
        channel.close();
        loop.close();
        assertThat(pool.available()).isEqualTo(pool.capacity());
        pool.close();
        arena.close();
    }

    /// Runs it on the loop, after all that was posted.
    private void onLoop(Runnable work) {
        CompletableFuture.runAsync(work, loop::post).orTimeout(50, TimeUnit.SECONDS).join();
    }

    private void drain() {
        onLoop(() -> {});
    }

    private List<Completion.Result> completed() {
        drain();
        return outbox.report(0, Payload.EMPTY).completions().stream()
                .map(Completion::result)
                .toList();
    }

    /// Remembers what it is told.
    private static final class Asker implements SideChannel.Asker {
        private final List<PeerMessage> heard = new ArrayList<>();

        @Override
        public boolean answer(byte[] message) {
            return heard.add(PeerMessage.decode(message));
        }
    }

    private static PeerMessage.Transfer transfer(String id) {
        return new PeerMessage.Transfer(id, 1, EPOCH, SHAPE, PROMPT, new int[] {1});
    }

    private static ErrorCode code(Completion.Result result) {
        assertThat(result).isInstanceOf(Completion.Failed.class);
        return ((Completion.Failed) result).failure().code();
    }

    // ---- receiving

    private ReceiveService receiving(Executor copies) {
        var staging = new StagedBlocks("test", pool, 1 << 20, cache);
        return new ReceiveService(parts(0), new StagedCopies(copies), staging);
    }

    private static P2pPlan.Load load(String transfer) {
        var nobody = new P2pPlan.Peer(List.of("127.0.0.1:9"), 1);
        var blocks = List.of(new int[] {2});
        return new P2pPlan.Load(TransferId.load("r", 0), transfer, nobody, PROMPT, blocks);
    }

    @Test
    void aCopyForWhichThereIsNoThreadEndsItsLoad() {
        var service =
                receiving(_ -> {
                    throw new OutOfMemoryError("no thread, says the test");
                });
        onLoop(() -> service.onOffer(new Asker(), new PeerMessage.Offer(transfer("t"))));
        plane.windows.getFirst().end(new Outcome.Done(BLOCK_BYTES));
        service.load(load("t"));
        drain(); // the end of a copy is posted
        assertThat(completed())
                .singleElement()
                .satisfies(result ->
                        assertThat(code(result))
                                .isEqualTo(Failure.of(new OutOfMemoryError()).code()));
    }

    /// From the end of the close on the memory may be anybody's.
    @Test
    void theEndWaitsForTheCopyThatRunsEvenWhereItIsInterrupted() {
        int blocks = 8;
        long blockBytes = 8 << 20;
        var region = region(blocks, blockBytes);
        var large = new CacheBlocks(List.of(region));
        var all = IntStream.range(0, blocks).toArray();
        var load =
                new P2pPlan.Load(
                        TransferId.load("r", 0),
                        "t",
                        new P2pPlan.Peer(List.of("127.0.0.1:9"), 1),
                        PROMPT,
                        List.of(all));
        try (var room = new BuddyStagingPool(blocks * blockBytes)) {
            var copies = new SerialLoop("test-copies");
            var staging = new StagedBlocks("test", room, room.capacity(), large);
            var service =
                    new ReceiveService(parts(0, large), new StagedCopies(copies::post), staging);
            var offered =
                    new PeerMessage.Transfer("t", 1, EPOCH, SHAPE, PROMPT, new int[] {blocks});
            onLoop(() -> service.onOffer(new Asker(), new PeerMessage.Offer(offered)));
            var window = plane.windows.getFirst();
            window.blocks.parts().getFirst().segment().fill((byte) 1);
            window.end(new Outcome.Done(blocks * blockBytes));
            service.load(load);
            while (last(region, 0) == 0) {
                Thread.onSpinWait();
            }
            Thread.currentThread().interrupt();
            copies.close();
            loop.close();
            service.free();
            assertThat(Thread.interrupted()).isTrue();
            assertThat(last(region, blocks - 1)).isEqualTo((byte) 1);
            assertThat(room.available()).isEqualTo(room.capacity());
        }
    }

    /// The last byte of a block.
    private static byte last(KvRegion region, int block) {
        return (byte)
                ValueLayout.JAVA_BYTE
                        .varHandle()
                        .getVolatile(
                                region.segment(), region.offset(block) + region.blockBytes() - 1);
    }

    // ---- sending

    /// As long as a sending may read blocks the engine keeps them.
    @Test
    void aSendingThatCannotBeToldToGoOnIsGivenUpAndItsEndIsAwaited() {
        var service = new SendService(parts(0));
        var hold = TransferId.save("r", 0);
        service.hold(new P2pPlan.Hold(hold, "t", PROMPT, List.of(new int[] {1})));
        plane.onCommit =
                () -> {
                    throw new OutOfMemoryError("says the test");
                };
        var pull = new PeerMessage.Pull(transfer("t"), Grant.draw(), "127.0.0.1:9");
        var asker = new Asker();
        onLoop(() -> service.onPull(asker, pull, 100));
        var broken = plane.sendings.getFirst();
        assertThat(broken.givenUp).isTrue();
        assertThat(asker.heard).isEmpty();
        service.revoke(hold);
        assertThat(completed()).isEmpty();
        broken.end(new Outcome.Failed(new Failure(ErrorCode.CANCELLED, "given up")));
        assertThat(completed()).containsExactly(new Completion.Revoked());
        assertThat(asker.heard).singleElement().isInstanceOf(PeerMessage.Refused.class);
    }

    /// As where a client gives two requests one transfer id: what is under way goes on.
    @Test
    void aHoldTakesNoPlaceOfAPushThatGoesOn() {
        var service = new SendService(parts(0));
        var nobody = new P2pPlan.Peer(List.of(), PeerMessage.ANY_EPOCH);
        var task =
                service.push(new P2pPlan.Push("r1", "t", nobody, PROMPT, List.of(new int[] {1})));
        var hold = TransferId.save("r2", 0);
        service.hold(new P2pPlan.Hold(hold, "t", PROMPT, List.of(new int[] {2})));
        assertThat(completed())
                .singleElement()
                .satisfies(result -> assertThat(code(result)).isEqualTo(ErrorCode.ALREADY_ACTIVE));
        var pull = new PeerMessage.Pull(transfer("t"), Grant.draw(), "127.0.0.1:9");
        onLoop(() -> service.onPull(new Asker(), pull, 100));
        task.commit();
        plane.sendings.getFirst().end(new Outcome.Done(BLOCK_BYTES));
        drain();
        assertThat(task.await(Deadline.in(Duration.ZERO))).isInstanceOf(Outcome.Done.class);
    }

    /// The step does not wait for what nobody can take.
    @Test
    void aPushToARankThatTheDecoderCannotHaveEndsAtOnce() {
        var service = new SendService(parts(1));
        var decoder = new P2pPlan.Peer(List.of("127.0.0.1:65535"), PeerMessage.ANY_EPOCH);
        var blocks = List.of(new int[] {1});
        for (int i = 0; i < 2; i++) {
            var task = service.push(new P2pPlan.Push("r", "t", decoder, PROMPT, blocks));
            drain();
            assertThat(task.await(Deadline.in(Duration.ZERO)))
                    .as("push %d", i)
                    .isInstanceOfSatisfying(
                            Outcome.Failed.class,
                            failed ->
                                    assertThat(failed.failure().code())
                                            .isEqualTo(ErrorCode.INVALID_REQUEST));
        }
    }
}
