// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.backend.disk.store.StoreListener;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.wire.Payload;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiFunction;

/// The worker half of one rank.
///
/// Threading: step thread, as the contract says; I/O threads of the store call back and hand on
/// further blocks.
final class DiskWorker implements WorkerConnector {
    /// Number of ended transfer ids remembered, to recognise late revocations and repeated plans.
    private static final int ENDED_REMEMBERED = 16_384;

    private static final Failure CLOSED =
            new Failure(ErrorCode.CLOSED, "the worker half is closed");

    private final WorkerContext context;
    private final Optional<Rehearsal> rehearsal;
    private final int rank;
    private final BlockStore store;
    private final Duration lease;
    private final SaveWait saveWait;
    private final StoredBlocks stored;
    private final StoreFigures figures;
    private final Map<TransferId, DiskJob> jobs = new LinkedHashMap<>();
    private final Feed loadFeed = new Feed();
    private final Feed saveFeed = new Feed();
    private final List<DiskPlan.Move> stepSaves = new ArrayList<>();
    private final int maxLoads;
    private final Set<TransferId> ended = new LinkedHashSet<>();
    private final List<Completion> completions = new ArrayList<>();
    private List<RegionMemory> memory = List.of();
    private int openLoads;

    /// Jobs with files left to submit, in order. Run by any thread, one at a time.
    static final class Feed implements Runnable {
        private final ArrayDeque<DiskJob> waiting = new ArrayDeque<>();

        synchronized void add(DiskJob job) {
            waiting.add(job);
            run();
        }

        @Override
        public synchronized void run() {
            while (!waiting.isEmpty() && waiting.peekFirst().feed()) {
                waiting.removeFirst();
            }
        }
    }

    /// @throws KvFerryException whatever opening a store throws
    DiskWorker(WorkerContext context) {
        this(context, BlockStore::open, Rehearsal.begin(context.options()));
    }

    /// @param opener of its store, which a test can hold up
    /// @param rehearsal under way, which ends before [#registerRegions] does
    DiskWorker(
            WorkerContext context,
            BiFunction<StoreConfig, StoreListener, BlockStore> opener,
            Optional<Rehearsal> rehearsal) {
        this.context = context;
        this.rehearsal = rehearsal;
        this.rank = context.rank().rank();
        this.lease = DiskOptions.lease(context.options());
        this.saveWait =
                new SaveWait(DiskOptions.saveWait(context.options(), context.config().role()));
        this.maxLoads = (int) context.options().integer("max_loads");
        this.stored = new StoredBlocks();
        this.store =
                opener.apply(
                        DiskOptions.workerStore(
                                context.options(),
                                context.engine().namespace(),
                                context.config().role()),
                        stored::removed);
        this.figures = new StoreFigures(store, false);
    }

    @Override
    public void registerRegions(List<KvRegion> regions) {
        regions.forEach(KvRegion::segment); // refuses what is not in host memory
        var engine = context.engine();
        memory =
                RegionMemory.of(
                        regions, engine.cache().groups().size(), engine.namespace().layout());
        rehearsal.ifPresent(Rehearsal::await);
    }

    @Override
    public void beginStep(WorkerStep step) {
        DiskPlan plan = DiskPlan.decode(step.plan());
        step.revoked().forEach(this::revoke);
        store.touch(plan.used());
        var awaited = new ArrayList<DiskJob>();
        for (DiskPlan.Move move : plan.loads()) {
            Deadline limit = Deadline.in(lease);
            start(move, true, move.sync() ? limit.earlier(step.limit()) : limit, loadFeed);
            DiskJob job = jobs.get(move.id());
            if (move.sync() && job != null) {
                awaited.add(job);
            }
        }
        for (DiskJob job : awaited) {
            // Blocks in flight end by the job's deadline; the store's deadline thread notices
            // slightly later.
            if (!job.awaitEnd(Deadline.in(step.limit().remaining().plusSeconds(1)))) {
                job.revoke();
            }
        }
        stepSaves.addAll(plan.saves());
    }

    /// Starts a transfer. Any error fails only this transfer: if this threw, the engine would give
    /// up the whole connector.
    private void start(DiskPlan.Move move, boolean load, Deadline limit, Feed feed) {
        if (ended.contains(move.id()) || jobs.containsKey(move.id())) {
            return;
        }
        if (load && openLoads >= maxLoads) {
            var failure =
                    new Failure(
                            ErrorCode.BACKPRESSURE,
                            maxLoads + " loads are open already (option max_loads)");
            completeAndWake(move.id(), new Completion.Failed(failure, move.allBlocks()));
            return;
        }
        try {
            var job =
                    new DiskJob(move, load, memory, store, rank, limit, feed, context.host()::wake);
            if (!load) {
                job.files()
                        .forEach(file ->
                                stored.remember(file.key().digest(), file.group(), file.hashes()));
            }
            jobs.put(move.id(), job);
            openLoads += load ? 1 : 0;
            feed.add(job);
            if (job.ended()) { // such as one without files, of which no callback comes
                context.host().wake();
            }
        } catch (RuntimeException | Error e) {
            DiskJob job = jobs.get(move.id());
            if (job != null) { // perhaps in no feed
                job.failStart();
                return;
            }
            var failure = new Failure(ErrorCode.INTERNAL, "the transfer did not start: " + e);
            completeAndWake(move.id(), new Completion.Failed(failure, move.allBlocks()));
        }
    }

    private void revoke(TransferId id) {
        DiskJob job = jobs.get(id);
        if (job != null) {
            job.revoke(); // reported once nothing of it is in flight
        } else if (!ended.contains(id)) {
            completeAndWake(id, new Completion.Revoked());
        }
    }

    @Override
    public void endStep(WorkerStep step, Set<String> notComputed) {
        var started = new ArrayList<DiskJob>();
        for (DiskPlan.Move move : stepSaves) {
            if (ended.contains(move.id())) {
                continue; // revoked with the plan
            }
            if (notComputed.contains(move.id().subject())) {
                var failure = new Failure(ErrorCode.INTERNAL, "the blocks were not computed");
                completeAndWake(move.id(), new Completion.Failed(failure, List.of()));
            } else {
                start(move, false, Deadline.in(lease), saveFeed);
                Optional.ofNullable(jobs.get(move.id())).ifPresent(started::add);
            }
        }
        stepSaves.clear();
        saveWait.await(started, step.limit());
    }

    @Override
    public StepReport report(WorkerStep step) {
        loadFeed.run(); // expires waiting loads even if no callback runs the feed
        saveFeed.run();
        var over = jobs.values().stream().filter(DiskJob::ended).toList();
        for (DiskJob job : over) {
            jobs.remove(job.id());
            openLoads -= job.id().direction() == TransferId.Direction.LOAD ? 1 : 0;
            complete(job.id(), job.result());
        }
        var events = new ArrayList<CacheEvent>();
        stored.drainRemoved((group, hashes) ->
                events.add(new CacheEvent.Removed(context.instance(), Tier.DISK, group, hashes)));
        var report =
                new StepReport(
                        rank,
                        step.number(),
                        completions,
                        Payload.EMPTY,
                        figures.drain().merge(saveWait.drainStats()),
                        events);
        completions.clear();
        return report;
    }

    /// Completes a transfer outside of a job callback and wakes the engine.
    private void completeAndWake(TransferId id, Completion.Result result) {
        complete(id, result);
        context.host().wake();
    }

    private void complete(TransferId id, Completion.Result result) {
        completions.add(new Completion(id, rank, result));
        ended.add(id);
        if (ended.size() > ENDED_REMEMBERED) {
            ended.remove(ended.iterator().next());
        }
    }

    @Override
    public void close() {
        rehearsal.ifPresent(Rehearsal::await);
        try {
            jobs.values().forEach(job -> job.abort(CLOSED));
        } finally {
            store.close(); // also where there is no memory for the rest, or its threads stay
        }
        jobs.clear();
    }
}
