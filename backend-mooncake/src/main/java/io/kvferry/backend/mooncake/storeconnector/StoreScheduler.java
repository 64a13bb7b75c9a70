// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.EmbeddedStores;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
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
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;

/// The scheduler half. The store is in this JVM, so a lookup is a look into its tables, and is done
/// where it is asked for.
///
/// Threading: the scheduler thread, as the contract says.
final class StoreScheduler implements SchedulerConnector {
    private final SchedulerContext context;
    private final EmbeddedStores.Use use;
    private final Store store;
    private final BlockKeys keys;
    private final StoreStats stats;
    private final int blockTokens;
    private final boolean loads;
    private final boolean leases;
    private final boolean savesAnswers;
    private final Map<String, TrackedRequest> requests = new HashMap<>();
    private StorePlan plan = StorePlan.empty();
    private Optional<SaveLedger> saves = Optional.empty();
    private List<CacheEvent> events = new ArrayList<>();

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when groups differ in block size,
    ///   [ErrorCode#NO_MEMORY] when there is none for the store
    StoreScheduler(SchedulerContext context) {
        this.context = context;
        this.blockTokens = context.engine().cache().blockTokens();
        for (var group : context.engine().cache().groups()) {
            if (group.blockTokens() != blockTokens) {
                throw new KvFerryException(
                        ErrorCode.INCOMPATIBLE,
                        "MooncakeStoreConnector needs groups of one block size, got "
                                + blockTokens
                                + " and "
                                + group.blockTokens()
                                + " tokens");
            }
        }
        var options = context.options();
        StoreOptions.check(options);
        this.loads = StoreOptions.loads(context.config().role(), options);
        this.leases = options.bool("lookup_leases");
        this.savesAnswers = options.bool("save_decode_cache");
        this.use = StoreAccess.use(options);
        this.store = use.store().client(BlockKeys.identity(context.engine(), options));
        this.keys = new BlockKeys(context.engine(), options);
        this.stats = new StoreStats(use.store());
    }

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when a worker has a store of its own:
    ///   nothing that it saved would ever be found
    @Override
    public void onHandshakes(List<Payload> byRank) {
        for (int rank = 0; rank < byRank.size(); rank++) {
            Payload said = byRank.get(rank);
            if (said.version() != StoreWorker.HANDSHAKE_VERSION
                    || said.reader().i64() != use.store().id()) {
                throw new KvFerryException(
                        ErrorCode.INCOMPATIBLE,
                        "MooncakeStoreConnector: the worker of rank "
                                + rank
                                + " has another store than the scheduler. The store is in the"
                                + " memory of one JVM: run the workers in the engine's JVM, or"
                                + " choose another connector");
            }
        }
    }

    /// Claimed, and so called, only where it saves.
    @Override
    public void bindBlockPool(BlockPool pool) {
        saves =
                Optional.of(
                        new SaveLedger(
                                pool,
                                context.engine().cache(),
                                StoreOptions.lease(context.options()),
                                move -> plan.saves().add(move)));
    }

    @Override
    public void onRequest(RequestView request) {
        requests.put(request.id(), new TrackedRequest(new BlockPresence(keys, store)));
    }

    @Override
    public LookupResult lookup(RequestView request, int localTokens) {
        TrackedRequest tracked = requests.get(request.id());
        if (tracked == null || tracked.loadFailed || !loads) {
            return LookupResult.MISS;
        }
        int first = localTokens / blockTokens;
        int end = Math.min(request.blockHashCount(), request.tokenCount() / blockTokens);
        long begin = System.nanoTime();
        int next = first;
        while (next < end && tracked.presence.isThere(next, request.blockHash(next), leases)) {
            next++;
        }
        if (first < end) {
            stats.lookedUp(System.nanoTime() - begin, Math.min(end, next + 1) - first);
        }
        return next == first
                ? LookupResult.MISS
                : LookupResult.hit(
                        (next - first) * blockTokens,
                        LoadMode.ASYNC,
                        context.instance(),
                        Tier.HOST);
    }

    @Override
    public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
        TrackedRequest tracked = requests.get(request.id());
        if (load.isEmpty() || tracked == null) {
            return;
        }
        tracked.loading = Optional.of(load);
        int first = load.fromToken() / blockTokens;
        int end = Math.ceilDiv(load.toToken(), blockTokens);
        plan.loads().add(StorePlan.Move.of(load.id(), request, blocks, first, end));
    }

    @Override
    public Payload buildPlan(StepView step) {
        for (String id : step.preempted()) {
            Optional.ofNullable(requests.get(id)).ifPresent(tracked -> tracked.savedBlocks = 0);
        }
        for (int i = 0; saves.isPresent() && i < step.scheduledCount(); i++) {
            planSaves(step.scheduled(i), saves.get());
        }
        Payload encoded = plan.encode();
        plan = StorePlan.empty();
        return encoded;
    }

    /// Saves what will be full after this step and is not stored yet.
    private void planSaves(StepView.ScheduledRequest scheduled, SaveLedger into) {
        RequestView request = scheduled.request();
        TrackedRequest tracked = requests.get(request.id());
        if (tracked != null) {
            int tokens = scheduled.computedTokens() + scheduled.scheduledTokens();
            into.saveUpTo(tracked, request, scheduled.blocks(), upTo(request, tokens), false);
        }
    }

    private int upTo(RequestView request, int tokens) {
        return savesAnswers ? tokens : Math.min(tokens, request.promptTokenCount());
    }

    @Override
    public void onReport(MergedReport report) {
        for (Completion completion : report.completions()) {
            if (completion.id().direction() == TransferId.Direction.SAVE) {
                saves.ifPresent(ledger -> ledger.end(completion, this::stored));
            } else {
                endLoad(completion);
            }
        }
    }

    private void stored(Optional<BlockHash> parent, List<BlockHash> hashes) {
        for (int group = 0; group < keys.groups(); group++) {
            events.add(new CacheEvent.Stored(context.instance(), Tier.HOST, group, parent, hashes));
        }
    }

    private void endLoad(Completion completion) {
        TrackedRequest tracked = requests.get(completion.id().subject());
        if (tracked == null
                || tracked.loading.filter(load -> load.id().equals(completion.id())).isEmpty()) {
            return;
        }
        int first = tracked.loading.get().fromToken() / blockTokens;
        int end = tracked.loading.get().toToken() / blockTokens;
        tracked.loading = Optional.empty();
        switch (completion.result()) {
            case Completion.Completed _ -> tracked.savedBlocks = Math.max(tracked.savedBlocks, end);
            case Completion.Failed _ -> {
                tracked.loadFailed = true; // never promised to this request again
                tracked.savedBlocks = Math.min(tracked.savedBlocks, first);
            }
            case Completion.Revoked _ -> {}
        }
    }

    @Override
    public void onRevoked(TransferId id) {
        plan.loads().removeIf(move -> move.id().equals(id));
        plan.saves().removeIf(move -> move.id().equals(id));
    }

    @Override
    public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
        TrackedRequest tracked = requests.remove(request.id());
        boolean whole = reason == FinishReason.STOP || reason == FinishReason.LENGTH;
        if (whole && tracked != null && saves.isPresent() && blocks.groups() > 0) {
            int tokens = upTo(request, request.computedTokenCount());
            saves.get().saveUpTo(tracked, request, blocks, tokens, true);
        }
        return FinishDecision.RELEASE;
    }

    @Override
    public CompletionStage<Boolean> resetCache(Deadline limit) {
        events.add(new CacheEvent.Cleared(context.instance()));
        return CompletableFuture.supplyAsync(
                        () -> store.removeAll(true) >= 0,
                        task ->
                                Thread.ofPlatform()
                                        .daemon()
                                        .name("kvferry-store-reset")
                                        .start(task))
                .completeOnTimeout(
                        false, Math.max(1, limit.remainingNanos()), TimeUnit.NANOSECONDS);
    }

    @Override
    public Stats drainStats() {
        return stats.drain(saves.map(SaveLedger::drainDeferred).orElse(0L));
    }

    @Override
    public List<CacheEvent> drainEvents() {
        List<CacheEvent> drained = events;
        events = new ArrayList<>();
        return drained;
    }

    @Override
    public void close() {
        saves.ifPresent(SaveLedger::close);
        requests.clear();
        store.close();
        use.close();
    }
}
