// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.backend.disk.store.StoreListener;
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
import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiFunction;

/// The scheduler half. A block counts as stored when the files of all groups and all ranks exist.
/// It checks the files itself, so the scheduler and every rank must see the same folder.
///
/// Threading: the scheduler thread, as the contract says; resets use a thread of their own.
final class DiskScheduler implements SchedulerConnector {
    private static final Logger LOG = LoggerFactory.getLogger(DiskScheduler.class);
    private static final Duration RETRY = Duration.ofMillis(2);

    private final SchedulerContext context;
    private final Optional<Rehearsal> rehearsal;
    private final BlockStore store;
    private final StoreFigures figures;
    private final int blockTokens;
    private final FileLayout layout;
    private final RunIndex runs = new RunIndex();
    private final boolean loads;
    private final boolean sync;
    private final Duration leaseTime;
    private final DiskLookups lookups;
    private final Map<String, Tracked> requests = new HashMap<>();

    /// Number of resets in progress. Meanwhile lookups miss, because the catalog forgets the files
    /// last, and nothing is saved, because it could be deleted with the rest.
    private final AtomicInteger resets = new AtomicInteger();

    private volatile boolean closed;
    private DiskPlan plan = DiskPlan.empty();
    private Optional<DiskSaves> saves = Optional.empty();
    private List<CacheEvent> events = new ArrayList<>();

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] when groups differ in block size; whatever
    ///   opening a store throws
    DiskScheduler(SchedulerContext context) {
        this(context, BlockStore::open, Rehearsal.begin(context.options()));
    }

    /// @param rehearsal under way, which ends before [#close] does
    DiskScheduler(
            SchedulerContext context,
            BiFunction<StoreConfig, StoreListener, BlockStore> opener,
            Optional<Rehearsal> rehearsal) {
        this.context = context;
        this.rehearsal = rehearsal;
        this.blockTokens = context.engine().cache().blockTokens();
        this.layout =
                FileLayout.of(
                        context.options(), context.engine().cache(), context.engine().worldSize());
        for (var group : context.engine().cache().groups()) {
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
        this.leaseTime = DiskOptions.lease(options);
        this.store =
                opener.apply(
                        DiskOptions.schedulerStore(
                                options, context.engine().namespace(), context.config().role()),
                        StoreListener.NONE);
        this.figures = new StoreFigures(store, true);
        this.lookups = new DiskLookups(store, runs, leaseTime, options.duration("lookup_wait"));
    }

    /// Claimed, and so called, only where it saves.
    @Override
    public void bindBlockPool(BlockPool pool) {
        saves =
                Optional.of(
                        new DiskSaves(
                                store,
                                pool,
                                layout,
                                runs,
                                context.engine().cache(),
                                leaseTime,
                                move -> plan.saves().add(move),
                                this::touch));
    }

    /// Notes that these files were used together, also where they are evicted.
    private void touch(List<BlockKey> used) {
        store.touch(used);
        if (!store.isShared()) { // else the worker halves of this process know
            plan.addUsed(used);
        }
    }

    @Override
    public void onRequest(RequestView request) {
        requests.put(request.id(), new Tracked(layout));
    }

    @Override
    public LookupResult lookup(RequestView request, int localTokens) {
        Tracked tracked = requests.get(request.id());
        if (tracked == null || tracked.loadFailed) {
            return LookupResult.MISS;
        }
        if (resets.get() > 0) { // what is found now is removed by the time that it would be loaded
            tracked.probe = Optional.empty();
            return LookupResult.MISS;
        }
        int first = localTokens / blockTokens;
        int end =
                Math.min(
                        request.blockHashCount(),
                        (request.tokenCount() - (sync ? 1 : 0)) / blockTokens);
        if (!loads || first >= end) {
            lookups.refresh(tracked, request, end);
            return LookupResult.MISS;
        }
        int known = lookups.present(tracked, request, first, end);
        if (known == DiskLookups.PENDING) {
            return new LookupResult.Pending(RETRY);
        }
        int tokens = known * blockTokens;
        return tokens == 0
                ? LookupResult.MISS
                : LookupResult.hit(
                        tokens,
                        sync ? LoadMode.SYNC : LoadMode.ASYNC,
                        context.instance(),
                        Tier.DISK);
    }

    @Override
    public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
        Tracked tracked = requests.get(request.id());
        if (load.isEmpty() || tracked == null) {
            return;
        }
        tracked.loading = Optional.of(load);
        tracked.loadingSince = System.nanoTime();
        int first = load.fromToken() / blockTokens;
        int end = Math.ceilDiv(load.toToken(), blockTokens);
        tracked.loadingPrefix = tracked.filesToLoad(request, 0, first);
        tracked.loadingFiles = tracked.filesToLoad(request, first, end);
        plan.loads()
                .add(
                        DiskPlan.Move.of(
                                load.id(),
                                load.mode() == LoadMode.SYNC,
                                request,
                                blocks,
                                layout,
                                tracked.runs.values(),
                                first,
                                end));
    }

    @Override
    public Payload buildPlan(StepView step) {
        for (String id : step.preempted()) {
            Optional.ofNullable(requests.get(id)).ifPresent(tracked -> tracked.savedBlocks = 0);
        }
        boolean save = saves.isPresent() && resets.get() == 0;
        for (int i = 0; save && i < step.scheduledCount(); i++) {
            planSaves(step.scheduled(i), saves.orElseThrow());
        }
        Payload encoded = plan.encode();
        plan = DiskPlan.empty();
        return encoded;
    }

    /// Saves what will be full after this step and is not stored yet.
    private void planSaves(StepView.ScheduledRequest scheduled, DiskSaves into) {
        Tracked tracked = requests.get(scheduled.request().id());
        if (tracked != null) {
            int tokens = scheduled.computedTokens() + scheduled.scheduledTokens();
            into.saveUpTo(tracked, scheduled.request(), scheduled.blocks(), tokens, false);
        }
    }

    @Override
    public void onReport(MergedReport report) {
        for (Completion completion : report.completions()) {
            if (completion.id().direction() == TransferId.Direction.SAVE) {
                saves.ifPresent(all -> all.end(completion, this::stored));
            } else {
                endLoad(completion);
            }
        }
    }

    private void stored(int group, Optional<BlockHash> parent, List<BlockHash> hashes) {
        events.add(new CacheEvent.Stored(context.instance(), Tier.DISK, group, parent, hashes));
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
        boolean cleared = tracked.loadCleared;
        tracked.loadCleared = false;
        switch (completion.result()) {
            case Completion.Completed _ -> {
                if (!cleared) {
                    loaded(tracked, first, end);
                }
            }
            case Completion.Failed failed -> {
                tracked.loadFailed = true; // never promised to this request again
                tracked.savedBlocks = Math.min(tracked.savedBlocks, first);
                suppress(tracked, failed);
            }
            case Completion.Revoked _ -> {}
        }
    }

    /// Blocks `first` to `end` (exclusive) were loaded. Touches all their files once more at the
    /// same time, so that none is evicted before its continuation.
    private void loaded(Tracked tracked, int first, int end) {
        tracked.loadingFiles.forEach(files -> files.keys().forEach(store::loadedElsewhere));
        touch(tracked.filesInUse());
        if (first <= tracked.savedBlocks) { // else the folder may lack what comes before
            tracked.savedBlocks = Math.max(tracked.savedBlocks, tracked.storedUnderOwnNames(end));
        }
    }

    /// Makes lookups of the failed files miss (all files of the load if it names no block);
    /// otherwise the next request would be offered the same blocks immediately. A load refused with
    /// BACKPRESSURE never started and changes nothing.
    private void suppress(Tracked tracked, Completion.Failed failed) {
        if (failed.failure().code() == ErrorCode.BACKPRESSURE) {
            return;
        }
        boolean gone = failed.failure().code() == ErrorCode.MISS;
        for (BlockKey key : tracked.failedFiles(failed.blocks())) {
            if (gone) {
                store.missedElsewhere(key, tracked.loadingSince);
            } else {
                store.suppress(key, tracked.loadingSince);
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
        boolean save = saves.isPresent() && resets.get() == 0;
        if (whole && tracked != null && save && blocks.groups() > 0) {
            saves.orElseThrow()
                    .saveUpTo(tracked, request, blocks, request.computedTokenCount(), true);
        }
        return FinishDecision.RELEASE;
    }

    @Override
    public CompletionStage<Boolean> resetCache(Deadline limit) {
        var done = new CompletableFuture<Boolean>();
        var drained =
                saves.map(DiskSaves::drain)
                        .orElseGet(() -> CompletableFuture.completedFuture(null));
        resets.incrementAndGet();
        for (var each : requests.values()) {
            each.loadCleared = each.loading.isPresent();
            each.probe = Optional.empty();
        }
        drained.thenRun( // saves in progress are deleted too
                () -> startClearing(done));
        events.add(new CacheEvent.Cleared(context.instance()));
        return done.completeOnTimeout(
                false, Math.max(1, limit.remainingNanos()), TimeUnit.NANOSECONDS);
    }

    private void startClearing(CompletableFuture<Boolean> done) {
        if (closed) { // with saves under way; the folder may be another connector's by now
            resets.decrementAndGet();
            done.complete(false);
            return;
        }
        try {
            Thread.ofPlatform().daemon().name("disk-reset").start(() -> clear(done));
        } catch (RuntimeException | Error e) { // no memory for a thread
            resets.decrementAndGet();
            done.complete(false);
            LoopReport.WARN.log(LOG, "a reset of the cache could not begin", e);
        }
    }

    private void clear(CompletableFuture<Boolean> done) {
        boolean all = false;
        try {
            store.clear();
            all = true;
        } catch (RuntimeException | Error e) {
            if (!closed) {
                LoopReport.WARN.log(LOG, "a reset of the cache did not delete all blocks", e);
            }
        } finally {
            resets.decrementAndGet();
            done.complete(all);
        }
    }

    @Override
    public Stats drainStats() {
        return figures.drain()
                .merge(counted("disk_lookup_failures", lookups.drainFailures()))
                .merge(
                        counted(
                                "disk_saves_deferred",
                                saves.map(DiskSaves::drainDeferred).orElse(0)));
    }

    private static Stats counted(String name, int value) {
        return value == 0 ? Stats.EMPTY : Stats.counter(name, value);
    }

    @Override
    public List<CacheEvent> drainEvents() {
        List<CacheEvent> drained = events;
        events = new ArrayList<>();
        return drained;
    }

    @Override
    public void close() {
        rehearsal.ifPresent(Rehearsal::await);
        closed = true;
        saves.ifPresent(DiskSaves::close);
        requests.clear();
        store.close();
    }
}
