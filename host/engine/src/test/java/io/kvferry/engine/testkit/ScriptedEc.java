// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.testkit;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;

/// An encoder-cache connector over a map, scripted like [ScriptedKv].
public final class ScriptedEc implements EcConnectorProvider {
    /// Encoder outputs by hash.
    public final Map<String, byte[]> store;

    public final List<String> calls = new CopyOnWriteArrayList<>();
    public volatile LoadMode mode = LoadMode.ASYNC;
    public volatile boolean fail;
    public volatile int delay = 1;
    public volatile boolean hold;
    public volatile Duration holdTime = Duration.ofMillis(10);

    /// Loads are neither done nor failed, and revocations not answered, while it is set.
    public volatile boolean silent;

    /// Transfers whose revocations are answered all the same.
    public final Set<TransferId.Direction> answered = ConcurrentHashMap.newKeySet();

    /// The answer to the revocation of a load.
    public volatile Completion.Result answer = new Completion.Revoked();

    /// Thrown by the next endStep of a worker half.
    public final AtomicReference<@Nullable Error> error = new AtomicReference<>();

    /// Lookups answered Pending before the definite answer.
    public volatile int pendingLookups;

    /// Hashes whose lookups are answered Pending while they are in it.
    public final Set<String> pending = ConcurrentHashMap.newKeySet();

    /// Claimed beside loads, saves and holds.
    public final Set<Feature> more = ConcurrentHashMap.newKeySet();

    /// Not claimed, whatever the halves do.
    public final Set<Feature> unclaimed = ConcurrentHashMap.newKeySet();

    /// What [Feature#PROVIDES_MEMORY] provides.
    public volatile Optional<ProvidedMemory> memory = Optional.empty();

    /// What each rank registered.
    public final Map<Integer, MemoryRange> registered = new ConcurrentHashMap<>();

    /// Where items were filled or saved, in order, by rank.
    public final Map<Integer, List<EncoderOutput>> outputs = new ConcurrentHashMap<>();

    public volatile List<Payload> handshakes = List.of();

    /// When the scheduler half needs a step.
    public volatile Optional<Deadline> work = Optional.empty();

    /// Wakes the engine.
    public volatile Runnable wake = () -> {};

    /// The engine as each half saw it.
    public final List<EngineInfo> engines = new CopyOnWriteArrayList<>();

    public ScriptedEc(Map<String, byte[]> store) {
        this.store = store;
    }

    public ConnectorConfig config() {
        return ConnectorConfig.of(name(), KvRole.BOTH, "engine-1", Map.of());
    }

    @Override
    public String name() {
        return "scripted-ec";
    }

    @Override
    public String description() {
        return "scripted test connector";
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
                EnumSet.of(Feature.SYNC_LOAD, Feature.ASYNC_LOAD, Feature.SAVE, Feature.HOLD);
        features.addAll(more);
        features.removeAll(unclaimed);
        return new ConnectorCapabilities(features, Optional.empty());
    }

    @Override
    public EcSchedulerConnector openScheduler(SchedulerContext context) {
        calls.add("openScheduler");
        engines.add(context.engine());
        wake = context.host()::wake;
        return new SchedulerHalf();
    }

    @Override
    public EcWorkerConnector openWorker(WorkerContext context) {
        engines.add(context.engine());
        return new WorkerHalf(context.rank().rank());
    }

    private final class SchedulerHalf implements EcSchedulerConnector {
        private final WireWriter plan = new WireWriter();

        @Override
        public void onHandshakes(List<Payload> byRank) {
            calls.add("onHandshakes");
            handshakes = List.copyOf(byRank);
        }

        @Override
        public Optional<Deadline> pendingWork() {
            return work;
        }

        @Override
        public LookupResult lookup(EcItem item) {
            calls.add("lookup " + item.hash());
            if (pending.contains(item.hash())) {
                return new LookupResult.Pending(Duration.ofMillis(1));
            }
            if (pendingLookups > 0) {
                pendingLookups--;
                return new LookupResult.Pending(Duration.ofMillis(1));
            }
            return store.containsKey(item.hash())
                    ? LookupResult.hit(item.embeddings(), mode, name(), Tier.HOST)
                    : LookupResult.MISS;
        }

        @Override
        public void onAllocated(EcItem item, Optional<TransferId> load) {
            calls.add("onAllocated " + item.hash() + (load.isPresent() ? " load" : " encode"));
            load.ifPresent(id -> {
                id.write(plan);
                plan.bool(mode == LoadMode.SYNC);
                item.write(plan);
            });
        }

        @Override
        public void onFreed(String hash) {
            calls.add("onFreed " + hash);
        }

        @Override
        public Payload buildPlan(long step) {
            calls.add("buildPlan");
            var payload = plan.toPayload(1);
            plan.reset();
            return payload;
        }

        @Override
        public FinishDecision finish(String requestId, FinishReason reason) {
            calls.add("finish " + requestId);
            var params = new TransferParams(Map.of("ec", requestId));
            return hold
                    ? new FinishDecision.Hold(
                            TransferId.save(requestId, 0), Deadline.in(holdTime), params)
                    : new FinishDecision.Release(params);
        }

        @Override
        public void close() {}
    }

    private final class WorkerHalf implements EcWorkerConnector {
        private final int rank;
        private final TreeMap<Long, List<Runnable>> later = new TreeMap<>();
        private final List<Completion> done = new ArrayList<>();
        private final List<TransferId> unanswered = new ArrayList<>();
        private final Set<TransferId> ended = new HashSet<>();

        WorkerHalf(int rank) {
            this.rank = rank;
        }

        @Override
        public Optional<ProvidedMemory> provideMemory(long bytes) {
            calls.add("provideMemory");
            return memory;
        }

        @Override
        public void registerMemory(MemoryRange all) {
            calls.add("registerMemory");
            registered.put(rank, all);
        }

        @Override
        public Payload handshake() {
            calls.add("handshake");
            return new WireWriter().i32(rank).toPayload(1);
        }

        private EncoderOutput seen(EncoderOutput output) {
            outputs.computeIfAbsent(rank, _ -> new CopyOnWriteArrayList<>()).add(output);
            return output;
        }

        @Override
        public void beginStep(WorkerStep step, EncoderCache cache) {
            unanswered.addAll(step.revoked());
            unanswered.removeIf(id -> answers(id, cache));
            var in = step.plan().reader();
            while (in.remaining() > 0) {
                var id = TransferId.read(in);
                boolean sync = in.bool();
                var item = EcItem.read(in);
                later.computeIfAbsent(step.number() + (sync ? 0 : delay), _ -> new ArrayList<>())
                        .add(() -> load(id, item, cache));
            }
            while (!silent && !later.isEmpty() && later.firstKey() <= step.number()) {
                later.pollFirstEntry().getValue().forEach(Runnable::run);
            }
        }

        private boolean answers(TransferId id, EncoderCache cache) {
            if (silent && !answered.contains(id.direction())) {
                return false;
            }
            boolean isHold = id.direction() == TransferId.Direction.SAVE;
            if (!isHold) {
                cache.discard(id.subject());
            }
            done.add(new Completion(id, rank, isHold ? new Completion.Revoked() : answer));
            ended.add(id);
            return true;
        }

        private void load(TransferId id, EcItem item, EncoderCache cache) {
            if (ended.contains(id)) {
                return;
            }
            var bytes = store.get(item.hash());
            if (fail || bytes == null) {
                done.add(
                        new Completion(
                                id,
                                rank,
                                new Completion.Failed(
                                        new Failure(ErrorCode.MISS, "scripted"), List.of())));
                return;
            }
            var output = seen(cache.allocate(item));
            MemorySegment.copy(bytes, 0, output.data(), ValueLayout.JAVA_BYTE, 0, bytes.length);
            cache.publish(item.hash());
            done.add(new Completion(id, rank, new Completion.Completed(bytes.length)));
        }

        @Override
        public void save(EcItem item, EncoderOutput output) {
            calls.add("save " + item.hash());
            seen(output);
            store.put(item.hash(), output.data().toArray(ValueLayout.JAVA_BYTE));
        }

        @Override
        public void endStep(WorkerStep step) {
            var thrown = error.getAndSet(null);
            if (thrown != null) {
                throw thrown;
            }
        }

        @Override
        public StepReport report(WorkerStep step) {
            var report =
                    new StepReport(
                            rank, step.number(), done, Payload.EMPTY, Stats.EMPTY, List.of());
            done.clear();
            return report;
        }

        @Override
        public void close() {
            calls.add("close worker");
        }
    }
}
