// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.toolkit.bounded.SerialLoop;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongFunction;

/// The two services of a rank with all actions of the engine, the peers and the plane, in random
/// order. The oracle: every hold and every load completes once, and never while the plane may use
/// its blocks; every push ends; every request gets at most one answer; no staging memory is leaked.
class ServicesInterleavingTest {
    private static final int SEEDS = 100;

    @Test
    @Timeout(600)
    void aSenderKeepsItsInvariants() {
        play(Sender::new, 0, SEEDS);
    }

    @Test
    @Timeout(600)
    void aReceiverKeepsItsInvariants() {
        play(Receiver::new, 0, SEEDS);
    }

    @Tag("soak")
    @Test
    @Timeout(7200)
    void aSenderKeepsItsInvariantsForLong() {
        playMany(Sender::new);
    }

    @Tag("soak")
    @Test
    @Timeout(7200)
    void aReceiverKeepsItsInvariantsForLong() {
        playMany(Receiver::new);
    }

    private static void playMany(LongFunction<PlayedRank> rank) {
        play(
                rank,
                Long.getLong("kvferry.soak.first_seed", 1000),
                Long.getLong("kvferry.soak.seeds", 2000));
    }

    private static void play(LongFunction<PlayedRank> rank, long first, long count) {
        for (long seed = first; seed < first + count; seed++) {
            try (var played = rank.apply(seed)) {
                played.play();
            } catch (RuntimeException | Error e) {
                throw new AssertionError("seed " + seed, e);
            }
        }
    }

    /// Pushes, holds, pulls and releases of a few transfers.
    private static final class Sender extends PlayedRank {
        private final SendService service = new SendService(parts());
        private final List<PushTask> inStep = new ArrayList<>();
        private final List<PushTask> afterStep = new ArrayList<>();

        /// And the block of each.
        private final Map<TransferId, Integer> holds = new LinkedHashMap<>();

        private Sender(long seed) {
            super(seed);
        }

        @Override
        void step() {
            switch (script.nextInt(10)) {
                case 0 -> push();
                case 1 -> hold();
                case 2 -> withdraw();
                case 3 -> revoke();
                case 4, 5 -> pull();
                case 6 -> release();
                case 7 -> leave();
                case 8 -> endStep();
                default -> endOne();
            }
        }

        private void push() {
            if (hasBlock()) {
                var addresses = script.nextBoolean() ? List.of(peerAddress) : List.<String>of();
                var decoder = new P2pPlan.Peer(addresses, PeerMessage.ANY_EPOCH);
                var blocks = List.of(new int[] {takeBlock()});
                inStep.add(
                        service.push(
                                new P2pPlan.Push(
                                        newRequest(), anyTransfer(), decoder, PROMPT, blocks)));
            }
        }

        private void hold() {
            if (hasBlock()) {
                var id = TransferId.save(newRequest(), 0);
                int block = takeBlock();
                holds.put(id, block);
                service.hold(
                        new P2pPlan.Hold(id, anyTransfer(), PROMPT, List.of(new int[] {block})));
            }
        }

        private void withdraw() {
            if (oneIn(4)) {
                service.withdraw(new P2pPlan.Withdrawal(anyTransfer(), "says the test"));
            }
        }

        private void revoke() {
            if (!holds.isEmpty()) {
                service.revoke(anyOf(List.copyOf(holds.keySet())));
            }
        }

        private void pull() {
            var transfer = anyTransfer();
            var asker = newAsker("pull of " + transfer);
            var pull = new PeerMessage.Pull(transfer(transfer, 1), Grant.draw(), "127.0.0.1:9");
            loop.post(() -> service.onPull(asker, pull, 100));
        }

        private void release() {
            if (oneIn(3)) {
                var transfer = anyTransfer();
                var asker = newAsker("release of " + transfer);
                loop.post(() -> service.onRelease(asker, releaseOf(transfer)));
            }
        }

        private void leave() {
            if (!askers.isEmpty()) {
                var asker = anyOf(askers);
                if (!asker.gone) {
                    asker.gone = true;
                    loop.post(() -> service.onGone(asker));
                }
            }
        }

        /// As the step of a push ends it.
        private void endStep() {
            if (inStep.isEmpty()) {
                return;
            }
            var push = inStep.remove(script.nextInt(inStep.size()));
            if (!push.hasTaker() || oneIn(3)) {
                service.giveUp(push);
            } else {
                push.commit();
                if (script.nextBoolean()) {
                    push.giveUp();
                    service.tooSlow(push);
                }
            }
            afterStep.add(push);
        }

        @Override
        void finish() {
            inStep.forEach(service::giveUp);
            afterStep.addAll(inStep);
            holds.keySet().forEach(service::revoke);
            check();
            for (var limit = soon(); !isOver() && !limit.passed(); check()) {
                for (var sending : plane.sendings) {
                    sending.end(failed(sending.givenUp ? ErrorCode.CANCELLED : ErrorCode.TIMEOUT));
                }
            }
            assertThat(plane.windows).isEmpty();
            assertThat(completed.keySet()).containsAll(holds.keySet());
            assertThat(afterStep).allSatisfy(push -> assertThat(hasEnded(push)).isTrue());
            assertThat(askers)
                    .allSatisfy(asker ->
                            assertThat(asker.heard).as(asker.request).hasSizeLessThanOrEqualTo(1));
        }

        private boolean isOver() {
            return completed.keySet().containsAll(holds.keySet())
                    && afterStep.stream().allMatch(Sender::hasEnded);
        }

        private static boolean hasEnded(PushTask push) {
            return push.await(Deadline.in(Duration.ZERO)) != null;
        }

        @Override
        void checkCompletions() {
            holds.forEach((hold, block) -> {
                if (completed.containsKey(hold)) {
                    assertThat(plane.sendings)
                            .as("%s is over: %s", hold, completed.get(hold))
                            .noneMatch(sending -> sending.isOpen() && touches(sending, block));
                }
            });
        }
    }

    /// Offers, loads, revocations and releases of a few transfers; copies on a loop of their own.
    private static final class Receiver extends PlayedRank {
        private final SerialLoop copies = new SerialLoop("test-copies");
        private final ReceiveService service =
                new ReceiveService(
                        parts(),
                        new StagedCopies(this::copy),
                        new StagedBlocks("test", pool, pool.capacity(), cache));

        /// And the block of each.
        private final Map<TransferId, Integer> loads = new LinkedHashMap<>();

        private Receiver(long seed) {
            super(seed);
        }

        private void copy(Runnable work) {
            if (fault()) {
                throw new OutOfMemoryError("says the test");
            }
            copies.post(work);
        }

        @Override
        List<SerialLoop> loops() {
            return List.of(loop, copies, loop);
        }

        @Override
        void step() {
            switch (script.nextInt(9)) {
                case 0, 1 -> offer();
                case 2, 3 -> load();
                case 4 -> revoke();
                case 5 -> release();
                case 6 -> leaveUnused();
                default -> endOne();
            }
        }

        private void offer() {
            var transfer = anyTransfer();
            var asker = newAsker("offer of " + transfer);
            var offer = new PeerMessage.Offer(transfer(transfer, 1 + script.nextInt(2)));
            loop.post(() -> service.onOffer(asker, offer));
        }

        private void load() {
            if (hasBlock()) {
                var id = TransferId.load(newRequest(), 0);
                int block = takeBlock();
                loads.put(id, block);
                var prefiller = oneIn(10) ? P2pPlan.Peer.NONE : prefiller();
                var blocks = List.of(new int[] {block});
                service.load(new P2pPlan.Load(id, anyTransfer(), prefiller, PROMPT, blocks));
            }
        }

        private P2pPlan.Peer prefiller() {
            return new P2pPlan.Peer(List.of(peerAddress), 1);
        }

        private void revoke() {
            if (!loads.isEmpty()) {
                service.revoke(anyOf(List.copyOf(loads.keySet())));
            }
        }

        private void release() {
            if (oneIn(4)) {
                service.release(new P2pPlan.Release(anyTransfer(), prefiller()));
            }
        }

        private void leaveUnused() {
            var grants =
                    askers.stream()
                            .flatMap(asker -> asker.heard.stream())
                            .filter(PeerMessage.Granted.class::isInstance)
                            .map(answer -> ((PeerMessage.Granted) answer).grant())
                            .toList();
            if (!grants.isEmpty()) {
                var unused = new PeerMessage.Unused(anyTransfer(), 1, anyOf(grants));
                var asker = newAsker("unused of " + unused.id());
                loop.post(() -> service.onUnused(asker, unused));
            }
        }

        @Override
        void finish() {
            settle();
            var limit = soon();
            while (!completed.keySet().containsAll(loads.keySet()) && !limit.passed()) {
                plane.windows.forEach(this::end);
                settle();
            }
            assertThat(completed.keySet()).containsAll(loads.keySet());
            for (int i = 0; i < TRANSFERS; i++) {
                service.release(new P2pPlan.Release("t" + i, prefiller()));
            }
            while (pool.available() < pool.capacity() && !limit.passed()) {
                drain();
                for (var window : plane.windows) {
                    if (window.givenUp) {
                        window.end(failed(ErrorCode.CANCELLED));
                    }
                }
            }
            assertThat(pool.available()).as("staging").isEqualTo(pool.capacity());
            assertThat(plane.sendings).isEmpty();
            assertThat(askers)
                    .allSatisfy(asker -> assertThat(asker.heard).as(asker.request).hasSize(1));
        }

        private void end(PlayedPlane.Transfer window) {
            window.end(
                    window.givenUp || script.nextBoolean()
                            ? failed(ErrorCode.CANCELLED)
                            : new Outcome.Done(window.blocks.bytes()));
        }

        @Override
        void checkCompletions() {
            loads.forEach((load, block) -> {
                if (completed.containsKey(load)) {
                    assertThat(plane.windows)
                            .as("%s is over: %s", load, completed.get(load))
                            .noneMatch(window ->
                                    window.isOpen() && isInCache(window) && touches(window, block));
                }
            });
        }

        private boolean isInCache(PlayedPlane.Transfer window) {
            var segment = window.blocks.parts().getFirst().segment();
            return segment.address() == cache.regions().getFirst().segment().address();
        }

        @Override
        public void close() {
            copies.close();
            service.free();
            super.close();
        }
    }
}
