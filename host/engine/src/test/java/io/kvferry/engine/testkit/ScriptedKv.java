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
import io.kvferry.spi.kv.BlockPool;
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
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.LongFunction;

/// A content-addressed connector over a map, whose halves do what the test tells them: delay, fail,
/// corrupt, stay silent, repeat themselves, throw. One object per engine; give it another's
/// [#store] to share one.
public final class ScriptedKv implements KvConnectorProvider {
    /// What the worker half does with a load.
    public enum OnLoad {
        COMPLETE,
        FAIL_ALL,
        FAIL_FIRST_BLOCK,
        FAIL_LAST_BLOCK,
        NEVER
    }

    /// Block bytes by (hash, layer, rank).
    public final Map<String, byte[]> store;

    /// Every call on either half, in order.
    public final List<String> calls = new CopyOnWriteArrayList<>();

    public volatile LoadMode mode = LoadMode.ASYNC;
    public volatile OnLoad onLoad = OnLoad.COMPLETE;

    /// Steps an asynchronous load takes, by rank: `delay + rank * delayPerRank`.
    public volatile int delay = 1;

    public volatile int delayPerRank;

    /// Lookups answered Pending before the definite answer.
    public volatile int pendingLookups;

    public volatile boolean save = true;
    public volatile boolean load = true;

    /// Finish answers Hold, completed after `holdSteps` steps (never when negative).
    public volatile boolean hold;

    public volatile int holdSteps = 1;
    public volatile Duration holdFor = Duration.ofSeconds(60);

    /// Leases the blocks of each finished request's save, closed when reported after `holdSteps`
    /// steps.
    public volatile boolean lease;

    public volatile boolean answerRevocations = true;
    public volatile boolean reportTwice;
    public volatile boolean corrupt;

    /// Memory for the cache of a rank, which it then claims to provide.
    public volatile Optional<LongFunction<ProvidedMemory>> memory = Optional.empty();

    /// Whether it claims that it can be reset. It forgets nothing then: the test says what is so.
    public volatile boolean resettable;

    /// Reports that a reset takes to end, as one does that waits for saves.
    public volatile int resetReports;

    /// Reads the cache for the last time when a worker half is closed, as a save on its way does.
    public volatile boolean readsWhenClosed;

    /// When the scheduler half says that it needs a step.
    public volatile Optional<Deadline> work = Optional.empty();

    /// Wakes the engine, once its scheduler half is open.
    public volatile Runnable wake = () -> {};

    /// The pool as the scheduler half got it; scheduler thread only.
    public volatile @Nullable BlockPool boundPool;

    /// Runs last when a worker half is closed.
    public volatile Runnable onCloseWorker = () -> {};

    /// Runs first when a worker half is opened.
    public Consumer<WorkerContext> onOpenWorker = _ -> {};

    /// What it may be configured with.
    public volatile OptionSchema options = OptionSchema.NONE;

    /// Name of the method that throws, once, or so often.
    public volatile String throwIn = "";

    public final AtomicInteger throwsLeft = new AtomicInteger();

    /// Makes what is thrown out of the method's message.
    public volatile Function<String, Throwable> thrown = IllegalStateException::new;

    /// Tokens promised beyond what is legal.
    public volatile int excess;

    /// Promise what was saved through this object, wherever the bytes are.
    public volatile boolean announced;

    private final Set<String> saves = ConcurrentHashMap.newKeySet();
    private final Map<String, Integer> lookupsLeft = new HashMap<>();
    public volatile List<Payload> handshakes = List.of();

    public ScriptedKv() {
        this(new ConcurrentHashMap<>());
    }

    public ScriptedKv(Map<String, byte[]> store) {
        this.store = store;
    }

    public ConnectorConfig config(LoadFailurePolicy policy) {
        return new ConnectorConfig(
                name(), KvRole.BOTH, "engine-1", "cpu", 0, -1, 1, "127.0.0.1", 1, policy, Map.of());
    }

    private void call(String what) {
        calls.add(what);
        int end = what.indexOf(' ');
        if ((end < 0 ? what : what.substring(0, end)).equals(throwIn)) {
            if (throwsLeft.decrementAndGet() <= 0) {
                throwIn = "";
                throwsLeft.set(0);
            }
            throwAny(thrown.apply("scripted: " + what));
        }
    }

    @SuppressWarnings("unchecked")
    private static <T extends Throwable> void throwAny(Throwable any) throws T {
        throw (T) any;
    }

    @Override
    public String name() {
        return "scripted";
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
        return options;
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        var features =
                EnumSet.of(
                        Feature.SYNC_LOAD,
                        Feature.ASYNC_LOAD,
                        Feature.SAVE,
                        Feature.CONTENT_ADDRESSED,
                        Feature.HOLD,
                        Feature.SEVERAL_GROUPS,
                        Feature.BLOCK_LEASES,
                        Feature.HANDSHAKE);
        if (memory.isPresent()) {
            features.add(Feature.PROVIDES_MEMORY);
        }
        if (resettable) {
            features.add(Feature.RESET);
        }
        return new ConnectorCapabilities(features, Optional.empty());
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        call("openScheduler");
        return new SchedulerHalf(context);
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        call("openWorker " + context.rank().rank());
        onOpenWorker.accept(context);
        return new WorkerHalf(context);
    }

    static String key(BlockHash hash, int layer, int rank) {
        return hash.hex() + "/" + layer + "/" + rank;
    }

    private final class SchedulerHalf implements SchedulerConnector {
        private CompletableFuture<Boolean> reset = new CompletableFuture<>();
        private int reportsToReset = -1;
        private final SchedulerContext context;
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
        private @Nullable BlockPool pool;

        SchedulerHalf(SchedulerContext context) {
            this.context = context;
            this.blockTokens = context.engine().cache().blockTokens();
            wake = context.host()::wake;
        }

        @Override
        public CompletionStage<Boolean> resetCache(Deadline limit) {
            call("resetCache");
            reset = new CompletableFuture<>();
            reportsToReset = resetReports;
            mayEndReset();
            return reset;
        }

        private void mayEndReset() {
            if (reportsToReset >= 0 && reportsToReset-- == 0) {
                reset.complete(true);
            }
        }

        @Override
        public void bindBlockPool(BlockPool bound) {
            call("bindBlockPool");
            pool = bound;
            boundPool = bound;
        }

        @Override
        public void onHandshakes(List<Payload> byRank) {
            call("onHandshakes " + byRank.size());
            handshakes = List.copyOf(byRank);
        }

        @Override
        public void onRequest(RequestView request) {
            call("onRequest " + request.id());
            lookupsLeft.put(request.id(), pendingLookups);
        }

        @Override
        public LookupResult lookup(RequestView request, int localTokens) {
            call("lookup " + request.id() + " " + localTokens);
            if (lookupsLeft.merge(request.id(), -1, Integer::sum) >= 0) {
                return new LookupResult.Pending(Duration.ZERO);
            }
            if (!load) {
                return LookupResult.MISS;
            }
            int position = localTokens / blockTokens;
            while (position < request.blockHashCount() && has(request.blockHash(position))) {
                position++;
            }
            int most = request.tokenCount() - (mode == LoadMode.SYNC ? 1 : 0);
            int tokens = Math.min(position * blockTokens, most) - localTokens + excess;
            return tokens <= 0
                    ? LookupResult.MISS
                    : LookupResult.hit(tokens, mode, name(), Tier.HOST);
        }

        private boolean has(BlockHash hash) {
            return announced
                    ? ScriptedKv.this.saves.contains(hash.hex())
                    : store.containsKey(key(hash, 0, 0));
        }

        @Override
        public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment assignment) {
            call(
                    "onAllocated "
                            + request.id()
                            + " "
                            + assignment.fromToken()
                            + " "
                            + assignment.toToken());
            if (assignment.isEmpty()) {
                return;
            }
            loadCount++;
            if (assignment.mode() == LoadMode.SYNC) {
                unsure.add(request.id());
            }
            saved.put(request.id(), (assignment.toToken() + blockTokens - 1) / blockTokens);
            assignment.id().write(loads);
            int from = assignment.fromToken() / blockTokens;
            int to = (assignment.toToken() + blockTokens - 1) / blockTokens;
            loads.bool(assignment.mode() == LoadMode.SYNC).i32(from).i32(to - from);
            for (int position = from; position < to; position++) {
                blocks(loads, request, blocks, position);
            }
        }

        private static void blocks(
                WireWriter out, RequestView request, BlockTable blocks, int position) {
            out.raw(request.blockHash(position).toBytes(), 0, BlockHash.BYTES);
            for (int group = 0; group < blocks.groups(); group++) {
                out.i32(blocks.block(group, position));
            }
        }

        @Override
        public Payload buildPlan(StepView step) {
            call("buildPlan " + step.number());
            for (int i = 0; save && i < step.scheduledCount(); i++) {
                var item = step.scheduled(i);
                if (unsure.contains(item.request().id())) {
                    // Whether the load succeeds is not known yet, nor what is computed after it.
                    continue;
                }
                int full = (item.computedTokens() + item.scheduledTokens()) / blockTokens;
                for (int position = saved.getOrDefault(item.request().id(), 0);
                        position < Math.min(full, item.request().blockHashCount());
                        position++) {
                    saveCount++;
                    saves.string(item.request().id());
                    blocks(saves, item.request(), item.blocks(), position);
                    ScriptedKv.this.saves.add(item.request().blockHash(position).hex());
                    saved.put(item.request().id(), position + 1);
                }
            }
            unsure.clear();
            step.preempted().forEach(saved::remove);
            if (loadCount + saveCount + endCount == 0) {
                return Payload.EMPTY;
            }
            var plan = new WireWriter().i32(context.engine().cache().groups().size());
            part(plan, loadCount, loads);
            part(plan, saveCount, saves);
            part(plan, endCount, ends);
            loadCount = 0;
            saveCount = 0;
            endCount = 0;
            return plan.toPayload(1);
        }

        private static void part(WireWriter plan, int count, WireWriter content) {
            plan.i32(count).raw(content.toByteArray(), 0, content.size());
            content.reset();
        }

        @Override
        public void onReport(MergedReport report) {
            call("onReport " + report.step() + " " + report.completions().size());
            mayEndReset();
            for (var completion : report.completions()) {
                var open = leases.remove(completion.id());
                if (open != null) {
                    open.close();
                }
            }
        }

        @Override
        public Optional<Deadline> pendingWork() {
            return work;
        }

        @Override
        public void onRevoked(TransferId id) {
            call("onRevoked " + id);
        }

        @Override
        public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
            call(
                    "finish "
                            + request.id()
                            + " "
                            + reason
                            + " "
                            + (blocks.groups() == 0 ? 0 : blocks.count(0)));
            saved.remove(request.id());
            lookupsLeft.remove(request.id());
            boolean computed = request.computedTokenCount() > 0;
            var id = TransferId.save(request.id(), request.attempt());
            if ((hold || lease) && computed) {
                endCount++;
                id.write(ends);
            }
            if (lease && computed) {
                leases.put(
                        id,
                        Objects.requireNonNull(pool)
                                .lease(
                                        id,
                                        0,
                                        blocks.copy(0, 0, blocks.count(0)),
                                        Deadline.in(holdFor)));
            }
            return hold && computed
                    ? new FinishDecision.Hold(
                            id,
                            Deadline.in(holdFor),
                            new TransferParams(Map.of("held", id.toString())))
                    : new FinishDecision.Release(new TransferParams(Map.of("done", true)));
        }

        @Override
        public void close() {
            call("closeScheduler");
        }
    }

    private final class WorkerHalf implements WorkerConnector {
        private final WorkerContext context;
        private final int rank;
        private List<KvRegion> regions = List.of();

        /// Completions by the step in which they are due.
        private final TreeMap<Long, List<Completion>> due = new TreeMap<>();

        private final List<Completion> now = new ArrayList<>();

        WorkerHalf(WorkerContext context) {
            this.context = context;
            this.rank = context.rank().rank();
        }

        @Override
        public Optional<ProvidedMemory> provideMemory(long bytes) {
            call("provideMemory " + rank);
            return memory.map(source -> source.apply(bytes));
        }

        @Override
        public void registerRegions(List<KvRegion> all) {
            call("registerRegions " + rank);
            regions = all;
        }

        @Override
        public Payload handshake() {
            return new WireWriter().i32(rank).toPayload(1);
        }

        @Override
        public void beginStep(WorkerStep step) {
            call("beginStep " + rank + " " + step.number());
            if (answerRevocations) {
                for (var id : step.revoked()) {
                    due.values()
                            .forEach(list ->
                                    list.removeIf(completion -> completion.id().equals(id)));
                    now.add(new Completion(id, rank, new Completion.Revoked()));
                }
            }
            if (step.plan().isEmpty()) {
                return;
            }
            var in = step.plan().reader();
            int groups = in.i32();
            for (int n = in.i32(); n > 0; n--) {
                var id = TransferId.read(in);
                boolean sync = in.bool();
                int from = in.i32();
                int count = in.i32();
                load(in, groups, id, sync, from, count, step.number());
            }
        }

        private void load(
                WireReader in,
                int groups,
                TransferId id,
                boolean sync,
                int from,
                int count,
                long step) {
            int failing =
                    switch (onLoad) {
                        case COMPLETE, NEVER -> -1;
                        case FAIL_ALL, FAIL_FIRST_BLOCK -> 0;
                        case FAIL_LAST_BLOCK -> count - 1;
                    };
            boolean lost = false;
            for (int i = 0; i < count; i++) {
                var hash = BlockHash.of(in.raw(BlockHash.BYTES), 0);
                for (int group = 0; group < groups; group++) {
                    int block = in.i32();
                    boolean good =
                            onLoad == OnLoad.COMPLETE
                                    || i < failing
                                    || (onLoad == OnLoad.FAIL_FIRST_BLOCK && i > 0);
                    lost |= !copyIn(hash, group, block, good);
                }
            }
            Completion.Result result =
                    failing < 0 && !lost
                            ? new Completion.Completed(count)
                            : new Completion.Failed(
                                    new Failure(ErrorCode.STORAGE_IO, "scripted failure"),
                                    lost || onLoad == OnLoad.FAIL_ALL
                                            ? List.of()
                                            : List.of(
                                                    new Completion.FailedBlocks(
                                                            0, new int[] {from + failing})));
            if (onLoad != OnLoad.NEVER) {
                complete(
                        new Completion(id, rank, result),
                        sync ? step : step + delay + (long) rank * delayPerRank);
            }
        }

        /// @return false when the bytes are not there: they were lost with another process
        private boolean copyIn(BlockHash hash, int group, int block, boolean good) {
            boolean there = true;
            for (var region : regions) {
                if (region.group() != group) {
                    continue;
                }
                var target = region.block(block);
                var bytes = store.get(key(hash, region.layerIndex(), rank));
                if (good && bytes != null) {
                    MemorySegment.copy(bytes, 0, target, ValueLayout.JAVA_BYTE, 0, bytes.length);
                    if (corrupt) {
                        target.set(ValueLayout.JAVA_BYTE, 0, (byte) ~bytes[0]);
                    }
                } else {
                    target.fill((byte) 0x5a);
                    there &= !good;
                }
            }
            return there;
        }

        private void complete(Completion completion, long step) {
            var at = due.computeIfAbsent(step, _ -> new ArrayList<>());
            at.add(completion);
            if (reportTwice) {
                at.add(completion);
                due.computeIfAbsent(step + 1, _ -> new ArrayList<>()).add(completion);
            }
        }

        @Override
        public void endStep(WorkerStep step, Set<String> notComputed) {
            call("endStep " + rank + " " + step.number());
            if (step.plan().isEmpty()) {
                return;
            }
            var in = step.plan().reader();
            int groups = in.i32();
            for (int n = in.i32(); n > 0; n--) {
                TransferId.read(in);
                in.bool();
                in.i32();
                in.raw(in.i32() * (BlockHash.BYTES + 4 * groups));
            }
            for (int n = in.i32(); n > 0; n--) {
                boolean save = !notComputed.contains(in.string());
                var hash = BlockHash.of(in.raw(BlockHash.BYTES), 0);
                for (int group = 0; group < groups; group++) {
                    int block = in.i32();
                    if (save) {
                        copyOut(hash, group, block);
                    }
                }
            }
            for (int n = in.i32(); n > 0; n--) {
                var id = TransferId.read(in);
                if (holdSteps >= 0) {
                    complete(
                            new Completion(id, rank, new Completion.Completed(0)),
                            step.number() + holdSteps);
                }
            }
            in.end();
        }

        private void copyOut(BlockHash hash, int group, int block) {
            for (var region : regions) {
                if (region.group() == group) {
                    store.put(
                            key(hash, region.layerIndex(), rank),
                            region.block(block).toArray(ValueLayout.JAVA_BYTE));
                }
            }
        }

        @Override
        public StepReport report(WorkerStep step) {
            call("report " + rank + " " + step.number());
            while (!due.isEmpty() && due.firstKey() <= step.number()) {
                now.addAll(due.pollFirstEntry().getValue());
            }
            var report =
                    new StepReport(
                            rank,
                            step.number(),
                            now,
                            Payload.EMPTY,
                            Stats.counter("scripted_reports", 1),
                            List.of());
            now.clear();
            return report;
        }

        @Override
        public void close() {
            if (readsWhenClosed) {
                regions.forEach(region -> region.block(0).get(ValueLayout.JAVA_BYTE, 0));
                call("read regions " + rank);
            }
            call("closeWorker " + rank);
            onCloseWorker.run();
        }
    }
}
