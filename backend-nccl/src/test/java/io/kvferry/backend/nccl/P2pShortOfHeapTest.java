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
import io.kvferry.toolkit.memory.FullHeap;
import io.kvferry.toolkit.staging.BuddyStagingPool;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// What happens to a rank, in a process whose heap has some bytes left, from none to enough, so
/// that allocations of the loop fail one after the other. Whichever fails, every load and every
/// hold ends once, nothing is written into the blocks of a load that has ended, and nothing of the
/// rank is lost.
class P2pShortOfHeapTest {
    @TempDir Path root;

    /// Some of the calls in which something was lost once.
    @Test
    void losesNothingWhicheverAllocationFails() throws Exception {
        sweep(112, Call.LOADED, Call.HOLD, Call.HOLD_RELEASED, Call.PUSH_SENT);
    }

    @Tag("soak")
    @ParameterizedTest
    @EnumSource(Call.class)
    void losesNothingInSmallSteps(Call call) throws Exception {
        sweep(48, call);
    }

    private void sweep(int step, Call... calls) throws Exception {
        var arguments = new ArrayList<>(List.of(Integer.toString(step)));
        Arrays.stream(calls).map(Call::name).forEach(arguments::add);
        assertThat(
                        FullHeap.run(
                                root,
                                16,
                                Duration.ofSeconds(240),
                                Child.class,
                                arguments.toArray(String[]::new)))
                .contains("nothing is lost");
    }

    /// What the loop has to do.
    enum Call {
        // ---- receiving

        OFFER {
            @Override
            void queue(Child child) {
                child.offers();
            }

            @Override
            void check(Child child) {
                if (child.asker.granted) {
                    return;
                }
                for (var window :
                        child.plane.windows.subList(child.others, child.plane.windows.size())) {
                    assertThat(window.givenUp).as("a window that nobody knows is open").isTrue();
                }
            }
        },
        PUSHED {
            @Override
            void prepare(Child child) {
                child.offers();
            }

            @Override
            void queue(Child child) {
                child.fills(child.windows);
            }
        },
        PUSHED_AND_NOBODY_COMES {
            @Override
            void prepare(Child child) {
                child.isPushed();
            }

            @Override
            void work() {
                LockSupport.parkNanos(Child.STAGED_LIMIT.toNanos() * 4 / 3);
            }

            @Override
            boolean isReleased() {
                return false;
            }
        },
        PUSHED_FOR_A_LOAD {
            @Override
            void prepare(Child child) {
                child.offers();
                child.loads();
            }

            @Override
            void queue(Child child) {
                child.fills(child.windows);
            }
        },
        PUSH_FAILED_FOR_A_LOAD {
            @Override
            void prepare(Child child) {
                child.offers();
                child.loads();
            }

            @Override
            void queue(Child child) {
                child.windows.forEach(window -> window.end(failed(ErrorCode.PEER_LOST)));
            }
        },
        LOAD_OF_WHAT_IS_PUSHED {
            @Override
            void prepare(Child child) {
                child.offers();
            }

            @Override
            void queue(Child child) {
                child.loads();
            }
        },
        LOAD_OF_WHAT_WAS_PUSHED {
            @Override
            void prepare(Child child) {
                child.isPushed();
            }

            @Override
            void queue(Child child) {
                child.loads();
            }
        },
        LOAD {
            @Override
            void queue(Child child) {
                child.loads();
            }
        },
        LOADED {
            @Override
            void prepare(Child child) {
                child.loads();
            }

            @Override
            void queue(Child child) {
                child.fills(child.windows);
            }
        },
        PULL_FAILED {
            @Override
            void prepare(Child child) {
                child.loads();
            }

            @Override
            void queue(Child child) {
                child.windows.forEach(window -> window.end(failed(ErrorCode.PEER_LOST)));
            }
        },
        LOAD_REVOKED {
            @Override
            void prepare(Child child) {
                child.offers();
                child.loads();
            }

            @Override
            void queue(Child child) {
                child.receives.revoke(child.load.id());
            }
        },
        PULL_REVOKED {
            @Override
            void prepare(Child child) {
                child.loads();
            }

            @Override
            void queue(Child child) {
                child.receives.revoke(child.load.id());
            }
        },
        PUSH_NOT_WANTED {
            @Override
            void prepare(Child child) {
                child.isPushed();
            }

            @Override
            void queue(Child child) {
                child.releases();
            }
        },

        // ---- sending

        HOLD {
            @Override
            void queue(Child child) {
                child.holds();
            }
        },
        HOLD_THAT_WAS_PULLED {
            @Override
            void prepare(Child child) {
                child.pulls();
            }

            @Override
            void queue(Child child) {
                child.holds();
            }
        },
        PULL_OF_WHAT_COMES {
            @Override
            void queue(Child child) {
                child.pulls();
            }
        },
        PULL_OF_WHAT_IS_HELD {
            @Override
            void prepare(Child child) {
                child.holds();
            }

            @Override
            void queue(Child child) {
                child.pulls();
            }
        },
        SENT {
            @Override
            void prepare(Child child) {
                child.holds();
                child.pulls();
            }

            @Override
            void queue(Child child) {
                child.sendings.forEach(sending -> sending.end(new Outcome.Done(Child.BLOCK_BYTES)));
            }
        },
        NOT_SENT {
            @Override
            void prepare(Child child) {
                child.holds();
                child.pulls();
            }

            @Override
            void queue(Child child) {
                child.sendings.forEach(sending -> sending.end(failed(ErrorCode.PEER_LOST)));
            }
        },
        HOLD_REVOKED {
            @Override
            void prepare(Child child) {
                child.holds();
            }

            @Override
            void queue(Child child) {
                child.sends.revoke(child.hold.id());
            }
        },
        HOLD_RELEASED {
            @Override
            void prepare(Child child) {
                child.holds();
            }

            @Override
            void queue(Child child) {
                var release = new PeerMessage.Release(Child.TRANSFER, 1, PeerMessage.ANY_EPOCH);
                child.loop.post(() -> child.sends.onRelease(child.asker, release));
            }

            @Override
            void check(Child child) {
                assertThat(child.completed).as("the hold has ended").containsKey(child.hold.id());
            }
        },
        WITHDRAWN {
            @Override
            void prepare(Child child) {
                child.pulls();
            }

            @Override
            void queue(Child child) {
                child.sends.withdraw(new P2pPlan.Withdrawal(Child.TRANSFER, "says the test"));
            }
        },
        DECODER_GONE {
            @Override
            void prepare(Child child) {
                child.pulls();
            }

            @Override
            void queue(Child child) {
                child.sends.gone(child.asker);
            }

            @Override
            void check(Child child) {
                assertThat(child.sends.waitingBytes()).as("bytes of pulls").isZero();
            }
        },
        PUSH_THAT_WAS_PULLED {
            @Override
            void prepare(Child child) {
                child.pulls();
            }

            @Override
            void queue(Child child) {
                child.pushes();
            }

            @Override
            void check(Child child) {
                assertThat(child.task.mayBegin() && child.plane.sendings.isEmpty())
                        .as("the step waits for nothing")
                        .isFalse();
            }
        },
        PUSH_SENT {
            @Override
            void prepare(Child child) {
                child.pulls();
                child.pushes();
            }

            @Override
            void queue(Child child) {
                child.sendings.forEach(sending -> sending.end(new Outcome.Done(Child.BLOCK_BYTES)));
            }

            @Override
            void check(Child child) {
                assertThat(child.task.mayBegin()).as("the step waits for nothing").isFalse();
            }
        };

        /// Done with memory enough.
        void prepare(Child child) {}

        /// Queues the work of which allocations fail.
        void queue(Child child) {}

        /// What else happens meanwhile.
        void work() {}

        /// After the work, before anything else.
        void check(Child child) {}

        /// Whether the load is given up if it has not come.
        boolean isReleased() {
            return true;
        }
    }

    private static Outcome failed(ErrorCode code) {
        return new Outcome.Failed(new Failure(code, "says the test"));
    }

    /// A decoder or prefiller that asks this rank, and hears without memory.
    private static final class Asker implements SideChannel.Asker {
        private static final int KIND = 2;
        private static final byte GRANTED = 4;

        volatile boolean granted;

        @Override
        public boolean answer(byte[] message) {
            granted |= message[KIND] == GRANTED;
            return true;
        }
    }

    static final class Child implements FullHeap.Trial {
        static final Duration STAGED_LIMIT = Duration.ofMillis(150);
        static final String TRANSFER = "t";
        static final long BLOCK_BYTES = 64;

        /// What is there already, so that tables have to grow.
        private static final int OTHERS = 12;

        private static final int BLOCKS = 64;
        private static final int LOADED = 1;
        private static final int HELD = 2;
        private static final int PULL_BYTES = 100;
        private static final int MOST = 1 << 16;
        private static final int SLACK = 1 << 8;
        private static final long LIMIT_NANOS = Duration.ofMillis(15).toNanos();
        private static final long SOON = 20;
        private static final long EPOCH = 7;
        private static final PromptMark PROMPT = new PromptMark(1, 1);
        private static final CacheShape SHAPE =
                new CacheShape("aa", "LBHNC/1", "float32", 0, 1, "l");
        private static final P2pPlan.Peer PEER =
                new P2pPlan.Peer(List.of("127.0.0.1:9"), PeerMessage.ANY_EPOCH);
        private static final P2pPlan.Peer NOBODY =
                new P2pPlan.Peer(List.of(), PeerMessage.ANY_EPOCH);

        private final Call call;
        private final int step;
        private final Arena arena = Arena.ofShared();
        private final KvRegion region;
        private final CacheBlocks cache;
        private final BuddyStagingPool pool = new BuddyStagingPool(1 << 20);
        final SerialLoop loop = new SerialLoop("test-loop");
        private final SideChannel channel = new SideChannel("test-channel");
        private final long loopThread;
        private final P2pSettings settings;
        PlayedPlane plane = new PlayedPlane();
        private Outbox outbox = new Outbox(0, () -> {});
        private StagedBlocks staging;
        ReceiveService receives;
        SendService sends;
        private final Set<TransferId> begun = new HashSet<>();
        final Map<TransferId, Completion.Result> completed = new HashMap<>();
        final Asker asker = new Asker();
        final P2pPlan.Load load = loadOf(TRANSFER, LOADED);
        final P2pPlan.Hold hold = holdOf(TRANSFER);
        PushTask task = new PushTask(pushOf());

        /// Before the work, of the transfer that is looked at.
        List<PlayedPlane.Transfer> windows = List.of();

        List<PlayedPlane.Transfer> sendings = List.of();
        private final int others;
        private int enough;
        private int left;
        private long allocated;
        private volatile boolean open;
        private volatile boolean done;

        Child(Call call, int step) {
            this.call = call;
            this.step = step;
            this.others = call.isReleased() ? OTHERS : 0;
            var memory = new MemoryRange.Host(arena.allocate(BLOCKS * BLOCK_BYTES, 64));
            region = new KvRegion("l", 0, 0, memory, BLOCKS, BLOCK_BYTES, BLOCK_BYTES);
            cache = new CacheBlocks(List.of(region));
            var options = Map.<String, Object>of("staged_timeout", STAGED_LIMIT.toMillis() + "ms");
            settings =
                    P2pSettings.from(
                            new P2pNcclConnectorProvider()
                                    .options()
                                    .read("t", call.isReleased() ? Map.of() : options));
            loopThread =
                    CompletableFuture.supplyAsync(
                                    () -> Thread.currentThread().threadId(), loop::post)
                            .join();
            staging = new StagedBlocks("test", pool, pool.capacity(), cache);
            receives = new ReceiveService(parts(), new StagedCopies(Runnable::run), staging);
            sends = new SendService(parts());
            if (call.isReleased()) {
                channel.close(); // whoever is asked is lost, at once
            }
        }

        public static void main(String[] args) {
            try {
                for (int i = 1; i < args.length; i++) {
                    int step = Integer.parseInt(args[0]);
                    var child = new Child(Call.valueOf(args[i]), step);
                    child.measure();
                    int failed = FullHeap.sweep(step, MOST, child);
                    System.out.println(args[i] + ": " + failed + ", " + child.enough + " bytes");
                }
                System.out.println("\nnothing is lost");
                System.exit(0);
            } catch (RuntimeException | Error e) {
                e.printStackTrace(System.out);
                System.exit(1);
            }
        }

        private RankParts parts() {
            return new RankParts(loop, channel, plane, cache, SHAPE, 0, EPOCH, settings, outbox);
        }

        // ---- what happens to the rank

        private static P2pPlan.Load loadOf(String transfer, int block) {
            var id = TransferId.load(transfer, 0);
            return new P2pPlan.Load(id, transfer, PEER, PROMPT, List.of(new int[] {block}));
        }

        private static P2pPlan.Hold holdOf(String transfer) {
            var id = TransferId.save(transfer, 0);
            return new P2pPlan.Hold(id, transfer, PROMPT, List.of(new int[] {HELD}));
        }

        private static P2pPlan.Push pushOf() {
            return new P2pPlan.Push("r", TRANSFER, NOBODY, PROMPT, List.of(new int[] {HELD}));
        }

        private static PeerMessage.Transfer transferOf(String id) {
            return new PeerMessage.Transfer(id, 1, EPOCH, SHAPE, PROMPT, new int[] {1});
        }

        private void offers(String transfer) {
            var offer = new PeerMessage.Offer(transferOf(transfer));
            loop.post(() -> receives.onOffer(asker, offer));
        }

        void offers() {
            offers(TRANSFER);
        }

        void loads() {
            begun.add(load.id());
            receives.load(load);
        }

        void releases() {
            receives.release(new P2pPlan.Release(TRANSFER, NOBODY));
        }

        void holds() {
            begun.add(hold.id());
            sends.hold(hold);
        }

        void pulls() {
            var pull = new PeerMessage.Pull(transferOf(TRANSFER), Grant.draw(), "127.0.0.1:9");
            loop.post(() -> sends.onPull(asker, pull, PULL_BYTES));
        }

        void pushes() {
            task = sends.push(pushOf());
        }

        void isPushed() {
            offers();
            look();
            fills(windows);
        }

        void fills(List<PlayedPlane.Transfer> windows) {
            for (var window : windows) {
                window.blocks.parts().getFirst().segment().fill((byte) 1);
                window.end(new Outcome.Done(BLOCK_BYTES));
            }
        }

        private void drain() {
            for (int i = 0; i < 3; i++) { // also what the work has posted
                CompletableFuture.runAsync(() -> {}, loop::post)
                        .orTimeout(SOON, TimeUnit.SECONDS)
                        .join();
            }
        }

        // ---- a trial

        @Override
        public void prepare() {
            plane = new PlayedPlane();
            outbox = new Outbox(0, () -> {});
            staging = new StagedBlocks("test", pool, pool.capacity(), cache);
            receives = new ReceiveService(parts(), new StagedCopies(Runnable::run), staging);
            sends = new SendService(parts());
            begun.clear();
            completed.clear();
            asker.granted = false;
            region.segment().fill((byte) 0);
            others();
            call.prepare(this);
            look();
            asker.granted = false;
            open = false;
            done = false;
            left += step;
            loop.post(this::awaitOpen);
            call.queue(this);
            loop.post(() -> done = true);
            allocated = allocatedByLoop();
            System.gc(); // else filling the heap may take a collection for every few bytes
        }

        private void look() {
            drain();
            windows = List.copyOf(plane.windows.subList(others, plane.windows.size()));
            sendings = List.copyOf(plane.sendings);
        }

        private void others() {
            for (int i = 0; i < others; i++) {
                offers("other " + i);
                var other = loadOf("other " + i, OTHERS + i);
                begun.add(other.id());
                receives.load(other);
                var otherHold = holdOf("held " + i);
                begun.add(otherHold.id());
                sends.hold(otherHold);
                var over = TransferId.save("over " + i, 0);
                begun.add(over);
                sends.revoke(over);
                receives.release(new P2pPlan.Release("over " + i, NOBODY));
            }
            drain();
        }

        private void awaitOpen() {
            while (!open) {
                LockSupport.parkNanos(10_000);
            }
        }

        private long allocatedByLoop() {
            var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
            return threads.getThreadAllocatedBytes(loopThread);
        }

        @Override
        public boolean work() {
            long began = System.nanoTime();
            open = true;
            call.work();
            while (!done && System.nanoTime() - began < LIMIT_NANOS) {
                LockSupport.parkNanos(20_000);
            }
            LockSupport.parkNanos(200_000); // what the work has posted
            return left > enough;
        }

        /// What the call takes once all classes are loaded.
        private void measure() {
            for (int i = 0; i < 3; i++) {
                prepare();
                var _ = work();
                check(0);
            }
            enough = (int) allocated + SLACK;
            left = -2 * step; // the first of the sweep has memory for all
        }

        @Override
        public void check(int left) {
            drain();
            allocated = allocatedByLoop() - allocated;
            takeReport(left);
            call.check(this);
            checkNothingTouches(left);
            if (call.isReleased()) {
                releases();
            }
            end();
            takeReport(left);
            for (var id : begun) {
                if (!completed.containsKey(id)) {
                    if (id.direction() == TransferId.Direction.LOAD) {
                        receives.revoke(id);
                    } else {
                        sends.revoke(id);
                    }
                }
            }
            sends.giveUp(task);
            sends.gone(asker);
            end();
            takeReport(left);
            assertThat(completed.keySet()).as("ended, %d bytes left", left).isEqualTo(begun);
            assertThat(task.mayBegin()).as("push goes on, %d bytes left", left).isFalse();
            awaitAllFree();
            assertThat(staging.taken()).as("staged, %d bytes left", left).isZero();
            assertThat(pool.held()).as("held, %d bytes left", left).isEmpty();
            assertThat(receives.open()).as("receiving, %d bytes left", left).isZero();
            assertThat(sends.open()).as("sending, %d bytes left", left).isZero();
            assertThat(sends.waitingBytes()).as("waiting, %d bytes left", left).isZero();
            if (completed.get(load.id()) instanceof Completion.Failed) {
                byte first = region.segment().get(ValueLayout.JAVA_BYTE, LOADED * BLOCK_BYTES);
                assertThat(first).as("written after the end, %d bytes left", left).isZero();
            }
        }

        private void awaitAllFree() {
            var limit = Deadline.in(Duration.ofSeconds(2));
            while (pool.available() < pool.capacity() && !limit.passed()) {
                LockSupport.parkNanos(1_000_000);
            }
            drain();
        }

        private void takeReport(int left) {
            drain();
            for (var completion : outbox.report(0, Payload.EMPTY).completions()) {
                assertThat(completed.put(completion.id(), completion.result()))
                        .as("%s again, %d bytes left", completion.id(), left)
                        .isNull();
            }
        }

        /// What has ended is the engine's.
        private void checkNothingTouches(int left) {
            for (var transfer : plane.open()) {
                if (completed.containsKey(load.id()) && plane.windows.contains(transfer)) {
                    assertThat(isLoaded(transfer)).as("written, %d bytes left", left).isFalse();
                }
                if (completed.containsKey(hold.id()) && plane.sendings.contains(transfer)) {
                    assertThat(transfer.isOpen()).as("read, %d bytes left", left).isFalse();
                }
            }
        }

        private boolean isLoaded(PlayedPlane.Transfer window) {
            return window.blocks.parts().getFirst().segment().equals(region.segment())
                    && PlayedRank.touches(window, LOADED);
        }

        /// Every transfer of the plane ends, as it can.
        private void end() {
            drain();
            while (!plane.open().isEmpty()) {
                for (var transfer : plane.open()) {
                    transfer.end(
                            transfer.givenUp
                                    ? failed(ErrorCode.CANCELLED)
                                    : new Outcome.Done(BLOCK_BYTES));
                }
                drain();
            }
        }
    }
}
