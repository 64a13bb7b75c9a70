// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/// A content-addressed connector that keeps the contract but otherwise behaves at random: it has
/// some blocks and lacks others, loads late, fails, hangs, reports duplicates, answers revocations
/// late and after writing garbage, reports loads it was never given, holds, leases, and throws.
/// [#answer] makes it answer everything it has left open.
///
/// Threading: the scheduler half on the scheduler thread, each worker half on its rank's.
final class ChaosKv implements KvConnectorProvider {
    /// Block bytes by [#key]; what the worker halves of one process share.
    final Map<String, byte[]> store = new ConcurrentHashMap<>();

    private final String name;
    private final long seed;
    private final Random random;
    private final boolean savesAll;
    private final Set<String> announced = ConcurrentHashMap.newKeySet();
    private final AtomicInteger opened = new AtomicInteger();
    private boolean failsOften;
    private boolean foresees;
    private boolean takesOver;
    private boolean steady;
    private boolean inStep;
    private double foresight;
    private boolean foreseesAttempts;
    private boolean hangs;
    private volatile boolean answers;
    volatile Chaos chaos = Chaos.NONE;

    /// Loads that a scheduler half was given under an id that it had been given before: it could
    /// not tell which of them a completion is of.
    final Set<TransferId> ambiguous = ConcurrentHashMap.newKeySet();

    ChaosKv(String name, long seed) {
        this(name, seed, false);
    }

    /// @param savesAll whether it stores every block, and not only three of four
    ChaosKv(String name, long seed, boolean savesAll) {
        this.name = name;
        this.seed = seed;
        this.random = new Random(seed);
        this.savesAll = savesAll;
    }

    /// Draws new habits.
    void unsettle() {
        var drawn = Chaos.of(random);
        drawn = hangs ? drawn.throwingMore() : drawn;
        chaos =
                inStep
                        ? drawn.inStep()
                        : failsOften
                                ? drawn.failing()
                                : takesOver ? drawn.takingOver() : steady ? drawn.steady() : drawn;
    }

    /// From now on its halves sometimes take long to close and write garbage until they are closed.
    /// It also throws more often, so that they are closed.
    ///
    /// @param far whether the worker halves are in other processes, which [#answer] does not reach
    void hangInClose(boolean far) {
        hangs = true;
        answers = far;
    }

    /// How many worker halves were opened.
    int opened() {
        return opened.get();
    }

    boolean hangs() {
        return hangs;
    }

    /// Whether halves that hang in their close do so for a few milliseconds only.
    boolean answers() {
        return answers;
    }

    /// Never fails, and loads late.
    void beSteady() {
        steady = true;
        chaos = chaos.steady();
    }

    /// Loads within a step, from now on and whatever else it does, and fails often.
    void loadInStep() {
        inStep = true;
        chaos = chaos.inStep();
    }

    /// Offers little, and more when it is asked again.
    void takeOver() {
        takesOver = true;
        chaos = chaos.takingOver();
    }

    /// Reports the end of a load that it may be given later with every other load.
    ///
    /// @param attempts whether of the request's next attempt, else of any load that may come
    void foreseeOften(boolean attempts) {
        foresight = 0.5;
        foreseesAttempts = attempts;
    }

    TransferId foreseen(TransferId id, Random by) {
        return foreseesAttempts
                ? new TransferId(
                        id.subject(), id.attempt() + 1, id.direction(), id.job(), id.child())
                : Chaos.further(id, by);
    }

    /// How often it does, at least.
    double foresight() {
        return foresight;
    }

    /// Loads late, and fails half of its loads, from now on and whatever else it does.
    void failOften() {
        failsOften = true;
        chaos = chaos.failing();
    }

    /// Now and then reports the end of a load that nobody has asked for yet; before its worker
    /// halves are opened.
    void foresee() {
        foresees = true;
    }

    boolean foresees() {
        return foresees;
    }

    /// Answers revocations from now on, also those that it has left open.
    void answer() {
        chaos = chaos.answering();
        answers = true;
    }

    static String key(BlockHash hash, int layer, int rank) {
        return hash.hex() + "/" + layer + "/" + rank;
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
                Feature.SYNC_LOAD,
                Feature.ASYNC_LOAD,
                Feature.SAVE,
                Feature.CONTENT_ADDRESSED,
                Feature.HOLD,
                Feature.BLOCK_LEASES);
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return new Scheduler(context.engine().cache().blockTokens());
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        opened.incrementAndGet();
        return new ChaosKvWorker(this, context, seed);
    }

    private final class Scheduler implements SchedulerConnector {
        private final int blockTokens;
        private final WireWriter loads = new WireWriter();
        private final WireWriter saves = new WireWriter();
        private final WireWriter ends = new WireWriter();
        private int loadCount;
        private int saveCount;
        private int endCount;
        private final Map<String, Integer> saved = new HashMap<>();
        private final Map<TransferId, BlockPool.Lease> leases = new LinkedHashMap<>();
        private final Set<String> unsure = new HashSet<>();
        private final Set<TransferId> assigned = new HashSet<>();
        private Chaos told = Chaos.NONE;
        private @Nullable BlockPool pool;

        Scheduler(int blockTokens) {
            this.blockTokens = blockTokens;
        }

        @Override
        public void bindBlockPool(BlockPool bound) {
            pool = bound;
        }

        private void mayThrow(String where) {
            chaos.mayThrow(random, name + "." + where);
        }

        @Override
        public LookupResult lookup(RequestView request, int localTokens) {
            mayThrow("lookup");
            if (random.nextDouble() < chaos.pending()) {
                return new LookupResult.Pending(Duration.ofNanos(random.nextInt(100_000)));
            }
            if (random.nextDouble() < chaos.miss()) {
                return LookupResult.MISS;
            }
            int first = localTokens / blockTokens;
            int position = first;
            while (position < request.blockHashCount()
                    && announced.contains(request.blockHash(position).hex())) {
                position++;
            }
            if (position > first && random.nextDouble() < chaos.shortHit()) {
                position = first + 1 + random.nextInt(position - first);
            }
            var mode = random.nextDouble() < chaos.sync() ? LoadMode.SYNC : LoadMode.ASYNC;
            int most = request.tokenCount() - (mode == LoadMode.SYNC ? 1 : 0);
            int tokens = Math.min(position * blockTokens, most) - localTokens;
            return tokens <= 0
                    ? LookupResult.MISS
                    : LookupResult.hit(tokens, mode, name, Tier.HOST);
        }

        @Override
        public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
            if (!load.isEmpty() && !assigned.add(load.id())) {
                ambiguous.add(load.id());
            }
            mayThrow("onAllocated");
            if (load.isEmpty()) {
                return;
            }
            loadCount++;
            boolean sync = load.mode() == LoadMode.SYNC;
            if (sync) {
                unsure.add(request.id());
            }
            int from = load.fromToken() / blockTokens;
            int to = Math.ceilDiv(load.toToken(), blockTokens);
            saved.merge(request.id(), to, Math::max);
            load.id().write(loads);
            loads.bool(sync).i32(from).i32(to - from);
            for (int position = from; position < to; position++) {
                block(loads, request, blocks, position);
            }
        }

        private static void block(
                WireWriter out, RequestView request, BlockTable blocks, int position) {
            out.raw(request.blockHash(position).toBytes(), 0, BlockHash.BYTES);
            out.i32(blocks.block(0, position));
        }

        @Override
        public Payload buildPlan(StepView step) {
            mayThrow("buildPlan");
            for (int i = 0; i < step.scheduledCount(); i++) {
                var item = step.scheduled(i);
                var id = item.request().id();
                if (unsure.contains(id)) {
                    continue; // whether what it computes on will be there is not known yet
                }
                int full = (item.computedTokens() + item.scheduledTokens()) / blockTokens;
                for (int position = saved.getOrDefault(id, 0);
                        position < Math.min(full, item.request().blockHashCount());
                        position++) {
                    saved.put(id, position + 1);
                    var hash = item.request().blockHash(position);
                    // by hash, so that siblings have different stretches of one prompt
                    if (savesAll || new Random(seed ^ hash.hashCode()).nextInt(4) > 0) {
                        saveCount++;
                        saves.string(id);
                        block(saves, item.request(), item.blocks(), position);
                        announced.add(hash.hex());
                    }
                }
            }
            unsure.clear();
            step.preempted().forEach(saved::remove);
            var habits = chaos;
            if (loadCount + saveCount + endCount == 0 && habits.equals(told)) {
                return Payload.EMPTY;
            }
            told = habits;
            var plan = new WireWriter();
            habits.write(plan);
            plan.i32(loadCount).raw(loads.toByteArray(), 0, loads.size());
            plan.i32(saveCount).raw(saves.toByteArray(), 0, saves.size());
            plan.i32(endCount).raw(ends.toByteArray(), 0, ends.size());
            for (var part : List.of(loads, saves, ends)) {
                part.reset();
            }
            loadCount = 0;
            saveCount = 0;
            endCount = 0;
            return plan.toPayload(1);
        }

        @Override
        public void onReport(MergedReport report) {
            for (var completion : report.completions()) {
                var lease = leases.remove(completion.id());
                if (lease != null) {
                    lease.close();
                }
            }
            mayThrow("onReport");
        }

        @Override
        public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
            saved.remove(request.id());
            mayThrow("finish");
            if (request.computedTokenCount() == 0 || blocks.groups() == 0 || blocks.count(0) == 0) {
                return FinishDecision.RELEASE;
            }
            var id = TransferId.save(request.id(), request.attempt());
            var until = Deadline.in(Duration.ofSeconds(60));
            boolean holds = random.nextDouble() < chaos.hold();
            if (!holds && pool != null && random.nextDouble() < chaos.hold()) {
                var ids = new ArrayList<Integer>();
                for (int block : blocks.copy(0, 0, blocks.count(0))) {
                    if (block != BlockTable.NO_BLOCK) {
                        ids.add(block);
                    }
                }
                leases.put(
                        id,
                        pool.lease(
                                id, 0, ids.stream().mapToInt(Integer::intValue).toArray(), until));
                endCount++;
                id.write(ends);
                return FinishDecision.RELEASE;
            }
            if (!holds) {
                return FinishDecision.RELEASE;
            }
            endCount++;
            id.write(ends);
            return new FinishDecision.Hold(id, until, TransferParams.EMPTY);
        }

        @Override
        public void close() {}
    }
}
