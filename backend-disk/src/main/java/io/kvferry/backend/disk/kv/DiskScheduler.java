// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.store.BlockKey;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.backend.disk.store.StoreListener;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockLease;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockPoolUser;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.CacheEvent;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.ResettableCache;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.SchedulerObserver;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferResult;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;

/// The scheduler half. A block counts as there when the files of all groups and all ranks are: it
/// looks for them itself, so the folder must be visible to it and to every rank.
///
/// Threading: the scheduler thread, as the contract says; only resets work elsewhere.
class DiskScheduler implements SchedulerConnector, ResettableCache, SchedulerObserver {
    private static final Duration RETRY = Duration.ofMillis(2);

    /// How long lookups miss after one that the file system did not answer.
    private static final long SUSPENSION_NANOS = TimeUnit.SECONDS.toNanos(5);

    /// Share of the engine's blocks that must stay free of leases.
    private static final int KEEP_FREE_FRACTION = 10;

    private final SchedulerContext context;
    private final BlockStore store;
    private final StoreFigures figures;
    private final int blockTokens;
    private final int groups;
    private final int keysPerBlock;
    private final boolean loads;
    private final boolean sync;
    private final boolean saves;
    private final Duration leaseTime;
    private final long lookupWaitNanos;
    private final Map<String, Tracked> requests = new HashMap<>();
    private final Map<TransferId, Saving> saving = new HashMap<>();
    private DiskPlan plan = DiskPlan.empty();
    private Optional<BlockPool> pool = Optional.empty();
    private List<CacheEvent> events = new ArrayList<>();
    private Stats stats = Stats.EMPTY;
    private long suspendedUntil = System.nanoTime();

    /// What is known of a request until it is finished.
    private static final class Tracked {
        final List<BlockKey> keys = new ArrayList<>();
        Optional<PrefixProbe> probe = Optional.empty();
        Optional<LoadAssignment> loading = Optional.empty();
        boolean loadFailed;
        int savedBlocks;
        int jobs;
    }

    /// A save under way: what it borrowed and what it will have stored.
    private record Saving(
            List<BlockLease> leases, Optional<BlockHash> parent, List<BlockHash> hashes) {}

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when groups differ in block size; whatever
    ///   opening a store throws
    DiskScheduler(SchedulerContext context) {
        this.context = context;
        this.blockTokens = context.cache().blockTokens();
        this.groups = context.cache().groups().size();
        this.keysPerBlock = groups * context.worldSize();
        for (var group : context.cache().groups()) {
            if (group.blockTokens() != blockTokens) {
                throw new KvFerryException(
                        ErrorCode.INCOMPATIBLE,
                        "DiskConnector needs groups of one block size, got "
                                + blockTokens
                                + " and "
                                + group.blockTokens()
                                + " tokens");
            }
        }
        var options = context.options();
        this.loads = context.config().role().consumes() && !options.string("load").equals("none");
        this.sync = options.string("load").equals("sync");
        this.saves = context.config().role().produces() && options.string("save").equals("lease");
        this.leaseTime = DiskOptions.lease(options);
        this.lookupWaitNanos = options.duration("lookup_wait").toNanos();
        this.store =
                BlockStore.open(
                        DiskOptions.schedulerStore(options, context.namespace()),
                        StoreListener.NONE);
        this.figures = new StoreFigures(store);
    }

    /// The variant that the engine lends its pool to.
    static final class Saver extends DiskScheduler implements BlockPoolUser {
        Saver(SchedulerContext context) {
            super(context);
        }

        @Override
        public void bindBlockPool(BlockPool pool) {
            usePool(pool);
        }
    }

    final void usePool(BlockPool blockPool) {
        pool = Optional.of(blockPool);
    }

    @Override
    public void onRequest(RequestView request) {
        requests.put(request.id(), new Tracked());
    }

    @Override
    public LookupResult lookup(RequestView request, int localTokens) {
        Tracked tracked = requests.get(request.id());
        if (!loads || tracked == null || tracked.loadFailed) {
            return LookupResult.miss();
        }
        int first = localTokens / blockTokens;
        int end =
                Math.min(
                        request.blockHashCount(),
                        (request.tokenCount() - (sync ? 1 : 0)) / blockTokens);
        if (first >= end) {
            return LookupResult.miss();
        }
        List<BlockKey> keys =
                keys(tracked, request, end).subList(first * keysPerBlock, end * keysPerBlock);
        int known = store.knownPrefix(keys);
        if (known < keys.size()) {
            if (suspendedUntil - System.nanoTime() > 0) {
                return LookupResult.miss();
            }
            PrefixProbe probe = probe(tracked, keys);
            if (!probe.await(lookupWaitNanos)) {
                return new LookupResult.Pending(RETRY);
            }
            tracked.probe = Optional.empty();
            if (probe.located().isEmpty()) {
                suspendedUntil = System.nanoTime() + SUSPENSION_NANOS;
                count("disk_lookup_failures", 1);
                return LookupResult.miss();
            }
            known = probe.located().getAsInt();
        }
        int tokens = known / keysPerBlock * blockTokens;
        return tokens == 0
                ? LookupResult.miss()
                : LookupResult.hit(
                        tokens,
                        sync ? LoadMode.SYNC : LoadMode.ASYNC,
                        context.instance(),
                        Tier.DISK);
    }

    /// Names of all files of the request's first `blocks` blocks, block by block.
    private List<BlockKey> keys(Tracked tracked, RequestView request, int blocks) {
        List<BlockKey> keys = tracked.keys;
        for (int block = keys.size() / keysPerBlock; block < blocks; block++) {
            addKeys(keys, request.blockHash(block));
        }
        return keys;
    }

    private void addKeys(List<BlockKey> keys, BlockHash hash) {
        for (int rank = 0; rank < context.worldSize(); rank++) {
            for (int group = 0; group < groups; group++) {
                keys.add(KvKeys.of(hash, group, rank));
            }
        }
    }

    /// The probe under way for just these keys, or a new one.
    private PrefixProbe probe(Tracked tracked, List<BlockKey> keys) {
        if (tracked.probe.isPresent()
                && tracked.probe.get().keys.size() == keys.size()
                && tracked.probe.get().keys.getFirst().equals(keys.getFirst())) {
            return tracked.probe.get();
        }
        var probe = new PrefixProbe(List.copyOf(keys));
        if (store.locate(probe.keys, Deadline.in(leaseTime), probe, 0)) {
            tracked.probe = Optional.of(probe);
        }
        return probe; // refused: it stays pending and the next lookup tries again
    }

    @Override
    public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
        Tracked tracked = requests.get(request.id());
        if (load.isEmpty() || tracked == null) {
            return;
        }
        tracked.loading = Optional.of(load);
        int first = load.fromToken() / blockTokens;
        int end = Math.ceilDiv(load.toToken(), blockTokens);
        plan.loads()
                .add(move(load.id(), load.mode() == LoadMode.SYNC, request, blocks, first, end));
    }

    private DiskPlan.Move move(
            TransferId id, boolean now, RequestView request, BlockTable table, int first, int end) {
        var ids = new int[groups][];
        for (int group = 0; group < groups; group++) {
            ids[group] = table.copy(group, first, end);
        }
        var hashes = new ArrayList<BlockHash>(end - first);
        for (int block = first; block < end; block++) {
            hashes.add(request.blockHash(block));
        }
        return new DiskPlan.Move(id, now, first, hashes, ids);
    }

    @Override
    public Payload buildPlan(StepView step) {
        for (String id : step.preempted()) {
            Optional.ofNullable(requests.get(id)).ifPresent(tracked -> tracked.savedBlocks = 0);
        }
        if (saves && pool.isPresent()) {
            for (int i = 0; i < step.scheduledCount(); i++) {
                planSaves(step.scheduled(i), pool.get());
            }
        }
        Payload encoded = plan.encode();
        plan = DiskPlan.empty();
        return encoded;
    }

    /// Saves what will be full after this step and is not stored yet.
    private void planSaves(StepView.ScheduledRequest scheduled, BlockPool blockPool) {
        Tracked tracked = requests.get(scheduled.request().id());
        if (tracked != null) {
            int tokens = scheduled.computedTokens() + scheduled.scheduledTokens();
            saveUpTo(tracked, scheduled.request(), scheduled.blocks(), tokens, blockPool, false);
        }
    }

    /// @param last whether the request has no later step, so that nothing can be put off
    private void saveUpTo(
            Tracked tracked,
            RequestView request,
            BlockTable table,
            int tokens,
            BlockPool blockPool,
            boolean last) {
        int full = Math.min(tokens / blockTokens, request.blockHashCount());
        if (tracked.loading.isPresent() || full <= tracked.savedBlocks) {
            return; // blocks whose load is not known to be complete must not be stored
        }
        keys(tracked, request, full);
        for (int from = tracked.savedBlocks; from < full; ) {
            if (isStored(tracked, from)) {
                from++;
                continue;
            }
            int to = from + 1;
            while (to < full && !isStored(tracked, to)) {
                to++;
            }
            boolean scarce = blockPool.freeBlocks() < blockPool.totalBlocks() / KEEP_FREE_FRACTION;
            if (scarce && !last && !saving.isEmpty()) {
                count("disk_saves_deferred", 1);
                return; // tried again in a later step, once leases have ended
            }
            startSave(tracked, request, table, from, to, blockPool);
            from = to;
            tracked.savedBlocks = to;
        }
        tracked.savedBlocks = full;
    }

    private boolean isStored(Tracked tracked, int block) {
        for (int i = block * keysPerBlock; i < (block + 1) * keysPerBlock; i++) {
            if (!store.believes(tracked.keys.get(i))) {
                return false;
            }
        }
        return true;
    }

    private void startSave(
            Tracked tracked,
            RequestView request,
            BlockTable table,
            int from,
            int to,
            BlockPool blockPool) {
        var id = TransferId.save(request.id(), request.attempt(), ++tracked.jobs);
        DiskPlan.Move move = move(id, false, request, table, from, to);
        var leases = new ArrayList<BlockLease>();
        for (int group = 0; group < groups; group++) {
            int[] held =
                    Arrays.stream(move.ids()[group])
                            .filter(block -> block != BlockTable.NO_BLOCK)
                            .toArray();
            if (held.length > 0) {
                leases.add(blockPool.lease(id, group, held, Deadline.in(leaseTime)));
            }
        }
        var parent =
                from == 0 ? Optional.<BlockHash>empty() : Optional.of(request.blockHash(from - 1));
        saving.put(id, new Saving(leases, parent, move.hashes()));
        plan.saves().add(move);
    }

    @Override
    public MergedReport onReport(MergedReport report) {
        for (Completion completion : report.completions()) {
            if (completion.id().direction() == TransferId.Direction.SAVE) {
                endSave(completion);
            } else {
                endLoad(completion);
            }
        }
        return report;
    }

    private void endSave(Completion completion) {
        Saving ended = saving.remove(completion.id());
        if (ended == null) {
            return;
        }
        ended.leases().forEach(BlockLease::close);
        if (completion.result() instanceof TransferResult.Completed) {
            var keys = new ArrayList<BlockKey>();
            ended.hashes().forEach(hash -> addKeys(keys, hash));
            keys.forEach(key -> store.expect(key, 0));
            for (int group = 0; group < groups; group++) {
                events.add(
                        new CacheEvent.Stored(
                                context.instance(),
                                Tier.DISK,
                                group,
                                ended.parent(),
                                ended.hashes()));
            }
        }
    }

    private void endLoad(Completion completion) {
        Tracked tracked = requests.get(completion.id().subject());
        if (tracked == null
                || tracked.loading.filter(load -> load.id().equals(completion.id())).isEmpty()) {
            return;
        }
        int first = tracked.loading.get().fromToken() / blockTokens;
        int end = tracked.loading.get().toToken() / blockTokens;
        tracked.loading = Optional.empty();
        switch (completion.result()) {
            case TransferResult.Completed _ ->
                    tracked.savedBlocks = Math.max(tracked.savedBlocks, end);
            case TransferResult.Failed failed -> {
                tracked.loadFailed = true; // never promised to this request again
                tracked.savedBlocks = Math.min(tracked.savedBlocks, first);
                distrust(tracked, first, end, failed);
            }
            case TransferResult.Revoked _ -> {}
        }
    }

    /// Otherwise the next request would be promised the same blocks at once.
    private void distrust(Tracked tracked, int first, int end, TransferResult.Failed failed) {
        boolean unclear = failed.failure().code().retryable();
        for (int i = first * keysPerBlock;
                i < Math.min(end * keysPerBlock, tracked.keys.size());
                i++) {
            if (unclear) {
                store.distrust(tracked.keys.get(i));
            } else {
                store.forget(tracked.keys.get(i));
            }
        }
    }

    @Override
    public void onRevoked(TransferId id) {
        plan.loads().removeIf(move -> move.id().equals(id));
        plan.saves().removeIf(move -> move.id().equals(id));
    }

    @Override
    public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
        Tracked tracked = requests.remove(request.id());
        boolean whole = reason == FinishReason.STOP || reason == FinishReason.LENGTH;
        if (saves && whole && tracked != null && pool.isPresent() && blocks.groups() > 0) {
            saveUpTo(tracked, request, blocks, request.computedTokenCount(), pool.get(), true);
        }
        return FinishDecision.release();
    }

    @Override
    public CompletionStage<Boolean> resetCache(Deadline limit) {
        var done = new CompletableFuture<Boolean>();
        Thread.ofPlatform()
                .daemon()
                .name("disk-reset")
                .start(() -> {
                    try {
                        store.clear();
                        done.complete(true);
                    } catch (KvFerryException _) {
                        done.complete(false); // the folder could not be read to its end
                    }
                });
        events.add(new CacheEvent.Cleared(context.instance()));
        return done.completeOnTimeout(
                false, Math.max(1, limit.remainingNanos()), TimeUnit.NANOSECONDS);
    }

    private void count(String name, long value) {
        stats = stats.merge(Stats.counter(name, value));
    }

    @Override
    public Stats drainStats() {
        Stats drained = stats.merge(figures.drain());
        stats = Stats.EMPTY;
        return drained;
    }

    @Override
    public List<CacheEvent> drainEvents() {
        List<CacheEvent> drained = events;
        events = new ArrayList<>();
        return drained;
    }

    @Override
    public void close() {
        saving.values().forEach(one -> one.leases().forEach(BlockLease::close));
        saving.clear();
        requests.clear();
        store.close();
    }
}
