// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.storeconnector.keys.BlockKeys;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;
import io.kvferry.toolkit.bounded.Uninterrupted;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.UnaryOperator;

/// The worker half of one rank: one thread saves in order, one or several load.
///
/// Threading: step thread, as the contract says; the threads of its own only run [StoreJob]s.
final class StoreWorker implements WorkerConnector {
    private static final Logger LOG = LoggerFactory.getLogger(StoreWorker.class);

    /// Ids remembered after their end, so that a revocation or a repeated plan that comes late is
    /// recognised.
    private static final int ENDED_REMEMBERED = 16_384;

    /// Longer than the transfer engine asks whether a WRITE that failed has ended.
    private static final long CLOSE_SECONDS = 15;

    /// Of the payload of [#handshake].
    static final int HANDSHAKE_VERSION = 1;

    private final WorkerContext context;
    private final int rank;
    private final Duration lease;
    private final int maxLoads;
    private final StoreAccess access;
    private final Store store;
    private final ExecutorService sender;
    private final ExecutorService receivers;
    private final ThreadLocal<StoreBatch> batches = ThreadLocal.withInitial(StoreBatch::new);
    private final Map<TransferId, StoreJob> jobs = new LinkedHashMap<>();
    private final Set<TransferId> ended = new LinkedHashSet<>();
    private final List<StorePlan.Move> stepSaves = new ArrayList<>();
    private final List<Completion> completions = new ArrayList<>();
    private List<RegionBlocks> memory = List.of();
    private @Nullable BlockTransfers transfers;
    private int openLoads;
    private boolean closed;

    /// @throws io.kvferry.spi.KvFerryException [ErrorCode#NO_MEMORY] when there is none for the
    ///   store
    StoreWorker(WorkerContext context) {
        this(context, store -> store);
    }

    /// With a store that a test can hold up.
    StoreWorker(WorkerContext context, UnaryOperator<Store> wrapper) {
        this.context = context;
        this.rank = context.rank().rank();
        var options = context.options();
        StoreOptions.check(options);
        this.lease = StoreOptions.lease(options);
        this.maxLoads = (int) options.integer("max_loads");
        this.access = StoreAccess.open(context.engine(), options, false);
        this.store = wrapper.apply(access.store());
        this.sender = threads(1, "kvferry-store-send-" + rank);
        this.receivers =
                threads((int) options.integer("load_recv_threads"), "kvferry-store-recv-" + rank);
    }

    private static ExecutorService threads(int count, String name) {
        return Executors.newFixedThreadPool(
                count, Thread.ofPlatform().daemon().name(name + "-", 0).factory());
    }

    @Override
    public void registerRegions(List<KvRegion> regions) {
        memory = RegionBlocks.of(regions, context.engine().cache().groups().size());
        for (KvRegion region : regions) {
            int code = store.register(region.segment());
            if (code != 0) {
                LOG.warn("memory of layer {} was not registered: {}", region.layer(), code);
            }
        }
        if (store.healthCheck() == 0) { // else the scheduler half has said so
            SelfTest.run(store, rank).ifPresent(trouble -> LOG.warn("{}", trouble));
        }
        transfers =
                new BlockTransfers(
                        store,
                        new BlockKeys(context.engine(), context.options()),
                        rank,
                        memory,
                        StoreOptions.preferredSegment(context.options()),
                        context.options().bool("enable_group_semantics"),
                        access.staging());
    }

    /// The store that this half uses, so that the scheduler half can tell whether it is its own.
    @Override
    public Payload handshake() {
        return new WireWriter().i64(access.id()).toPayload(HANDSHAKE_VERSION);
    }

    @Override
    public void beginStep(WorkerStep step) {
        StorePlan plan = StorePlan.decode(step.plan());
        step.revoked().forEach(this::revoke);
        plan.loads().forEach(this::load);
        stepSaves.addAll(plan.saves());
    }

    private void load(StorePlan.Move move) {
        if (ended.contains(move.id()) || jobs.containsKey(move.id())) {
            return;
        }
        if (openLoads >= maxLoads) {
            var failure =
                    new Failure(
                            ErrorCode.BACKPRESSURE,
                            maxLoads + " loads are open already (option max_loads)");
            completeAndWake(move.id(), new Completion.Failed(failure, move.allBlocks()));
            return;
        }
        start(move, true);
    }

    /// Starts a transfer. Whatever goes wrong is the end of this one alone: an exception out of the
    /// half would make the engine give the connector up.
    private void start(StorePlan.Move move, boolean load) {
        var moving = transfers;
        try {
            if (moving == null) {
                throw new IllegalStateException("no regions were registered");
            }
            var job =
                    new StoreJob(
                            move,
                            memory,
                            load ? moving::load : moving::save,
                            batches,
                            Deadline.in(lease),
                            context.host()::wake,
                            load ? moving.partsOfLoad() : StoreJob.BATCH);
            jobs.put(move.id(), job);
            openLoads += load ? 1 : 0;
            (load ? receivers : sender).execute(job);
        } catch (RuntimeException | Error e) {
            var failure = new Failure(ErrorCode.INTERNAL, "the transfer did not start: " + e);
            StoreJob made = jobs.get(move.id());
            if (made != null) {
                made.abort(failure);
            } else {
                completeAndWake(move.id(), new Completion.Failed(failure, move.allBlocks()));
            }
        }
    }

    private void revoke(TransferId id) {
        StoreJob job = jobs.get(id);
        if (job != null) {
            job.revoke(); // reported once nothing of it is in flight
        } else if (!ended.contains(id)) {
            completeAndWake(id, new Completion.Revoked());
        }
    }

    @Override
    public void endStep(WorkerStep step, Set<String> notComputed) {
        for (StorePlan.Move move : stepSaves) {
            if (ended.contains(move.id()) || jobs.containsKey(move.id())) {
                continue;
            }
            if (notComputed.contains(move.id().subject())) {
                var failure = new Failure(ErrorCode.INTERNAL, "the blocks were not computed");
                completeAndWake(move.id(), new Completion.Failed(failure, move.allBlocks()));
            } else {
                start(move, false);
            }
        }
        stepSaves.clear();
    }

    @Override
    public StepReport report(WorkerStep step) {
        var over = jobs.values().stream().filter(StoreJob::hasEnded).toList();
        for (StoreJob job : over) {
            boolean load = job.id().direction() == TransferId.Direction.LOAD;
            jobs.remove(job.id());
            openLoads -= load ? 1 : 0;
            complete(job.id(), job.result());
        }
        var stats = transfers == null ? Stats.EMPTY : transfers.drain();
        var report =
                new StepReport(rank, step.number(), completions, Payload.EMPTY, stats, List.of());
        completions.clear();
        return report;
    }

    /// For what no job has signalled.
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
        if (closed) {
            return;
        }
        var failure = new Failure(ErrorCode.CLOSED, "the worker half is closed");
        jobs.values().forEach(job -> job.abort(failure));
        sender.shutdown();
        receivers.shutdown();
        for (ExecutorService threads : List.of(sender, receivers)) {
            // The threads may touch the engine's memory.
            if (!Uninterrupted.awaitTermination(threads, Duration.ofSeconds(CLOSE_SECONDS))) {
                throw new KvFerryException(
                        ErrorCode.TIMEOUT,
                        "transfers of rank " + rank + " did not stop in " + CLOSE_SECONDS + " s");
            }
        }
        jobs.clear();
        access.close();
        closed = true;
    }
}
