// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.testkit;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;

/// A connector over a map that loads a layer when it is awaited, not before, and saves a layer when
/// it is told that it is computed, not after: what the engine does not call for is not there.
public final class LayerwiseKv implements KvConnectorProvider {
    /// Block bytes by (hash, layer, rank).
    public final Map<String, byte[]> store = new ConcurrentHashMap<>();

    /// `beginStep`, `awaitLayer N`, `saveLayer N`, `endStep` of rank 0, in order.
    public final List<String> calls = new CopyOnWriteArrayList<>();

    /// The layer from which on nothing is delivered; -1 for none.
    public volatile int failingLayer = -1;

    /// The call that throws, once.
    public volatile String throwIn = "";

    /// Whether the two features are claimed.
    public volatile boolean claimed = true;

    public ConnectorConfig config(LoadFailurePolicy policy) {
        return new ConnectorConfig(
                name(), KvRole.BOTH, "engine-1", "cpu", 0, -1, 1, "127.0.0.1", 1, policy, Map.of());
    }

    @Override
    public String name() {
        return "layerwise";
    }

    @Override
    public String description() {
        return "scripted test connector that works by layers";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.NONE;
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        var features =
                EnumSet.of(
                        Feature.SYNC_LOAD,
                        Feature.SAVE,
                        Feature.CONTENT_ADDRESSED,
                        Feature.SEVERAL_GROUPS);
        if (claimed) {
            features.add(Feature.LAYERWISE_LOAD);
            features.add(Feature.LAYERWISE_SAVE);
        }
        return new ConnectorCapabilities(features, Optional.empty());
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return new SchedulerHalf(context);
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        return new WorkerHalf(context.rank().rank());
    }

    private static String key(BlockHash hash, int layer, int rank) {
        return hash.hex() + "/" + layer + "/" + rank;
    }

    private final class SchedulerHalf implements SchedulerConnector {
        private final int blockTokens;
        private final int groups;
        private final List<byte[]> loads = new ArrayList<>();
        private final Set<String> loading = new HashSet<>();
        private final Map<String, Integer> saved = new HashMap<>();

        SchedulerHalf(SchedulerContext context) {
            blockTokens = context.engine().cache().blockTokens();
            groups = context.engine().cache().groups().size();
        }

        @Override
        public LookupResult lookup(RequestView request, int localTokens) {
            int first = localTokens / blockTokens;
            int most = Math.min(request.blockHashCount(), (request.tokenCount() - 1) / blockTokens);
            int next = first;
            while (next < most && store.containsKey(key(request.blockHash(next), 0, 0))) {
                next++;
            }
            return next == first
                    ? LookupResult.MISS
                    : LookupResult.hit(
                            (next - first) * blockTokens, LoadMode.SYNC, name(), Tier.HOST);
        }

        @Override
        public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
            if (load.isEmpty()) {
                return;
            }
            int from = load.fromToken() / blockTokens;
            int to = load.toToken() / blockTokens;
            var out = new WireWriter();
            load.id().write(out);
            out.i32(from).i32(to - from);
            for (int position = from; position < to; position++) {
                block(out, request, blocks, position);
            }
            loads.add(out.toByteArray());
            loading.add(request.id());
        }

        private void block(WireWriter out, RequestView request, BlockTable blocks, int position) {
            out.raw(request.blockHash(position).toBytes(), 0, BlockHash.BYTES);
            for (int group = 0; group < groups; group++) {
                out.i32(blocks.block(group, position));
            }
        }

        @Override
        public Payload buildPlan(StepView step) {
            var saves = new WireWriter();
            int count = 0;
            for (int i = 0; i < step.scheduledCount(); i++) {
                var item = step.scheduled(i);
                if (loading.contains(item.request().id())) {
                    continue; // whether the load in this step succeeds is not known yet
                }
                int full = (item.computedTokens() + item.scheduledTokens()) / blockTokens;
                int done = saved.getOrDefault(item.request().id(), 0);
                for (; done < Math.min(full, item.request().blockHashCount()); done++) {
                    block(saves, item.request(), item.blocks(), done);
                    count++;
                }
                saved.put(item.request().id(), done);
            }
            step.preempted().forEach(saved::remove);
            loading.clear();
            if (loads.isEmpty() && count == 0) {
                return Payload.EMPTY;
            }
            var plan = new WireWriter().i32(groups).i32(loads.size());
            loads.forEach(load -> plan.raw(load, 0, load.length));
            loads.clear();
            plan.i32(count).raw(saves.toByteArray(), 0, saves.size());
            return plan.toPayload(1);
        }

        @Override
        public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
            saved.remove(request.id());
            return FinishDecision.RELEASE;
        }

        @Override
        public void close() {}
    }

    /// A block of the plan: its hash, and its id in each group.
    @SuppressWarnings("ArrayRecordComponent") // never compared
    private record Planned(BlockHash hash, int[] ids) {}

    /// A load of the plan.
    private record Load(TransferId id, int from, List<Planned> blocks) {}

    private final class WorkerHalf implements WorkerConnector {
        private final int rank;
        private final List<Load> loads = new ArrayList<>();
        private final List<Planned> saves = new ArrayList<>();
        private List<KvRegion> regions = List.of();

        WorkerHalf(int rank) {
            this.rank = rank;
        }

        private void call(String what) {
            if (rank == 0) {
                calls.add(what);
            }
            if (what.equals(throwIn)) {
                throwIn = "";
                throw new IllegalStateException("scripted: " + what);
            }
        }

        @Override
        public void registerRegions(List<KvRegion> all) {
            regions = all;
        }

        @Override
        public void beginStep(WorkerStep step) {
            call("beginStep");
            loads.clear();
            saves.clear();
            if (step.plan().isEmpty()) {
                return;
            }
            var in = step.plan().reader();
            int groups = in.i32();
            for (int n = in.i32(); n > 0; n--) {
                var id = TransferId.read(in);
                int from = in.i32();
                loads.add(new Load(id, from, planned(in, groups)));
            }
            saves.addAll(planned(in, groups));
            in.end();
            loads.forEach(load -> load.blocks.forEach(this::poison));
        }

        private List<Planned> planned(WireReader in, int groups) {
            var blocks = new ArrayList<Planned>();
            for (int n = in.i32(); n > 0; n--) {
                var hash = BlockHash.of(in.raw(BlockHash.BYTES), 0);
                var ids = new int[groups];
                for (int group = 0; group < groups; group++) {
                    ids[group] = in.i32();
                }
                blocks.add(new Planned(hash, ids));
            }
            return blocks;
        }

        private void poison(Planned block) {
            regions.forEach(region -> target(region, block).fill((byte) 0x5a));
        }

        private static MemorySegment target(KvRegion region, Planned block) {
            return region.block(block.ids[region.group()]);
        }

        @Override
        public void awaitLayer(int layerIndex, Deadline limit) {
            call("awaitLayer " + layerIndex);
            if (failingLayer >= 0 && layerIndex >= failingLayer) {
                return;
            }
            var region = regions.get(layerIndex);
            for (var load : loads) {
                for (var block : load.blocks) {
                    var bytes = store.get(key(block.hash, layerIndex, rank));
                    if (bytes != null) {
                        target(region, block).copyFrom(MemorySegment.ofArray(bytes));
                    }
                }
            }
        }

        @Override
        public void saveLayer(int layerIndex) {
            call("saveLayer " + layerIndex);
            var region = regions.get(layerIndex);
            for (var block : saves) {
                store.put(
                        key(block.hash, layerIndex, rank),
                        target(region, block).toArray(ValueLayout.JAVA_BYTE));
            }
        }

        @Override
        public void endStep(WorkerStep step, Set<String> notComputed) {
            call("endStep");
        }

        @Override
        public StepReport report(WorkerStep step) {
            var completions = loads.stream().map(this::completion).toList();
            loads.clear();
            return new StepReport(
                    rank, step.number(), completions, Payload.EMPTY, Stats.EMPTY, List.of());
        }

        private Completion completion(Load load) {
            if (failingLayer < 0) {
                return new Completion(load.id, rank, new Completion.Completed(load.blocks.size()));
            }
            var positions = new int[load.blocks.size()];
            for (int i = 0; i < positions.length; i++) {
                positions[i] = load.from + i;
            }
            return new Completion(
                    load.id,
                    rank,
                    new Completion.Failed(
                            new Failure(ErrorCode.STORAGE_IO, "scripted failure"),
                            List.of(
                                    new Completion.FailedBlocks(
                                            regions.get(failingLayer).group(), positions))));
        }

        @Override
        public void close() {}
    }
}
