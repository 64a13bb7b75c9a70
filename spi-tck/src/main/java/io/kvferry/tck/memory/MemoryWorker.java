// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/// The worker half of the in-memory connector on one rank. Background work runs on one thread;
/// whatever it changes is reported by [#report], on the step thread.
final class MemoryWorker implements WorkerConnector {
    private static final int ENDED_REMEMBERED = 16_384;
    private static final long CLOSE_SECONDS = 5;

    private final int rank;
    private final String loadOption;
    private final MemoryStore store;
    private final MemoryMover mover;
    private final int queue;
    private final ThreadPoolExecutor background;
    private final Map<TransferId, MemoryJob> jobs = new LinkedHashMap<>();
    private final Map<TransferId, MemorySave> leasedSaves = new LinkedHashMap<>();
    private final Map<TransferId, List<MemorySave>> awaiting = new HashMap<>();
    private final Map<TransferId, Boolean> verdicts = new LinkedHashMap<>();
    private final Map<TransferId, HandOff> offers = new LinkedHashMap<>();
    private final Set<TransferId> ended = new LinkedHashSet<>();
    private final List<Completion> completions = new ArrayList<>();
    private final List<MemoryJob> layerwise = new ArrayList<>();
    private final List<MemorySave> stepSaves = new ArrayList<>();
    private List<KvRegion> regions = List.of();
    private boolean closed;

    MemoryWorker(WorkerContext context) {
        rank = context.rank().rank();
        loadOption = context.options().string("load");
        store = MemoryConnectorProvider.store(context.config(), context.options());
        mover = new MemoryMover(context, store);
        queue = (int) context.options().integer("queue");
        background =
                new ThreadPoolExecutor(
                        1,
                        1,
                        0,
                        TimeUnit.SECONDS,
                        new ArrayBlockingQueue<>(queue),
                        Thread.ofPlatform()
                                .daemon()
                                .name("kvferry-memory-" + context.config().engineId() + "-" + rank)
                                .factory());
    }

    @Override
    public Optional<ProvidedMemory> provideMemory(long bytes) {
        return Optional.of(OwnCache.of(bytes));
    }

    @Override
    public void registerRegions(List<KvRegion> all) {
        all.forEach(KvRegion::segment); // refuses what is not in host memory
        regions = List.copyOf(all);
        mover.use(regions);
    }

    @Override
    public Payload handshake() {
        return new WireWriter().i32(rank).toPayload(1);
    }

    @Override
    public void beginStep(WorkerStep step) {
        var plan = MemoryPlan.decode(step.plan());
        plan.verdicts().forEach(this::settle);
        step.revoked().forEach(this::revoke);
        plan.offers().forEach(this::offer);
        for (var load : plan.loads()) {
            if (!ended.contains(load.id()) && !jobs.containsKey(load.id())) {
                startLoad(load, step.limit());
            }
        }
        for (var save : plan.saves()) {
            if (save.id().filter(ended::contains).isEmpty()) {
                stepSaves.add(new MemorySave(save, mover));
            }
        }
    }

    private void revoke(TransferId id) {
        var handOff = offers.remove(id);
        var job = jobs.get(id);
        if (handOff != null) {
            handOff.withdraw();
            complete(id, new Completion.Revoked());
        } else if (job != null) {
            job.revoke(); // reported once it has ended
        } else if (!ended.contains(id)) {
            complete(id, new Completion.Revoked());
        }
    }

    private void offer(MemoryPlan.Offer offer) {
        if (ended.contains(offer.id())) {
            return;
        }
        var handOff = new HandOff(regions, offer.blocks().ids());
        if (store.offer(offer.key(), rank, handOff)) {
            offers.put(offer.id(), handOff);
        } else {
            complete(
                    offer.id(),
                    new Completion.Completed(0)); // withdrawn meanwhile: nobody needs the blocks
        }
    }

    private void startLoad(MemoryPlan.Load load, Deadline limit) {
        var job = mover.job(load.id(), load.blocks());
        jobs.put(load.id(), job);
        if (load.mode() == LoadMode.SYNC && !loadOption.equals("layerwise")) {
            mover.load(load, job, limit);
            return;
        }
        if (load.mode() == LoadMode.SYNC) {
            layerwise.add(job);
        }
        start(job, () -> mover.load(load, job, Deadline.in(MemoryMover.LIMIT)));
    }

    private void start(MemoryJob job, Runnable work) {
        try {
            background.execute(work);
        } catch (RejectedExecutionException e) {
            job.failAll(
                    new Failure(
                            ErrorCode.BACKPRESSURE,
                            queue + " transfers are waiting: " + e.getMessage()));
            job.end();
        }
    }

    @Override
    public void awaitLayer(int layerIndex, Deadline limit) {
        layerwise.forEach(job -> job.awaitLayer(layerIndex, limit));
    }

    @Override
    public void saveLayer(int layerIndex) {
        stepSaves.forEach(save -> save.takeLayer(layerIndex));
    }

    @Override
    public void endStep(WorkerStep step, Set<String> notComputed) {
        stepSaves.removeIf(save -> notComputed.contains(save.plan().request()) && drop(save));
        for (var job : layerwise) {
            if (!job.awaitEnd(step.limit())) {
                job.revoke();
            }
        }
        layerwise.clear();
        for (var save : stepSaves) {
            if (save.plan().id().isEmpty()) {
                save.takeAll();
                taken(save);
            } else {
                var id = save.plan().id().get();
                var job = mover.job(id, save.plan().blocks());
                jobs.put(id, job);
                leasedSaves.put(id, save);
                start(job, () -> save.takeAll(job));
            }
        }
        stepSaves.clear();
    }

    /// The bytes are here; they may be published unless it is still open how a load ended.
    private void taken(MemorySave save) {
        var load = save.plan().after();
        if (load.isEmpty() || verdicts.getOrDefault(load.get(), false)) {
            save.publish();
        } else if (!verdicts.containsKey(load.get())) {
            awaiting.computeIfAbsent(load.get(), _ -> new ArrayList<>()).add(save);
        }
    }

    private void settle(MemoryPlan.Verdict verdict) {
        verdicts.put(verdict.load(), verdict.completed());
        if (verdicts.size() > ENDED_REMEMBERED) {
            verdicts.remove(verdicts.keySet().iterator().next());
        }
        var saves = awaiting.remove(verdict.load());
        if (saves != null && verdict.completed()) {
            saves.forEach(MemorySave::publish);
        }
    }

    private boolean drop(MemorySave save) {
        var failure = new Failure(ErrorCode.INTERNAL, "the blocks were not computed");
        save.plan().id().ifPresent(id -> complete(id, new Completion.Failed(failure, List.of())));
        return true;
    }

    @Override
    public StepReport report(WorkerStep step) {
        var done = new ArrayList<MemoryJob>();
        jobs.values().stream().filter(MemoryJob::hasEnded).forEach(done::add);
        for (var job : done) {
            jobs.remove(job.id());
            var save = leasedSaves.remove(job.id());
            if (save != null && !job.isRevoked()) {
                taken(save);
            }
            complete(job.id(), job.result());
        }
        for (var entry : List.copyOf(offers.entrySet())) {
            if (entry.getValue().isTaken()) {
                offers.remove(entry.getKey());
                entry.getValue().withdraw();
                complete(entry.getKey(), new Completion.Completed(0));
            }
        }
        var report =
                new StepReport(
                        rank,
                        step.number(),
                        completions,
                        Payload.EMPTY,
                        mover.drainStats(),
                        mover.drainEvents());
        completions.clear();
        return report;
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
        offers.values().forEach(HandOff::withdraw);
        offers.clear();
        jobs.values().forEach(MemoryJob::revoke);
        background.shutdown();
        if (!hasEnded(background, CLOSE_SECONDS)) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    "transfers of rank " + rank + " did not stop in " + CLOSE_SECONDS + " s");
        }
        closed = true;
        store.close();
    }

    /// An interrupt does not end the wait: the threads may touch the engine's memory.
    static boolean hasEnded(ExecutorService threads, long seconds) {
        var limit = Deadline.in(Duration.ofSeconds(seconds));
        boolean interrupted = false;
        boolean ended = threads.isTerminated();
        while (!ended && !limit.passed()) {
            try {
                ended = threads.awaitTermination(limit.remainingNanos(), TimeUnit.NANOSECONDS);
            } catch (InterruptedException _) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        return ended;
    }
}
