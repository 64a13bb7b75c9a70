// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.storeconnector.keys.BlockHashes;
import io.kvferry.backend.mooncake.storeconnector.keys.BlockKeys;
import io.kvferry.backend.mooncake.storeconnector.keys.BlockNames;
import io.kvferry.backend.mooncake.storeconnector.keys.KeyForm;
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
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

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
import java.util.function.IntFunction;
import java.util.function.Supplier;

/// The scheduler half. If the store is in this JVM, a lookup reads the store's tables and completes
/// within the call. Otherwise it stays pending until the answer arrives or `lookup_timeout`
/// expires. This half has its own client of the store, so a lookup needs no worker.
///
/// Threading: the scheduler thread, see [SchedulerConnector].
final class StoreScheduler implements SchedulerConnector {
    private static final Logger LOG = LoggerFactory.getLogger(StoreScheduler.class);
    private static final Duration RETRY = Duration.ofMillis(20);

    private final SchedulerContext context;
    private final StoreAccess access;
    private final Store store;
    private final StoreQueries queries;
    private final PrefixSearch search;
    private final BlockKeys keys;
    private final StoreEvents events;
    private final boolean keepsAllTokens;
    private final StoreStats stats;
    private final int blockTokens;
    private final Duration lookupLimit;
    private final Supplier<BlockHashes> hashes;
    private final boolean loads;
    private final boolean leases;
    private final boolean savesAnswers;
    private final Map<String, TrackedRequest> requests = new HashMap<>();

    /// Whether the lookup before was given up, so that the log says it once.
    private boolean lookupsAreLate;

    private StorePlan plan = StorePlan.empty();
    private Optional<SaveLedger> saves = Optional.empty();

    /// Resets under way.
    private int resets;

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when groups differ in block size, or the
    ///   key form does not fit, [ErrorCode#NO_MEMORY] when there is none for the store
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
        this.lookupLimit = options.duration("lookup_timeout");
        this.hashes =
                KeyForm.of(options, context.engine())
                        .hashes(options, context.engine(), System.getenv(KeyForm.SEED));
        this.savesAnswers = options.bool("save_decode_cache");
        this.access = StoreAccess.open(context.engine(), options, true);
        this.store = access.store();
        this.queries = new StoreQueries(store, context.host()::wake);
        this.keys = new BlockKeys(context.engine(), options);
        var groups = context.engine().cache().groups();
        this.search = new PrefixSearch(store, groups, keys.ranks());
        this.keepsAllTokens = groups.stream().allMatch(KvCacheGroup::keepsAllTokens);
        this.stats = new StoreStats(store);
        this.events = new StoreEvents(context.instance(), store, keys, queries);
    }

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when a worker has a store of its own:
    ///   nothing that it saved would ever be found
    @Override
    public void onHandshakes(List<Payload> byRank) {
        for (int rank = 0; rank < byRank.size(); rank++) {
            Payload said = byRank.get(rank);
            if (said.version() != StoreWorker.HANDSHAKE_VERSION
                    || said.reader().i64() != access.id()) {
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
                                this::isStored,
                                move -> plan.saves().add(move)));
    }

    @Override
    public void onRequest(RequestView request) {
        requests.put(request.id(), new TrackedRequest(new BlockNames(keys, hashes.get())));
    }

    @Override
    public LookupResult lookup(RequestView request, int localTokens) {
        queries.deliver();
        TrackedRequest tracked = requests.get(request.id());
        if (tracked == null || tracked.loadFailed || !loads || resets > 0) {
            return LookupResult.MISS;
        }
        int first = localTokens / blockTokens;
        int end = Math.min(tracked.names.count(request), request.tokenCount() / blockTokens);
        if (first >= end || store.healthCheck() != 0) {
            return LookupResult.MISS;
        }
        var lookup =
                tracked.lookup
                        .filter(known -> known.first == first && !known.isOld())
                        .filter(_ -> !queries.areImmediate())
                        .orElseGet(() -> look(tracked, request, first, end));
        if (lookup.isLate()) {
            giveUp(lookup);
        }
        if (!lookup.isAnswered()) {
            return new LookupResult.Pending(RETRY);
        }
        return lookup.blocks() == 0
                ? LookupResult.MISS
                : LookupResult.hit(
                        lookup.blocks() * blockTokens,
                        LoadMode.ASYNC,
                        context.instance(),
                        Tier.HOST);
    }

    /// The request is computed; the next one asks again.
    private void giveUp(TrackedRequest.Lookup lookup) {
        lookup.giveUp();
        stats.lookupTimedOut();
        if (!lookupsAreLate) {
            lookupsAreLate = true;
            LOG.warn(
                    "the store has not answered a lookup for {} ms (lookup_timeout); the request is"
                            + " computed, and so are others until it answers in time",
                    lookupLimit.toMillis());
        }
    }

    private TrackedRequest.Lookup look(
            TrackedRequest tracked, RequestView request, int first, int end) {
        var lookup = new TrackedRequest.Lookup(first, Deadline.in(lookupLimit));
        tracked.lookup = Optional.of(lookup);
        long begin = System.nanoTime();
        IntFunction<String[]> blocks;
        if (queries.areImmediate()) {
            blocks = i -> tracked.names.of(request, first + i);
        } else {
            String[][] named = tracked.names.of(request, first, end);
            blocks = i -> named[i];
        }
        queries.ask(
                () -> lookup.isWanted() ? search.find(blocks, end - first, leases) : 0,
                0,
                found -> {
                    if (!lookup.isWanted()) {
                        return;
                    }
                    lookupsAreLate = false;
                    lookup.found(found);
                    stats.lookedUp(
                            System.nanoTime() - begin, Math.min(end, first + found + 1) - first);
                });
        return lookup;
    }

    /// Whether a block need not be saved. A store that is far away is not asked: it says so itself
    /// when the block comes.
    private boolean isStored(
            TrackedRequest tracked, RequestView request, BlockTable table, int block) {
        if (!queries.areImmediate()) {
            return keepsAllTokens
                    && tracked.lookup
                            .filter(known -> block < known.first + known.blocks())
                            .isPresent();
        }
        String[] names = tracked.names.of(request, block);
        var wanted = new ArrayList<String>(names.length);
        int ranks = keys.ranks();
        for (int group = 0; group < table.groups(); group++) {
            if (block < table.count(group) && table.block(group, block) != BlockTable.NO_BLOCK) {
                wanted.addAll(Arrays.asList(names).subList(group * ranks, (group + 1) * ranks));
            }
        }
        var results = new int[wanted.size()];
        store.exists(wanted, false, results);
        return Arrays.stream(results).allMatch(result -> result == 1);
    }

    private int[] present(List<String> names) {
        var results = new int[names.size()];
        store.exists(names, false, results);
        return results;
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
        plan.loads().add(StorePlan.Move.of(load.id(), tracked.names, request, blocks, first, end));
    }

    @Override
    public Payload buildPlan(StepView step) {
        queries.deliver();
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
                saves.ifPresent(ledger -> ledger.end(completion, events::announce));
            } else {
                endLoad(completion);
            }
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
        boolean cleared = tracked.loadCleared;
        tracked.loadCleared = false;
        switch (completion.result()) {
            case Completion.Completed _ ->
                    tracked.savedBlocks = cleared ? 0 : Math.max(tracked.savedBlocks, end);
            case Completion.Failed _ -> {
                tracked.loadFailed = true; // never promised to this request again
                tracked.forgetLookup();
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
        if (tracked != null) {
            tracked.lookup.ifPresent(TrackedRequest.Lookup::giveUp);
        }
        boolean whole = reason == FinishReason.STOP || reason == FinishReason.LENGTH;
        if (whole && tracked != null && saves.isPresent() && blocks.groups() > 0) {
            int tokens = upTo(request, request.computedTokenCount());
            saves.get().saveUpTo(tracked, request, blocks, tokens, true);
        }
        return FinishDecision.RELEASE;
    }

    /// Removes everything, once the saves that are under way have ended: they would put back what
    /// is to be forgotten. Until then lookups miss and no save begins.
    @Override
    public CompletionStage<Boolean> resetCache(Deadline limit) {
        resets++;
        for (var each : requests.values()) {
            each.loadCleared = each.loading.isPresent();
            each.forgetLookup();
        }
        events.clear();
        var drained =
                saves.map(SaveLedger::drain)
                        .orElseGet(() -> CompletableFuture.completedFuture(null));
        return drained.thenApplyAsync(
                        _ -> store.removeAll(true) >= 0,
                        task ->
                                Thread.ofPlatform()
                                        .daemon()
                                        .name("kvferry-store-reset")
                                        .start(task))
                .whenComplete((_, _) -> queries.post(this::resetEnded))
                .completeOnTimeout(
                        false, Math.max(1, limit.remainingNanos()), TimeUnit.NANOSECONDS);
    }

    private void resetEnded() {
        resets--;
        if (resets == 0) {
            events.resume();
            saves.ifPresent(SaveLedger::resume);
        }
    }

    /// Due immediately while answers of the store wait to be processed.
    @Override
    public Optional<Deadline> pendingWork() {
        return queries.hasAnswers() ? Optional.of(Deadline.in(Duration.ZERO)) : Optional.empty();
    }

    @Override
    public Stats drainStats() {
        return stats.drain(saves.map(SaveLedger::drainDeferred).orElse(0L));
    }

    @Override
    public List<CacheEvent> drainEvents() {
        queries.deliver();
        return events.drain();
    }

    @Override
    public void close() {
        saves.ifPresent(SaveLedger::close);
        queries.close();
        requests.clear();
        access.close();
    }
}
