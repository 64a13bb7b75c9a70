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

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;

/// What surrounds one service of a rank that a random script plays: the loop, a plane that moves
/// nothing, staging memory, and a peer on the loopback that answers as the seed says.
///
/// Threading: one thread.
abstract class PlayedRank implements AutoCloseable {
    private static final int BLOCKS = 64;
    private static final long BLOCK_BYTES = 4096;
    private static final int STEPS = 60;

    /// Few, so that most of what happens meets something.
    static final int TRANSFERS = 6;

    private static final int FAULT_IN = 25;
    private static final Duration SOON = Duration.ofSeconds(20);
    private static final long EPOCH = 7;
    private static final long STALE_EPOCH = 99;
    private static final CacheShape SHAPE = new CacheShape("aa", "LBHNC/1", "float32", 0, 1, "l");
    static final PromptMark PROMPT = new PromptMark(1, 1);
    private static final PromptMark OTHER_PROMPT = new PromptMark(1, 2);

    /// What the thread of the test draws from: other threads do not change a script.
    final Random script;

    /// What the loop and the peer draw from.
    private final Random faults;

    final SerialLoop loop = new SerialLoop("test-loop");
    final PlayedPlane plane = new PlayedPlane();
    final BuddyStagingPool pool = new BuddyStagingPool(1 << 20);
    final CacheBlocks cache;
    final String peerAddress;

    /// What has completed so far.
    final Map<TransferId, Completion.Result> completed = new HashMap<>();

    /// Whoever has asked the rank something.
    final List<Asker> askers = new ArrayList<>();

    private final Arena arena = Arena.ofShared();
    private final SideChannel channel = new SideChannel("test-channel");
    private final SideChannel peer = new SideChannel("test-peer");
    private final Outbox outbox = new Outbox(0, () -> {});
    private int nextBlock;
    private int nextRequest;

    PlayedRank(long seed) {
        script = new Random(seed);
        faults = new Random(~seed);
        var memory = new MemoryRange.Host(arena.allocate(BLOCKS * BLOCK_BYTES, 64));
        cache =
                new CacheBlocks(
                        List.of(new KvRegion("l", 0, 0, memory, BLOCKS, BLOCK_BYTES, BLOCK_BYTES)));
        plane.onBegin = this::begin;
        peerAddress = peer.listen("127.0.0.1", this::onRequest).substring("tcp://".length());
    }

    final RankParts parts() {
        var settings =
                P2pSettings.from(new P2pNcclConnectorProvider().options().read("t", Map.of()));
        return new RankParts(loop, channel, plane, cache, SHAPE, 0, EPOCH, settings, outbox);
    }

    // ---- the script

    /// Plays it to its end.
    final void play() {
        for (int i = 0; i < STEPS; i++) {
            step();
            if (script.nextBoolean()) {
                check();
            }
            if (oneIn(10)) {
                settle();
            }
        }
        finish();
    }

    /// The next thing that happens.
    abstract void step();

    /// Brings everything to its end.
    abstract void finish();

    /// Fails where a completion was told too early.
    abstract void checkCompletions();

    final void check() {
        drain();
        for (var completion : outbox.report(0, Payload.EMPTY).completions()) {
            assertThat(completed.put(completion.id(), completion.result()))
                    .as("%s is completed twice", completion.id())
                    .isNull();
        }
        checkCompletions();
    }

    final boolean oneIn(int count) {
        return script.nextInt(count) == 0;
    }

    final <T> T anyOf(List<T> of) {
        return of.get(script.nextInt(of.size()));
    }

    final String anyTransfer() {
        return "t" + script.nextInt(TRANSFERS);
    }

    final boolean hasBlock() {
        return nextBlock < BLOCKS;
    }

    /// A block that nothing else uses.
    final int takeBlock() {
        return nextBlock++;
    }

    final String newRequest() {
        return "r" + nextRequest++;
    }

    final Asker newAsker(String request) {
        var asker = new Asker(request);
        askers.add(asker);
        return asker;
    }

    /// Now and then of an epoch that is over, or of another prompt.
    final PeerMessage.Transfer transfer(String id, int blocks) {
        long epoch = oneIn(20) ? STALE_EPOCH : EPOCH;
        var prompt = oneIn(15) ? OTHER_PROMPT : PROMPT;
        return new PeerMessage.Transfer(id, 1, epoch, SHAPE, prompt, new int[] {blocks});
    }

    final PeerMessage.Release releaseOf(String transfer) {
        return new PeerMessage.Release(transfer, 1, EPOCH);
    }

    /// One transfer of the plane ends in one of the ways that it can.
    final void endOne() {
        var open = plane.open();
        if (open.isEmpty()) {
            return;
        }
        var transfer = anyOf(open);
        if (transfer.givenUp && !oneIn(4)) {
            transfer.end(failed(ErrorCode.CANCELLED));
        } else if (oneIn(3)) {
            transfer.end(failed(script.nextBoolean() ? ErrorCode.PEER_LOST : ErrorCode.TIMEOUT));
        } else if (transfer.committed || plane.windows.contains(transfer)) {
            transfer.end(new Outcome.Done(transfer.blocks.bytes()));
        }
    }

    static Outcome failed(ErrorCode code) {
        return new Outcome.Failed(says(code));
    }

    private static Failure says(ErrorCode code) {
        return new Failure(code, "says the test");
    }

    static boolean touches(PlayedPlane.Transfer transfer, int block) {
        for (var part : transfer.blocks.parts()) {
            for (int each : part.blocks()) {
                if (each == block) {
                    return true;
                }
            }
        }
        return false;
    }

    // ---- other threads

    /// Whether a fault is to be; on any thread but that of the test.
    final boolean fault() {
        return faults.nextInt(FAULT_IN) == 0;
    }

    private void begin(PlayedPlane.Transfer transfer) {
        if (fault()) {
            throw new OutOfMemoryError("says the test");
        }
        if (fault()) {
            transfer.end(failed(ErrorCode.BACKPRESSURE));
        }
    }

    private void onRequest(SideChannel.Asker asker, byte[] request) {
        var answer =
                switch (PeerMessage.decode(request)) {
                    case PeerMessage.Pull _ -> answerToPull();
                    case PeerMessage.Offer offer -> Optional.of(answerToOffer(offer));
                    default -> Optional.of(new PeerMessage.Sent(1, 0));
                };
        answer.ifPresent(message -> asker.answer(message.encode()));
    }

    private Optional<PeerMessage> answerToPull() {
        return switch (faults.nextInt(6)) {
            case 0 -> Optional.empty();
            case 1 -> Optional.of(new PeerMessage.Refused(1, says(ErrorCode.BACKPRESSURE)));
            case 2 -> Optional.of(new PeerMessage.Refused(1, says(ErrorCode.LEASE_EXPIRED)));
            case 3 -> Optional.of(new PeerMessage.Refused(1, says(ErrorCode.PEER_LOST)));
            default -> Optional.of(new PeerMessage.Sent(1, 1));
        };
    }

    private PeerMessage answerToOffer(PeerMessage.Offer offer) {
        return faults.nextBoolean()
                ? new PeerMessage.Granted(
                        1, Grant.draw(), "127.0.0.1:9", offer.transfer().counts(), 1)
                : new PeerMessage.Refused(1, says(ErrorCode.NO_MEMORY));
    }

    /// Remembers what it is told.
    static final class Asker implements SideChannel.Asker {
        final String request;
        final List<PeerMessage> heard = new CopyOnWriteArrayList<>();
        boolean gone;

        private Asker(String request) {
            this.request = request;
        }

        @Override
        public boolean answer(byte[] message) {
            return heard.add(PeerMessage.decode(message));
        }
    }

    // ---- waiting

    /// Waits for all that was posted, and for what that posts.
    final void drain() {
        for (int i = 0; i < 3; i++) {
            loops().forEach(PlayedRank::drain);
        }
    }

    /// Those of the rank, in the order in which they post to each other.
    List<SerialLoop> loops() {
        return List.of(loop);
    }

    private static void drain(SerialLoop loop) {
        CompletableFuture.runAsync(() -> {}, loop::post)
                .orTimeout(SOON.toSeconds(), TimeUnit.SECONDS)
                .join();
    }

    /// Waits for an answer of the peer, so that it has had the time for others, and for what comes
    /// of it.
    final void settle() {
        var answered = new CompletableFuture<Void>();
        var ask = new Reply(_ -> answered.complete(null));
        channel.exchange(
                peerAddress, releaseOf("none").encode(), SOON, SOON, SideChannel.Turn.SHORT, ask);
        answered.orTimeout(SOON.toSeconds(), TimeUnit.SECONDS).join();
        check();
    }

    static Deadline soon() {
        return Deadline.in(SOON);
    }

    @Override
    public void close() {
        channel.close();
        peer.close();
        loop.close();
        pool.close();
        arena.close();
    }
}
