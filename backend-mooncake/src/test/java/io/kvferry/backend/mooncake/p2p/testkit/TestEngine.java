// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.MooncakeConnectorProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
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
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/// As much of an engine as the connector needs: both halves, KV memory per rank whose bytes follow
/// from (seed, layer, block, head), and steps.
public final class TestEngine implements AutoCloseable {
    public static final int BLOCK_TOKENS = 16;
    public static final Duration SOON = Duration.ofSeconds(30);
    private static final AtomicLong STARTS = new AtomicLong(System.nanoTime());

    public final KvCacheSpec cache;
    public final SchedulerConnector scheduler;
    public final List<WorkerConnector> workers = new ArrayList<>();
    public final List<List<KvRegion>> regions = new ArrayList<>();
    public final Map<TransferId, Map<Integer, Completion.Result>> results = new HashMap<>();
    public Stats stats = Stats.EMPTY;
    public String bootstrap = "";
    private final Shape shape;
    private final Arena arena = Arena.ofShared();
    private final List<TransferId> revoking = new ArrayList<>();
    private long step;

    /// What a test engine looks like.
    ///
    /// @param headBytes bytes of one KV head in one block of one layer
    /// @param interleaved the layers of a block lie next to each other, not the blocks of a layer
    /// @param ppSize pipeline stages, each with as many of the layers
    /// @param layout LBHNC, or LBNHC where the heads of a token lie next to each other
    public record Shape(
            int tpSize,
            int kvHeads,
            int layers,
            int groups,
            int blocks,
            int headBytes,
            boolean interleaved,
            int ppSize,
            KvLayout layout) {
        public static final Shape SMALL = new Shape(1, 2, 3, 1, 80, 512, false);

        public Shape(
                int tpSize,
                int kvHeads,
                int layers,
                int groups,
                int blocks,
                int headBytes,
                boolean interleaved) {
            this(
                    tpSize,
                    kvHeads,
                    layers,
                    groups,
                    blocks,
                    headBytes,
                    interleaved,
                    1,
                    KvLayout.LBHNC);
        }

        public Shape withTp(int size) {
            return new Shape(
                    size, kvHeads, layers, groups, blocks, headBytes, interleaved, ppSize, layout);
        }

        public Shape withPp(int size) {
            return new Shape(
                    tpSize, kvHeads, layers, groups, blocks, headBytes, interleaved, size, layout);
        }

        public Shape withGroups(int count) {
            return new Shape(
                    tpSize, kvHeads, layers, count, blocks, headBytes, interleaved, ppSize, layout);
        }

        public Shape withInterleavedLayers() {
            return new Shape(
                    tpSize, kvHeads, layers, groups, blocks, headBytes, true, ppSize, layout);
        }

        public Shape withLayout(KvLayout other) {
            return new Shape(
                    tpSize, kvHeads, layers, groups, blocks, headBytes, interleaved, ppSize, other);
        }

        public int worldSize() {
            return tpSize * ppSize;
        }

        public int firstLayer(int stage) {
            return layers / ppSize * stage;
        }

        public int headsPerRank() {
            return Math.max(1, kvHeads / tpSize);
        }

        public int firstHead(int tpRank) {
            return tpSize <= kvHeads ? tpRank * headsPerRank() : tpRank / (tpSize / kvHeads);
        }

        public int blockBytes() {
            return headsPerRank() * headBytes;
        }
    }

    public TestEngine(Shape shape, KvRole role, String engineId, Map<String, Object> options) {
        this(shape, role, engineId, options, HostServices.NONE);
    }

    public TestEngine(
            Shape shape,
            KvRole role,
            String engineId,
            Map<String, Object> options,
            HostServices host) {
        this.shape = shape;
        this.cache = cache(shape, 0);
        var provider = new MooncakeConnectorProvider();
        var all = new LinkedHashMap<String, Object>(options);
        all.putIfAbsent("bootstrap_port", 0);
        all.putIfAbsent("side_channel", SideChannelOption.option());
        var config = ConnectorConfig.of("MooncakeConnector", role, engineId, all);
        var values = provider.options().read("test", config.extra());
        var namespace =
                new CacheNamespace(
                        "m",
                        "r",
                        DType.UINT8,
                        shape.layout(),
                        1,
                        BLOCK_TOKENS,
                        shape.tpSize(),
                        shape.ppSize(),
                        "");
        long start = Long.MAX_VALUE - STARTS.incrementAndGet(); // differs, and need not grow
        scheduler =
                provider.openScheduler(
                        new SchedulerContext(
                                "mooncake",
                                config,
                                values,
                                new EngineInfo("m", namespace, cache, shape.worldSize(), 0, start),
                                host));
        var handshakes = new ArrayList<Payload>();
        for (int rank = 0; rank < shape.worldSize(); rank++) {
            int stage = rank / shape.tpSize();
            var info =
                    new RankInfo(
                            rank,
                            shape.worldSize(),
                            rank % shape.tpSize(),
                            shape.tpSize(),
                            stage,
                            shape.ppSize());
            var worker =
                    provider.openWorker(
                            new WorkerContext(
                                    "mooncake",
                                    config,
                                    values,
                                    new EngineInfo(
                                            "m",
                                            namespace,
                                            cache(shape, stage),
                                            shape.worldSize(),
                                            0,
                                            start),
                                    info,
                                    host));
            workers.add(worker);
            regions.add(allocate(stage));
            worker.registerRegions(regions.get(rank));
            handshakes.add(worker.handshake());
            if (rank == 0 && !handshakes.getFirst().isEmpty()) {
                bootstrap = handshakes.getFirst().reader().string();
                all.put("bootstrap_server_address", bootstrap); // the other ranks find it there
                config = ConnectorConfig.of("MooncakeConnector", role, engineId, all);
                values = provider.options().read("test", config.extra());
            }
        }
        scheduler.onHandshakes(handshakes);
    }

    private static KvCacheSpec cache(Shape shape, int stage) {
        return new KvCacheSpec(groups(shape, stage), shape.blocks());
    }

    private static List<KvCacheGroup> groups(Shape shape, int stage) {
        var groups = new ArrayList<KvCacheGroup>();
        for (int g = 0; g < shape.groups(); g++) {
            var names = new ArrayList<String>();
            for (int layer = shape.firstLayer(stage);
                    layer < shape.firstLayer(stage + 1);
                    layer++) {
                if (layer % shape.groups() == g) {
                    names.add(layerName(layer));
                }
            }
            groups.add(
                    new KvCacheGroup(
                            g,
                            KvCacheGroup.Kind.FULL_ATTENTION,
                            new KvFormat.Heads(DType.UINT8, shape.layout(), shape.kvHeads(), 8),
                            names,
                            BLOCK_TOKENS << g,
                            shape.blockBytes()));
        }
        return groups;
    }

    private static String layerName(int layer) {
        return "model.layers." + layer + ".self_attn.attn";
    }

    private List<KvRegion> allocate(int stage) {
        long blockBytes = shape.blockBytes();
        long layerBytes = blockBytes * shape.blocks();
        var slab = arena.allocate(layerBytes * shape.layers(), 4096);
        var list = new ArrayList<KvRegion>();
        for (int layer = shape.firstLayer(stage); layer < shape.firstLayer(stage + 1); layer++) {
            var memory =
                    shape.interleaved()
                            ? slab.asSlice(
                                    layer * blockBytes,
                                    slab.byteSize() - (shape.layers() - 1) * blockBytes)
                            : slab.asSlice(layer * layerBytes, layerBytes);
            long stride = shape.interleaved() ? blockBytes * shape.layers() : blockBytes;
            list.add(
                    new KvRegion(
                            layerName(layer),
                            layer,
                            layer % shape.groups(),
                            new MemoryRange.Host(memory),
                            shape.blocks(),
                            blockBytes,
                            stride));
        }
        return list;
    }

    // Blocks.

    /// As many consecutive blocks per group as a prompt needs, from `first` on.
    public FakeRequest request(String id, int promptTokens, int first, Map<String, Object> params) {
        var request = new FakeRequest(id, promptTokens, new TransferParams(params));
        request.blocks = new int[shape.groups()][];
        for (int g = 0; g < shape.groups(); g++) {
            request.blocks[g] = new int[Math.ceilDiv(promptTokens, BLOCK_TOKENS << g)];
            for (int i = 0; i < request.blocks[g].length; i++) {
                request.blocks[g][i] = first + i;
            }
        }
        return request;
    }

    /// Computes the prompt: fills the request's blocks with what `seed` says.
    public void compute(FakeRequest request, int seed) {
        eachBlock(
                request,
                0,
                (block, expected) ->
                        MemorySegment.copy(
                                expected, 0, block, ValueLayout.JAVA_BYTE, 0, expected.length),
                seed);
        request.computed = request.promptTokenCount();
    }

    /// Whether the blocks from position `from` on hold what `seed` says.
    public void assertHolds(FakeRequest request, int from, int seed) {
        eachBlock(
                request,
                from,
                (block, expected) -> {
                    long wrong = block.mismatch(MemorySegment.ofArray(expected));
                    if (wrong >= 0) {
                        throw new AssertionError(
                                request.id() + ": wrong byte at " + wrong + " of " + block);
                    }
                },
                seed);
    }

    /// Whether the request's blocks are all zero.
    public void assertUntouched(FakeRequest request) {
        eachBlock(
                request,
                0,
                (block, expected) ->
                        assertThat(block.mismatch(MemorySegment.ofArray(new byte[expected.length])))
                                .as("first byte of %s that was written", block)
                                .isEqualTo(-1),
                1);
    }

    private interface BlockVisitor {
        void at(MemorySegment block, byte[] expected);
    }

    private void eachBlock(FakeRequest request, int from, BlockVisitor visitor, int seed) {
        byte[] expected = new byte[shape.blockBytes()];
        for (int rank = 0; rank < shape.worldSize(); rank++) {
            int firstHead = shape.firstHead(rank % shape.tpSize());
            for (var region : regions.get(rank)) {
                int[] ids = request.blocks[region.group()];
                for (int position = from; position < ids.length; position++) {
                    if (ids[position] == BlockTable.NO_BLOCK) {
                        continue;
                    }
                    for (int b = 0; b < expected.length; b++) {
                        int ofBlock = inHeadOrder(b, BLOCK_TOKENS << region.group());
                        int head = firstHead + ofBlock / shape.headBytes();
                        int mix =
                                seed * 31
                                        + region.layerIndex() * 7
                                        + position * 13
                                        + head * 101
                                        + ofBlock % shape.headBytes() * 3;
                        expected[b] = (byte) (mix | 1);
                    }
                    visitor.at(
                            region.segment().asSlice(region.offset(ids[position]), expected.length),
                            expected);
                }
            }
        }
    }

    /// Where byte `b` of a block would be if a head's tokens lay together.
    private int inHeadOrder(int b, int tokens) {
        if (shape.layout() == KvLayout.LBHNC) {
            return b;
        }
        int piece = shape.headBytes() / tokens;
        int token = b / (shape.headsPerRank() * piece);
        int head = b / piece % shape.headsPerRank();
        return head * shape.headBytes() + token * piece + b % piece;
    }

    // The engine's part of the protocol.

    /// Router's params for the prefill leg.
    public static Map<String, Object> decodeElsewhere(String transferId) {
        return Map.of(
                "do_remote_decode", true, "do_remote_prefill", false, "transfer_id", transferId);
    }

    /// Router's params for the decode leg.
    public static Map<String, Object> prefillAt(
            String bootstrap, String engineId, String transferId) {
        return Map.of(
                "do_remote_decode", false,
                "do_remote_prefill", true,
                "remote_bootstrap_addr", bootstrap,
                "remote_engine_id", engineId,
                "transfer_id", transferId);
    }

    /// Admits a prefill.
    public void beginPrefill(FakeRequest request) {
        scheduler.onRequest(request);
        assertThat(scheduler.lookup(request, 0)).isEqualTo(LookupResult.MISS);
        scheduler.onAllocated(
                request, request.table(), LoadAssignment.none(TransferId.load(request.id(), 0)));
        step();
    }

    /// Ends a computed prefill and returns its hold.
    public TransferId endPrefill(FakeRequest request, FinishReason reason) {
        var decision = scheduler.finish(request, request.table(), reason);
        step();
        return decision instanceof FinishDecision.Hold hold
                ? hold.id()
                : TransferId.save("none", 0);
    }

    /// Prefill from admission to hold.
    public TransferId prefill(FakeRequest request, int seed) {
        beginPrefill(request);
        compute(request, seed);
        return endPrefill(request, FinishReason.LENGTH);
    }

    /// Admits a decode whose first `local` tokens are here already, and returns the load.
    public TransferId beginDecode(FakeRequest request, int local) {
        var id = admitDecode(request, local);
        step();
        return id;
    }

    /// As [#beginDecode], in the next step.
    public TransferId admitDecode(FakeRequest request, int local) {
        scheduler.onRequest(request);
        var id = TransferId.load(request.id(), 0);
        var found = scheduler.lookup(request, local);
        var load =
                found instanceof LookupResult.Hit hit
                        ? new LoadAssignment(id, local, local + hit.tokens(), hit.mode())
                        : LoadAssignment.none(id);
        scheduler.onAllocated(request, request.table(), load);
        return id;
    }

    public FinishDecision finish(FakeRequest request, BlockTable blocks, FinishReason reason) {
        var decision = scheduler.finish(request, blocks, reason);
        step();
        return decision;
    }

    /// The engine ends a right.
    public void revoke(TransferId id) {
        revoking.add(id);
        step();
    }

    public void step() {
        step++;
        var plan = scheduler.buildPlan(new EmptyStep(step));
        var view = new WorkerStep(step, plan, List.copyOf(revoking), false, Deadline.in(SOON));
        revoking.clear();
        for (var worker : workers) {
            worker.beginStep(view);
            worker.endStep(view, Set.of());
            var report = worker.report(view);
            stats = stats.merge(report.stats());
            for (Completion completion : report.completions()) {
                var previous =
                        results.computeIfAbsent(completion.id(), _ -> new HashMap<>())
                                .put(completion.rank(), completion.result());
                assertThat(previous).as("%s reported twice", completion).isNull();
            }
        }
    }

    /// Steps until every rank has completed `id`; the merged result.
    public Completion.Result await(TransferId id) {
        var limit = Deadline.in(SOON);
        while (results.getOrDefault(id, Map.of()).size() < workers.size()) {
            assertThat(limit.passed()).as("no completion of %s", id).isFalse();
            LockSupport.parkNanos(1_000_000);
            step();
        }
        var byRank = results.getOrDefault(id, Map.of()).values();
        return byRank.stream()
                .filter(result -> !(result instanceof Completion.Completed))
                .findFirst()
                .orElseGet(() -> byRank.iterator().next());
    }

    /// Lets `prefiller` serve `transferId` and waits for the load: by then it has heard of all
    /// loads of the same step, which travel in one message. Others may take connections of their
    /// own.
    public void await(TransferId id, TestEngine prefiller, String transferId) {
        prefiller.prefill(
                prefiller.request("probe-" + transferId, 64, 60, decodeElsewhere(transferId)), 1);
        assertThat(await(id)).isInstanceOf(Completion.Completed.class);
    }

    public Optional<Completion.Result> resultNow(TransferId id) {
        step();
        return Optional.ofNullable(results.getOrDefault(id, Map.of()).get(0));
    }

    @Override
    public void close() {
        scheduler.close();
        workers.forEach(WorkerConnector::close);
        arena.close();
    }

    private record EmptyStep(long number) implements StepView {
        @Override
        public int scheduledCount() {
            return 0;
        }

        @Override
        public ScheduledRequest scheduled(int index) {
            throw new IndexOutOfBoundsException(index);
        }

        @Override
        public List<String> preempted() {
            return List.of();
        }
    }
}
