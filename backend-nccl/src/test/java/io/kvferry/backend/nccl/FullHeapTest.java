// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assumptions.assumeThat;

import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.Deadline;
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
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/// A prefiller and a decoder in a process whose heap is full for a while, once while they are idle
/// and once while they hand over: afterwards all their threads are there, every load and every hold
/// has ended, and hand-overs go well.
@Tag("soak")
class FullHeapTest {
    @TempDir Path root;

    @ParameterizedTest
    @ValueSource(strings = {"GET", "PUT_ASYNC"})
    void handsOverAgainAfterTheHeapWasFull(String mode) throws Exception {
        var said = FullHeap.run(root, 64, Duration.ofSeconds(300), Child.class, mode);
        assumeThat(said)
                .as("the JDK lost what wakes virtual threads at their sockets, and the rest held")
                .doesNotContain(Child.NO_SOCKETS);
        assertThat(said).contains("all go on");
    }

    static final class Child {
        private static final Duration FULL = Duration.ofSeconds(2);
        private static final Duration LIMIT = Duration.ofSeconds(5);
        private static final int TURNS = 3;
        private static final int SOCKETS = 8;
        static final String NO_SOCKETS = "virtual threads hear of no sockets";
        private static final long GAP_NANOS = 100_000_000;

        static volatile boolean over;

        private Child() {}

        public static void main(String[] args) throws Exception {
            try (var arena = Arena.ofShared();
                    var pool = new BuddyStagingPool(16 << 20);
                    var p = new LoneRank(arena, args[0], KvRole.PRODUCER, StagingPool.NONE, LIMIT);
                    var d = new LoneRank(arena, args[0], KvRole.CONSUMER, pool, LIMIT)) {
                var pair = new Pair(args[0], p, d);
                for (int i = 0; i < 20; i++) {
                    pair.handOver("before-" + i, i);
                }
                var before = threads();
                FullHeap.fill(Deadline.in(FULL));
                check(pair, before, pool, "after-idle");

                var busy = pair.prepare();
                var progress = busy.stream().map(_ -> new Progress()).toList();
                var user = Thread.ofPlatform().start(() -> pair.run(busy, progress));
                for (int i = 0; i < TURNS; i++) { // more of them meet the moment
                    FullHeap.fill(Deadline.in(FULL));
                    LockSupport.parkNanos(GAP_NANOS);
                }
                over = true;
                user.join();
                pair.end(busy, progress);
                if (hearsOfSockets()) {
                    check(pair, before, pool, "after-busy");
                    System.out.println("all go on");
                } else {
                    LoneRank.await(() -> lost(before).isEmpty(), () -> "lost " + lost(before));
                    System.out.println(NO_SOCKETS);
                }
            }
            System.exit(0);
        }

        /// Whether virtual threads still wake up when something comes over a socket. Where the heap
        /// is full, JDK 25 may forget for good to wake them, and connections of this process with
        /// them; nothing of the connector has a part in this.
        static boolean hearsOfSockets() throws Exception {
            var local = InetAddress.getLoopbackAddress();
            try (var listener = new ServerSocket(0, 1, local)) {
                for (int i = 0; i < SOCKETS; i++) {
                    try (var near = new Socket(local, listener.getLocalPort());
                            var far = listener.accept()) {
                        var reader =
                                Thread.ofVirtual()
                                        .start(() -> {
                                            try {
                                                var _ = far.getInputStream().read();
                                            } catch (IOException e) {
                                                throw new UncheckedIOException(e);
                                            }
                                        });
                        LockSupport.parkNanos(20_000_000); // so that it waits
                        near.getOutputStream().write(1);
                        if (!reader.join(Duration.ofSeconds(20))) {
                            return false;
                        }
                    }
                }
            }
            return true;
        }

        private static void check(
                Pair pair, Map<String, Long> before, StagingPool pool, String when) {
            LoneRank.await(() -> lost(before).isEmpty(), () -> when + ": lost " + lost(before));
            var tries = new AtomicInteger();
            LoneRank.await(
                    () -> pair.goesWell(when + "-try-" + tries.incrementAndGet(), 7),
                    () -> when + ": " + pair.p + ", " + pair.d);
            for (int i = 0; i < 20; i++) {
                pair.handOver(when + "-" + i, i);
            }
            LoneRank.await(() -> pool.available() == pool.capacity(), () -> when + ": " + pool);
        }

        private static Map<String, Long> lost(Map<String, Long> before) {
            var now = threads();
            var lost = new TreeMap<>(before);
            lost.entrySet()
                    .removeIf(each -> now.getOrDefault(each.getKey(), 0L) >= each.getValue());
            return lost;
        }

        /// Those that stay as long as the ranks are open: one for each transfer, and those of pools
        /// come and go.
        private static Map<String, Long> threads() {
            return Thread.getAllStackTraces().keySet().stream()
                    .map(Thread::getName)
                    .filter(name -> !name.matches("ForkJoin.*|Thread-\\d+|.*-transfer-\\d+"))
                    .collect(
                            Collectors.groupingBy(
                                    Function.identity(), TreeMap::new, Collectors.counting()));
        }
    }

    /// A hand-over whose steps are made before they are taken.
    ///
    /// @param produced on the prefiller, in this order
    private record Coming(
            TransferId hold,
            TransferId load,
            List<WorkerStep> produced,
            WorkerStep consumed,
            WorkerStep holdRevoked,
            WorkerStep loadRevoked) {}

    /// How far a hand-over came while the heap was full.
    private static final class Progress {
        boolean held;
        boolean loading;
        boolean holdRevoked;
        boolean loadRevoked;
    }

    /// The two ends, and the steps of an engine for each.
    private static final class Pair {
        /// Made before the heap is full, more than there is time for.
        private static final int MOST = 3000;

        private static final int REVOKED_ONE_IN = 4;
        private static final PromptMark PROMPT = new PromptMark(64, 1);
        private static final List<int[]> SOURCE = List.of(new int[] {1, 2, 3, 4});
        private static final List<int[]> TARGET = List.of(new int[] {8, 5, 7, 6});

        private final boolean pushes;
        private final LoneRank p;
        private final LoneRank d;

        Pair(String mode, LoneRank p, LoneRank d) {
            this.pushes = !mode.equals("GET");
            this.p = p;
            this.d = d;
        }

        private Coming coming(String name) {
            var hold = TransferId.save(name, 0);
            var load = TransferId.load(name, 0);
            var decoder = new P2pPlan.Peer(List.of(d.address), PeerMessage.ANY_EPOCH);
            var prefiller = new P2pPlan.Peer(List.of(p.address), PeerMessage.ANY_EPOCH);
            var produced = new ArrayList<WorkerStep>();
            if (pushes) {
                var push = new P2pPlan.Push(name, name, decoder, PROMPT, SOURCE);
                produced.add(
                        p.step(
                                new P2pPlan(
                                        List.of(push),
                                        List.of(),
                                        List.of(),
                                        List.of(),
                                        List.of())));
            }
            var holds = List.of(new P2pPlan.Hold(hold, name, PROMPT, SOURCE));
            produced.add(p.step(new P2pPlan(List.of(), holds, List.of(), List.of(), List.of())));
            var loads = List.of(new P2pPlan.Load(load, name, prefiller, PROMPT, TARGET));
            return new Coming(
                    hold,
                    load,
                    produced,
                    d.step(new P2pPlan(List.of(), List.of(), List.of(), loads, List.of())),
                    p.revocation(hold),
                    d.revocation(load));
        }

        /// Hands over and ends everything, with every byte compared where it went well.
        boolean goesWell(String name, int seed) {
            var coming = coming(name);
            p.write(SOURCE.getFirst(), seed);
            coming.produced.forEach(p::take);
            d.write(TARGET.getFirst(), seed + 1);
            d.take(coming.consumed);
            var result = d.await(coming.load);
            boolean well = result instanceof Completion.Completed;
            if (!well) {
                System.out.println(name + ": " + result);
                p.take(coming.holdRevoked);
            }
            p.await(coming.hold);
            if (well) {
                d.assertHolds(TARGET.getFirst(), seed);
            }
            return well;
        }

        void handOver(String name, int seed) {
            assertThat(goesWell(name, seed)).as(name).isTrue();
        }

        List<Coming> prepare() {
            p.write(SOURCE.getFirst(), MOST);
            return IntStream.range(0, MOST).mapToObj(i -> coming("busy-" + i)).toList();
        }

        /// Takes steps as long as the heap is full, whatever they throw.
        void run(List<Coming> all, List<Progress> progress) {
            for (int i = 0; i < MOST && !Child.over; i++) {
                var coming = all.get(i);
                var reached = progress.get(i);
                if (pushes) {
                    p.takes(coming.produced.getFirst());
                }
                reached.held = p.takes(coming.produced.getLast());
                reached.loading = d.takes(coming.consumed);
                if (i % REVOKED_ONE_IN == 0) {
                    reached.holdRevoked = p.takes(coming.holdRevoked);
                    reached.loadRevoked = d.takes(coming.loadRevoked);
                }
                LockSupport.parkNanos(100_000);
            }
        }

        /// Everything ends, by itself or as soon as it is revoked.
        void end(List<Coming> all, List<Progress> progress) {
            d.report();
            System.out.println("loads before " + d);
            for (int i = 0; i < MOST; i++) {
                var reached = progress.get(i);
                if (reached.loading
                        && !reached.loadRevoked
                        && !d.results.containsKey(all.get(i).load)) {
                    reached.loadRevoked = true;
                    d.take(all.get(i).loadRevoked);
                }
            }
            LoneRank.await(
                    () -> {
                        d.report();
                        return open(d, all, Coming::load, progress, each -> each.loading).isEmpty();
                    },
                    () -> "loads " + open(d, all, Coming::load, progress, each -> each.loading));
            for (int i = 0; i < MOST; i++) {
                var reached = progress.get(i);
                if (reached.held && !reached.holdRevoked) {
                    reached.holdRevoked = true;
                    p.take(all.get(i).holdRevoked);
                }
            }
            LoneRank.await(
                    () -> {
                        p.report();
                        return open(p, all, Coming::hold, progress, each -> each.holdRevoked)
                                .isEmpty();
                    },
                    () ->
                            "holds "
                                    + open(
                                            p,
                                            all,
                                            Coming::hold,
                                            progress,
                                            each -> each.holdRevoked));
            System.out.println("loads " + d + ", holds " + p);
        }

        private static List<String> open(
                LoneRank rank,
                List<Coming> all,
                Function<Coming, TransferId> id,
                List<Progress> progress,
                Predicate<Progress> begun) {
            return IntStream.range(0, MOST)
                    .filter(i -> begun.test(progress.get(i)))
                    .filter(i -> !rank.results.containsKey(id.apply(all.get(i))))
                    .mapToObj(i -> i + (progress.get(i).loadRevoked ? " revoked" : ""))
                    .toList();
        }
    }
}
