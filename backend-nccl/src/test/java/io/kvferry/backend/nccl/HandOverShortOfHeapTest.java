// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assumptions.assumeThat;

import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.toolkit.memory.FullHeap;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.locks.LockSupport;

/// Hand-overs between two ranks in a process whose heap has some bytes left, from none to more than
/// enough, so that allocations fail on whichever thread. Afterwards the load and the hold end, the
/// next hand-over brings the right bytes, and no staging memory, thread or socket is lost.
class HandOverShortOfHeapTest {
    @TempDir Path root;

    @Tag("soak")
    @ParameterizedTest
    @ValueSource(strings = {"GET", "PUT", "PUT_ASYNC"})
    void losesNothingWhicheverAllocationFails(String mode) throws Exception {
        sweep(mode, 8000);
    }

    private void sweep(String mode, int step) throws Exception {
        List<String> said =
                FullHeap.run(
                        root,
                        32,
                        Duration.ofSeconds(240),
                        Child.class,
                        mode,
                        Integer.toString(step));
        assumeThat(said)
                .as("the JDK lost what wakes virtual threads at their sockets, and the rest held")
                .doesNotContain(FullHeapTest.Child.NO_SOCKETS);
        assertThat(said).contains("nothing is lost");
    }

    static final class Child implements FullHeap.Trial {
        private static final Duration LIMIT = Duration.ofMillis(500);
        private static final int ENOUGH = 96 << 10;
        private static final int MOST = 1 << 20;

        /// Connections that rest until the next exchange.
        private static final int MOST_RESTING = 16;

        private static final PromptMark PROMPT = new PromptMark(64, 1);
        private static final List<int[]> SOURCE = List.of(new int[] {1, 2, 3, 4});
        private static final List<int[]> TARGET = List.of(new int[] {8, 5, 7, 6});

        private final boolean pushes;
        private final int step;
        private final LoneRank prefiller;
        private final LoneRank decoder;
        private final BuddyStagingPool pool;
        private HandOver next;
        private boolean held;
        private boolean loading;
        private int trials;
        private int left;
        private TreeSet<String> threads = new TreeSet<>();
        private int sockets;

        /// What the engines of both ranks say, in this order.
        private record HandOver(
                TransferId hold,
                TransferId load,
                Optional<WorkerStep> push,
                WorkerStep producing,
                WorkerStep consuming,
                WorkerStep holdRevoked,
                WorkerStep loadRevoked) {}

        private Child(
                String mode,
                int step,
                LoneRank prefiller,
                LoneRank decoder,
                BuddyStagingPool pool) {
            this.pushes = !mode.equals("GET");
            this.step = step;
            this.prefiller = prefiller;
            this.decoder = decoder;
            this.pool = pool;
            this.next = handOver("none");
        }

        public static void main(String[] args) throws Exception {
            try (var arena = Arena.ofShared();
                    var pool = new BuddyStagingPool(16 << 20);
                    var p = new LoneRank(arena, args[0], KvRole.PRODUCER, StagingPool.NONE, LIMIT);
                    var d = new LoneRank(arena, args[0], KvRole.CONSUMER, pool, LIMIT)) {
                var child = new Child(args[0], Integer.parseInt(args[1]), p, d, pool);
                for (int i = 0; i < 20; i++) {
                    var _ = child.goesWell("before " + i, i); // the first may be too slow
                }
                child.threads = threads();
                child.sockets = sockets();
                System.out.println("failed: " + FullHeap.sweep(child.step, MOST, child));
                System.out.println("nothing is lost");
                System.exit(0);
            } catch (RuntimeException | Error e) {
                e.printStackTrace(System.out);
                boolean hears = FullHeapTest.Child.hearsOfSockets();
                System.out.println(hears ? "failed" : FullHeapTest.Child.NO_SOCKETS);
                System.exit(hears ? 1 : 0);
            }
        }

        private HandOver handOver(String name) {
            var hold = TransferId.save(name, 0);
            var load = TransferId.load(name, 0);
            var to = new P2pPlan.Peer(List.of(decoder.address), PeerMessage.ANY_EPOCH);
            var from = new P2pPlan.Peer(List.of(prefiller.address), PeerMessage.ANY_EPOCH);
            var push = new P2pPlan.Push(name, name, to, PROMPT, SOURCE);
            var holds = List.of(new P2pPlan.Hold(hold, name, PROMPT, SOURCE));
            var loads = List.of(new P2pPlan.Load(load, name, from, PROMPT, TARGET));
            return new HandOver(
                    hold,
                    load,
                    pushes ? Optional.of(prefiller.step(pushing(push))) : Optional.empty(),
                    prefiller.step(new P2pPlan(List.of(), holds, List.of(), List.of(), List.of())),
                    decoder.step(new P2pPlan(List.of(), List.of(), List.of(), loads, List.of())),
                    prefiller.revocation(hold),
                    decoder.revocation(load));
        }

        private static P2pPlan pushing(P2pPlan.Push push) {
            return new P2pPlan(List.of(push), List.of(), List.of(), List.of(), List.of());
        }

        /// With every byte compared where it goes well.
        private boolean goesWell(String name, int seed) {
            var all = handOver(name);
            prefiller.write(SOURCE.getFirst(), seed);
            all.push.ifPresent(prefiller::take);
            prefiller.take(all.producing);
            decoder.write(TARGET.getFirst(), seed + 1);
            decoder.take(all.consuming);
            boolean well = decoder.await(all.load) instanceof Completion.Completed;
            if (!well) {
                System.out.println(name + ": " + decoder.results.get(all.load));
                prefiller.take(all.holdRevoked);
            }
            prefiller.await(all.hold);
            if (well) {
                decoder.assertHolds(TARGET.getFirst(), seed);
            }
            return well;
        }

        @Override
        public void prepare() {
            left = trials * step - step;
            trials++;
            held = false;
            loading = false;
            next = handOver("trial " + trials);
            prefiller.write(SOURCE.getFirst(), trials);
            decoder.write(TARGET.getFirst(), trials + 1);
            System.gc(); // else filling the heap may take a collection for every few bytes
        }

        @Override
        public boolean work() {
            if (next.push.isPresent()) {
                var _ = prefiller.takes(next.push.get());
            }
            held = prefiller.takes(next.producing);
            loading = decoder.takes(next.consuming);
            LockSupport.parkNanos(20_000_000);
            return left > ENOUGH;
        }

        @Override
        public void check(int bytesLeft) {
            if (loading) {
                ends(decoder, next.load, next.loadRevoked, 4 * LIMIT.toNanos(), bytesLeft);
            }
            if (decoder.results.get(next.load) instanceof Completion.Completed) {
                decoder.assertHolds(TARGET.getFirst(), trials);
            }
            if (held) {
                ends(prefiller, next.hold, next.holdRevoked, 0, bytesLeft);
            }
            LoneRank.await(
                    () -> pool.available() == pool.capacity(),
                    () -> pool + ", " + bytesLeft + " bytes left");
            var tries = new ArrayList<String>();
            LoneRank.await(
                    () -> {
                        tries.add("try");
                        return goesWell("after " + trials + "-" + tries.size(), tries.size());
                    },
                    () -> "no hand-over after " + bytesLeft + " bytes left");
            LoneRank.await(
                    () -> threads().containsAll(threads),
                    () -> "threads " + threads() + ", once " + threads);
            assertThat(sockets())
                    .as("sockets, %d bytes left", bytesLeft)
                    .isLessThanOrEqualTo(sockets + MOST_RESTING);
        }

        /// By itself, or as soon as it is revoked.
        private static void ends(
                LoneRank rank, TransferId id, WorkerStep revocation, long nanos, int bytesLeft) {
            long began = System.nanoTime();
            while (!rank.results.containsKey(id) && System.nanoTime() - began < nanos) {
                rank.report();
                LockSupport.parkNanos(1_000_000);
            }
            if (!rank.results.containsKey(id)) {
                rank.take(revocation);
            }
            LoneRank.await(
                    () -> {
                        rank.report();
                        return rank.results.containsKey(id);
                    },
                    () -> "no end of " + id + ", " + bytesLeft + " bytes left");
        }

        private static TreeSet<String> threads() {
            var names = new TreeSet<String>();
            for (Thread thread : Thread.getAllStackTraces().keySet()) {
                if (thread.getName().matches("p2p-.*[^0-9]-?\\d")
                        && !thread.getName().contains("transfer")) {
                    names.add(thread.getName());
                }
            }
            return names;
        }

        private static int sockets() {
            try (var found = Files.list(Path.of("/proc/self/fd"))) {
                return (int) found.filter(Child::isSocket).count();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        private static boolean isSocket(Path link) {
            try {
                return Files.readSymbolicLink(link).toString().startsWith("socket:");
            } catch (IOException _) {
                return false;
            }
        }
    }
}
