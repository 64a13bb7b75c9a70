// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.SelectedKv;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.wire.Payload;

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/// An engine reduced to the calls that connectors get, driven step by step by a test: one scheduler
/// half, some worker halves, completions merged over ranks as the contract says.
final class Rig implements AutoCloseable {
    static final int BLOCK = 4;
    private static final int LAYERS = 2;

    final SchedulerConnector scheduler;
    final List<WorkerConnector> workers = new ArrayList<>();
    final SelectedKv selected;
    final List<TraceEvent> events = new ArrayList<>();
    final List<StepReport> lastReports = new ArrayList<>();

    /// Scheduled in the next step.
    final List<StepView.ScheduledRequest> scheduled = new ArrayList<>();

    final EngineInfo engine;
    final List<KvRegion> regions;
    private final Kvferry kvferry;
    private final Arena arena = Arena.ofShared();
    private final Map<TransferId, Map<Integer, Completion.Result>> partial = new LinkedHashMap<>();
    private final List<TransferId> toRevoke = new ArrayList<>();
    private long step;

    Rig(int worldSize, String json, KvConnectorProvider... providers) {
        var catalog = PluginCatalog.ofClassPath();
        for (var provider : providers) {
            catalog.with(KvConnectorProvider.class, provider);
        }
        kvferry = Kvferry.open(catalog, events::add);
        selected = kvferry.kv(json);
        var group =
                new KvCacheGroup(
                        0,
                        KvCacheGroup.Kind.FULL_ATTENTION,
                        new KvFormat.Heads(DType.FLOAT32, KvLayout.LBNHC, 1, 2),
                        List.of("l0", "l1"),
                        BLOCK,
                        64);
        var spec = new KvCacheSpec(List.of(group), 256);
        var namespace =
                new CacheNamespace(
                        "m", "r", DType.FLOAT32, KvLayout.LBNHC, 1, BLOCK, worldSize, 1, "");
        engine = new EngineInfo("m", namespace, spec, worldSize, 0, 1);
        scheduler = selected.openScheduler(engine);
        for (int rank = 0; rank < worldSize; rank++) {
            var place = new RankInfo(rank, worldSize, rank, worldSize, 0, 1);
            workers.add(selected.openWorker(engine, place));
        }
        var handshakes = new ArrayList<Payload>();
        regions = regions(spec);
        for (var worker : workers) {
            worker.registerRegions(regions);
            handshakes.add(worker.handshake());
        }
        scheduler.onHandshakes(handshakes);
    }

    /// The configuration of a composite of scripted children, named as they are.
    static String multi(String moreOptions, String... children) {
        var list = new ArrayList<String>();
        for (var child : children) {
            list.add(child.startsWith("{") ? child : "{\"kv_connector\": \"" + child + "\"}");
        }
        return """
        {"kv_connector": "MultiConnector", "kv_role": "kv_both", "engine_id": "e", "kv_connector_extra_config":
         {%s "connectors": [%s]}}\
        """
                .formatted(moreOptions, String.join(", ", list));
    }

    private List<KvRegion> regions(KvCacheSpec spec) {
        var regions = new ArrayList<KvRegion>();
        for (int layer = 0; layer < LAYERS; layer++) {
            var memory = new MemoryRange.Host(arena.allocate(spec.blockCount() * 64L, 64));
            regions.add(new KvRegion("l" + layer, layer, 0, memory, spec.blockCount(), 64, 64));
        }
        return regions;
    }

    /// A request enters, is looked up, and gets its blocks; the load is what the lookup answered.
    LoadAssignment admit(Request request, int localTokens) {
        scheduler.onRequest(request);
        return allocate(request, localTokens);
    }

    LoadAssignment allocate(Request request, int localTokens) {
        var id = TransferId.load(request.id(), request.attempt());
        var found = scheduler.lookup(request, localTokens);
        var load =
                found instanceof LookupResult.Hit hit
                        ? new LoadAssignment(
                                id, localTokens, localTokens + hit.tokens(), hit.mode())
                        : LoadAssignment.none(id);
        scheduler.onAllocated(request, request.blocks(), load);
        return load;
    }

    /// Ends a right, with the next step.
    void revoke(TransferId id) {
        toRevoke.add(id);
    }

    /// One step; what the engine is to act on.
    MergedReport step() {
        step++;
        var revoked = List.copyOf(toRevoke);
        toRevoke.clear();
        revoked.forEach(scheduler::onRevoked);
        var plan = scheduler.buildPlan(new Step(step, List.copyOf(scheduled)));
        scheduled.clear();
        var merged = new ArrayList<Completion>();
        lastReports.clear();
        for (int rank = 0; rank < workers.size(); rank++) {
            var workerStep =
                    new WorkerStep(step, plan, revoked, true, Deadline.in(Duration.ofSeconds(5)));
            var worker = workers.get(rank);
            worker.beginStep(workerStep);
            worker.endStep(workerStep, Set.of());
            var report = worker.report(workerStep);
            lastReports.add(report);
            for (var completion : report.completions()) {
                merge(completion.id(), rank, completion.result(), merged);
            }
        }
        return settle(scheduler, new MergedReport(step, merged, List.copyOf(lastReports)));
    }

    /// What the engine is to act on.
    static MergedReport settle(SchedulerHalf half, MergedReport report) {
        if (half instanceof SchedulerHalf.Composite composite) {
            return composite.settle(report);
        }
        half.onReport(report);
        return report;
    }

    private void merge(TransferId id, int rank, Completion.Result result, List<Completion> merged) {
        var ranks = partial.computeIfAbsent(id, _ -> new LinkedHashMap<>());
        ranks.put(rank, result);
        if (ranks.size() < workers.size()) {
            return;
        }
        partial.remove(id);
        Completion.Result all = new Completion.Completed(0);
        boolean revoked = false;
        for (var one : ranks.values()) {
            revoked |= one instanceof Completion.Revoked;
            all =
                    switch (one) {
                        case Completion.Failed failed -> failed;
                        case Completion.Revoked gone ->
                                all instanceof Completion.Completed ? gone : all;
                        case Completion.Completed(long bytes) ->
                                all instanceof Completion.Completed(long sum)
                                        ? new Completion.Completed(sum + bytes)
                                        : all;
                    };
        }
        if (revoked && all instanceof Completion.Failed(var failure, _)) {
            all = new Completion.Failed(failure, List.of());
        }
        merged.add(new Completion(id, Completion.ALL_RANKS, all));
    }

    /// Transfers that some rank has reported and another has not.
    int unfinishedMerges() {
        return partial.size();
    }

    @Override
    public void close() {
        scheduler.close();
        workers.forEach(WorkerConnector::close);
        kvferry.close();
        arena.close();
    }

    /// A request of `tokens` tokens that holds blocks 100, 101, ...
    record Request(String id, int tokenCount, TransferParams params, int attempt)
            implements RequestView {
        Request(String id, int tokens) {
            this(id, tokens, TransferParams.EMPTY, 0);
        }

        @Override
        public int promptTokenCount() {
            return tokenCount;
        }

        @Override
        public int token(int position) {
            return position;
        }

        @Override
        public int blockHashCount() {
            return tokenCount / BLOCK;
        }

        @Override
        public BlockHash blockHash(int block) {
            return new BlockHash(block + 1L, 2, 3, 4);
        }

        @Override
        public int computedTokenCount() {
            return 0;
        }

        @Override
        public String cacheSalt() {
            return "";
        }

        BlockTable blocks() {
            int blocks = Math.ceilDiv(tokenCount, BLOCK);
            return new BlockTable() {
                @Override
                public int groups() {
                    return 1;
                }

                @Override
                public int count(int group) {
                    return blocks;
                }

                @Override
                public int block(int group, int position) {
                    return 100 + position;
                }
            };
        }

        StepView.ScheduledRequest scheduled(int computed, int tokens) {
            var request = this;
            return new StepView.ScheduledRequest() {
                @Override
                public RequestView request() {
                    return request;
                }

                @Override
                public boolean admitted() {
                    return true;
                }

                @Override
                public int computedTokens() {
                    return computed;
                }

                @Override
                public int scheduledTokens() {
                    return tokens;
                }

                @Override
                public BlockTable blocks() {
                    return request.blocks();
                }
            };
        }
    }

    private record Step(long number, List<ScheduledRequest> requests) implements StepView {
        @Override
        public int scheduledCount() {
            return requests.size();
        }

        @Override
        public ScheduledRequest scheduled(int index) {
            return requests.get(index);
        }

        @Override
        public List<String> preempted() {
            return List.of();
        }
    }
}
