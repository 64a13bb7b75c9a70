// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
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
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/// An encoder-cache connector that keeps its contract and otherwise behaves at random, as
/// [ChaosKv].
final class ChaosEc implements EcConnectorProvider {
    /// Encoder outputs by hash; rank 0 saves them.
    final Map<String, byte[]> store = new ConcurrentHashMap<>();

    private final Set<String> announced = ConcurrentHashMap.newKeySet();
    private final String name;
    private final boolean far;
    private final long seed;
    private final ChaosItemLoads itemLoads;
    private final Random random;
    private boolean foresees;
    private boolean failsOften;
    private boolean slow;
    private boolean unanswering;
    volatile Chaos chaos = Chaos.NONE;

    /// @param far whether the worker halves are in other processes, each with a store of its own
    /// @param itemLoads of all leaves
    ChaosEc(String name, long seed, boolean far, ChaosItemLoads itemLoads) {
        this.itemLoads = itemLoads;
        this.far = far;
        this.name = name;
        this.seed = seed;
        this.random = new Random(seed);
    }

    void unsettle() {
        var drawn = Chaos.of(random);
        chaos =
                failsOften
                        ? drawn.failing()
                        : slow ? drawn.slow() : unanswering ? drawn.unanswering() : drawn;
    }

    /// As [ChaosKv#failOften].
    void failOften() {
        failsOften = true;
        chaos = chaos.failing();
    }

    /// Never fails, and loads late.
    void beSlow() {
        slow = true;
        chaos = chaos.slow();
    }

    /// Leaves half of its loads undone, and answers no revocation until [#answer].
    void leaveUnanswered() {
        unanswering = true;
        chaos = chaos.unanswering();
    }

    void answer() {
        chaos = chaos.answering();
    }

    /// As [ChaosKv#foresee].
    void foresee() {
        foresees = true;
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public String description() {
        return "behaves at random";
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
        return ConnectorCapabilities.of(
                Feature.SYNC_LOAD, Feature.ASYNC_LOAD, Feature.SAVE, Feature.HOLD);
    }

    @Override
    public EcSchedulerConnector openScheduler(SchedulerContext context) {
        return new Scheduler();
    }

    @Override
    public EcWorkerConnector openWorker(WorkerContext context) {
        return new Worker(context.rank().rank(), context.rank().worldSize());
    }

    private final class Scheduler implements EcSchedulerConnector {
        private final WireWriter loads = new WireWriter();
        private final WireWriter ends = new WireWriter();
        private int loadCount;
        private int endCount;
        private final Map<String, LoadMode> promised = new LinkedHashMap<>();
        private Chaos told = Chaos.NONE;

        private void mayThrow(String where) {
            chaos.mayThrow(random, name + "." + where);
        }

        @Override
        public LookupResult lookup(EcItem item) {
            mayThrow("lookup");
            if (random.nextDouble() < chaos.pending()) {
                return new LookupResult.Pending(Duration.ofNanos(random.nextInt(100_000)));
            }
            if (!(store.containsKey(item.hash()) || announced.contains(item.hash()))
                    || random.nextDouble() < chaos.miss()) {
                return LookupResult.MISS;
            }
            var mode = random.nextDouble() < chaos.sync() ? LoadMode.SYNC : LoadMode.ASYNC;
            promised.put(item.hash(), mode);
            return LookupResult.hit(item.embeddings(), mode, name, Tier.HOST);
        }

        @Override
        public void onAllocated(EcItem item, Optional<TransferId> load) {
            mayThrow("onAllocated");
            if (far && load.isEmpty()) {
                announced.add(item.hash()); // it will be encoded, and perhaps saved
            }
            load.ifPresent(id -> {
                loadCount++;
                id.write(loads);
                loads.bool(promised.get(item.hash()) == LoadMode.SYNC);
                item.write(loads);
            });
        }

        @Override
        public Payload buildPlan(long step) {
            mayThrow("buildPlan");
            var now = chaos;
            if (loadCount + endCount == 0 && now.equals(told)) {
                return Payload.EMPTY;
            }
            told = now;
            var plan = new WireWriter();
            now.write(plan);
            plan.i32(loadCount).raw(loads.toByteArray(), 0, loads.size());
            plan.i32(endCount).raw(ends.toByteArray(), 0, ends.size());
            loads.reset();
            ends.reset();
            loadCount = 0;
            endCount = 0;
            return plan.toPayload(1);
        }

        @Override
        public FinishDecision finish(String requestId, FinishReason reason) {
            mayThrow("finish");
            if (random.nextDouble() >= chaos.hold()) {
                return FinishDecision.RELEASE;
            }
            var id = TransferId.save(requestId, 0);
            endCount++;
            id.write(ends);
            return new FinishDecision.Hold(
                    id, Deadline.in(Duration.ofSeconds(60)), TransferParams.EMPTY);
        }

        @Override
        public void close() {}
    }

    private final class Worker implements EcWorkerConnector {
        private final int rank;
        private final int ranks;
        private final Random own;
        private final Random foresight;
        private Chaos habits = Chaos.NONE;
        private final Map<TransferId, Load> loads = new LinkedHashMap<>();
        private final Set<TransferId> unanswered = new LinkedHashSet<>();
        private final Set<TransferId> ended = new HashSet<>();
        private final List<Completion> now = new ArrayList<>();

        private record Load(EcItem item, long due) {}

        Worker(int rank, int ranks) {
            this.rank = rank;
            this.ranks = ranks;
            this.own = new Random(seed * 37 + rank);
            this.foresight = new Random(seed * 43 + rank);
        }

        private void mayThrow(String where) {
            habits.mayThrow(own, name + "." + where + " on rank " + rank);
        }

        @Override
        public void beginStep(WorkerStep step, EncoderCache cache) {
            mayThrow("beginStep");
            step.revoked().stream().filter(id -> !ended.contains(id)).forEach(unanswered::add);
            if (!step.plan().isEmpty()) {
                plan(step);
            }
            for (var id : List.copyOf(unanswered)) {
                if (own.nextDouble() >= habits.silent()) {
                    unanswered.remove(id);
                    loads.remove(id);
                    end(id, new Completion.Revoked());
                }
            }
            for (var entry : List.copyOf(loads.entrySet())) {
                if (entry.getValue().due <= step.number()) {
                    loads.remove(entry.getKey());
                    execute(entry.getKey(), entry.getValue().item, cache);
                }
            }
        }

        private void plan(WorkerStep step) {
            var in = step.plan().reader();
            habits = Chaos.read(in);
            for (int n = in.i32(); n > 0; n--) {
                var id = TransferId.read(in);
                boolean sync = in.bool();
                var item = EcItem.read(in);
                if (!ended.contains(id) && !unanswered.contains(id)) {
                    long due =
                            sync
                                    ? step.number()
                                    : own.nextDouble() < habits.never()
                                            ? Long.MAX_VALUE
                                            : step.number() + own.nextInt(habits.late() + 1);
                    loads.put(id, new Load(item, due));
                }
            }
            for (int n = in.i32(); n > 0; n--) {
                var id = TransferId.read(in);
                if (!ended.contains(id) && own.nextDouble() >= habits.never()) {
                    end(id, new Completion.Completed(0));
                }
            }
            in.end();
        }

        private void execute(TransferId id, EcItem item, EncoderCache cache) {
            if (cache.get(item.hash()).isPresent()) {
                // a load failed on another rank only: what it brought here stays as it is
                itemLoads.again(name, id, item.hash(), rank, ranks);
                itemLoads.loaded(name, id, item.hash(), rank);
                end(id, new Completion.Completed(0));
                return;
            }
            var bytes = store.get(item.hash());
            if (bytes == null || own.nextDouble() < habits.fail()) {
                end(
                        id,
                        new Completion.Failed(
                                new Failure(ErrorCode.STORAGE_IO, "injected failure"), List.of()));
                return;
            }
            var output = cache.allocate(item);
            MemorySegment.copy(bytes, 0, output.data(), ValueLayout.JAVA_BYTE, 0, bytes.length);
            cache.publish(item.hash());
            itemLoads.loaded(name, id, item.hash(), rank);
            end(id, new Completion.Completed(bytes.length));
        }

        private void end(TransferId id, Completion.Result result) {
            ended.add(id);
            var completion = new Completion(id, rank, result);
            now.add(completion);
            if (own.nextDouble() < habits.twice()) {
                now.add(completion);
            }
            if (id.direction() == TransferId.Direction.LOAD) {
                foresee(id);
            }
        }

        private void foresee(TransferId id) {
            if (foresees && foresight.nextDouble() < habits.twice() / 2) {
                var next = Chaos.further(id, foresight);
                if (!loads.containsKey(next)
                        && !unanswered.contains(next)
                        && !ended.contains(next)) {
                    now.add(new Completion(next, rank, new Completion.Completed(0)));
                }
            }
        }

        @Override
        public void save(EcItem item, EncoderOutput output) {
            mayThrow("save");
            if ((rank == 0 || far) && own.nextInt(3) > 0) {
                store.put(item.hash(), output.data().toArray(ValueLayout.JAVA_BYTE));
            }
        }

        @Override
        public void endStep(WorkerStep step) {
            mayThrow("endStep");
        }

        @Override
        public StepReport report(WorkerStep step) {
            loads.keySet().forEach(this::foresee);
            for (var completion : now) {
                if (completion.result() instanceof Completion.Completed) {
                    itemLoads.reported(name, completion.id(), rank);
                }
            }
            var report =
                    new StepReport(rank, step.number(), now, Payload.EMPTY, Stats.EMPTY, List.of());
            now.clear();
            return report;
        }

        @Override
        public void close() {
            loads.clear();
        }
    }
}
