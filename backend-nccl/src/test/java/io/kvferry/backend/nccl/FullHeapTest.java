// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assumptions.assumeThat;

import io.kvferry.backend.nccl.engines.P2pEngines;
import io.kvferry.backend.nccl.wire.PeerMessage;
import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.memory.FullHeap;
import io.kvferry.toolkit.staging.BuddyStagingPool;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.Supplier;
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
        private static final Duration SOON = Duration.ofSeconds(60);
        private static final int TURNS = 3;
        private static final int SOCKETS = 8;
        static final String NO_SOCKETS = "virtual threads hear of no sockets";
        private static final long GAP_NANOS = 100_000_000;
        static final Duration LONG = Duration.ofMinutes(10);

        static volatile boolean over;

        private Child() {}

        public static void main(String[] args) throws Exception {
            try (var arena = Arena.ofShared();
                    var pool = new BuddyStagingPool(16 << 20);
                    var p = new Rank(arena, args[0], KvRole.PRODUCER, StagingPool.NONE);
                    var d = new Rank(arena, args[0], KvRole.CONSUMER, pool)) {
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
                    await(() -> lost(before).isEmpty(), () -> "lost " + lost(before));
                    System.out.println(NO_SOCKETS);
                }
            }
            System.exit(0);
        }

        /// Whether virtual threads still wake up when something comes over a socket. Where the heap
        /// is full, JDK 25 may forget for good to wake them, and connections of this process with
        /// them; nothing of the connector has a part in this.
        private static boolean hearsOfSockets() throws Exception {
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
            await(() -> lost(before).isEmpty(), () -> when + ": lost " + lost(before));
            var tries = new AtomicInteger();
            await(
                    () -> pair.goesWell(when + "-try-" + tries.incrementAndGet(), 7),
                    () -> when + ": " + pair.p + ", " + pair.d);
            for (int i = 0; i < 20; i++) {
                pair.handOver(when + "-" + i, i);
            }
            await(() -> pool.available() == pool.capacity(), () -> when + ": " + pool);
        }

        static void await(BooleanSupplier condition, Supplier<String> trouble) {
            var limit = Deadline.in(SOON);
            while (!condition.getAsBoolean()) {
                assertThat(limit.passed()).as(trouble).isFalse();
                LockSupport.parkNanos(10_000_000);
            }
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
        private final Rank p;
        private final Rank d;

        Pair(String mode, Rank p, Rank d) {
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
            Child.await(
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
            Child.await(
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
                Rank rank,
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

    /// One rank of the connector, and its cache.
    private static final class Rank implements AutoCloseable {
        private static final int BLOCKS = 16;
        private static final int BLOCK_BYTES = 4096;
        private static final int LAYERS = 2;

        final String address;
        final Map<TransferId, Completion.Result> results = new HashMap<>();
        private final WorkerConnector worker;
        private final List<KvRegion> regions = new ArrayList<>();
        private long steps;

        Rank(Arena arena, String mode, KvRole role, StagingPool pool) {
            var names = IntStream.range(0, LAYERS).mapToObj(layer -> "l" + layer).toList();
            for (int layer = 0; layer < LAYERS; layer++) {
                var memory = new MemoryRange.Host(arena.allocate(BLOCKS * BLOCK_BYTES, 64));
                regions.add(
                        new KvRegion(
                                names.get(layer),
                                layer,
                                0,
                                memory,
                                BLOCKS,
                                BLOCK_BYTES,
                                BLOCK_BYTES));
            }
            var format = new KvFormat.Heads(DType.UINT8, KvLayout.LBHNC, 1, BLOCK_BYTES / 32);
            var group =
                    new KvCacheGroup(
                            0, KvCacheGroup.Kind.FULL_ATTENTION, format, names, 16, BLOCK_BYTES);
            var namespace =
                    new CacheNamespace("m", "r", DType.UINT8, KvLayout.LBHNC, 1, 16, 1, 1, "");
            var engine =
                    new EngineInfo(
                            "m",
                            namespace,
                            new KvCacheSpec(List.of(group), BLOCKS),
                            1,
                            0,
                            1 + role.ordinal());
            var options = P2pEngines.options(mode, 0);
            options.put("data_plane", "tcp");
            options.put("transfer_timeout", "10s");
            options.put("receive_timeout", "5s");
            options.put("push_timeout", "5s");
            options.put("staged_timeout", "5s");
            var config = ConnectorConfig.of("P2pNcclConnector", role, role.name(), options);
            var provider = new P2pNcclConnectorProvider();
            worker =
                    provider.openWorker(
                            new WorkerContext(
                                    "p2p",
                                    config,
                                    provider.options().read("test", config.extra()),
                                    engine,
                                    new RankInfo(0, 1, 0, 1, 0, 1),
                                    P2pEngines.host(pool)));
            worker.registerRegions(regions);
            address = P2pWorker.readHandshake(worker.handshake());
        }

        WorkerStep step(P2pPlan plan) {
            return new WorkerStep(++steps, plan.encode(), List.of(), true, Deadline.in(Child.LONG));
        }

        WorkerStep revocation(TransferId id) {
            return new WorkerStep(
                    ++steps, Payload.EMPTY, List.of(id), false, Deadline.in(Child.LONG));
        }

        void take(WorkerStep step) {
            worker.beginStep(step);
            worker.endStep(step, Set.of());
            report(step);
        }

        /// A step without a report, false where it throws.
        boolean takes(WorkerStep step) {
            boolean begun = false;
            try {
                worker.beginStep(step);
                begun = true;
                worker.endStep(step, Set.of());
            } catch (RuntimeException | Error _) {
                Thread.onSpinWait();
            }
            return begun;
        }

        void report() {
            take(step(P2pPlan.decode(Payload.EMPTY)));
        }

        private void report(WorkerStep step) {
            for (var completion : worker.report(step).completions()) {
                assertThat(results.put(completion.id(), completion.result()))
                        .as("%s is completed twice", completion.id())
                        .isNull();
            }
        }

        Completion.Result await(TransferId id) {
            Child.await(
                    () -> {
                        report();
                        return results.containsKey(id);
                    },
                    () -> "no end of " + id);
            return Objects.requireNonNull(results.get(id));
        }

        void write(int[] blocks, int seed) {
            each(blocks, (block, at) -> block.copyFrom(MemorySegment.ofArray(bytes(at, seed))));
        }

        void assertHolds(int[] blocks, int seed) {
            each(
                    blocks,
                    (block, at) ->
                            assertThat(block.mismatch(MemorySegment.ofArray(bytes(at, seed))))
                                    .as("first wrong byte at %d", at)
                                    .isEqualTo(-1));
        }

        private void each(int[] blocks, BiConsumer<MemorySegment, Integer> visitor) {
            for (var region : regions) {
                for (int i = 0; i < blocks.length; i++) {
                    var block = region.segment().asSlice(region.offset(blocks[i]), BLOCK_BYTES);
                    visitor.accept(block, region.layerIndex() * blocks.length + i);
                }
            }
        }

        private static byte[] bytes(int at, int seed) {
            var bytes = new byte[BLOCK_BYTES];
            new Random(seed * 1000L + at).nextBytes(bytes);
            return bytes;
        }

        @Override
        public void close() {
            worker.close();
        }

        /// How many ended in which way.
        @Override
        public String toString() {
            return results.values().stream()
                    .collect(
                            Collectors.groupingBy(
                                    result ->
                                            result instanceof Completion.Failed(var failure, _)
                                                    ? failure.code().name()
                                                    : result.getClass().getSimpleName(),
                                    TreeMap::new,
                                    Collectors.counting()))
                    .toString();
        }
    }
}
