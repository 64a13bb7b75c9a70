// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.vllm;

import io.kvferry.backend.disk.kv.DiskOptions;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferResult;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// The worker half on ExampleConnector folders: one thread that reads and writes whole prompts.
///
/// A transfer ends when the file system lets go of it; there is no deadline per file here, unlike
/// in the block store.
public final class ExampleWorker implements WorkerConnector {
    private static final int QUEUE = 1024;
    private static final int ENDED_REMEMBERED = 16_384;
    private static final long CLOSE_SECONDS = 10;

    private final int rank;
    private final ExampleFolder folder;
    private final ThreadPoolExecutor thread;
    private final Map<TransferId, Job> jobs = new LinkedHashMap<>();
    private final Set<TransferId> ended = new LinkedHashSet<>();
    private final List<Completion> completions = new ArrayList<>();
    private final List<ExampleMove> stepSaves = new ArrayList<>();
    private List<KvRegion> layers = List.of();
    private Stats stats = Stats.EMPTY;
    private boolean closed;

    /// A move on its way, and whether it was given up.
    private static final class Job {
        final ExampleMove move;
        final CompletableFuture<TransferResult> result = new CompletableFuture<>();
        volatile boolean revoked;

        Job(ExampleMove move) {
            this.move = move;
        }
    }

    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] for more than one group
    public ExampleWorker(WorkerContext context) {
        this.rank = context.rank().rank();
        this.folder =
                ExampleScheduler.folder(
                        context.options().path(DiskOptions.PATH),
                        context.cache(),
                        context.namespace(),
                        rank,
                        context.rank().worldSize());
        this.thread =
                new ThreadPoolExecutor(
                        1,
                        1,
                        0,
                        TimeUnit.SECONDS,
                        new ArrayBlockingQueue<>(QUEUE),
                        Thread.ofPlatform().daemon().name("disk-vllm-example").factory());
    }

    @Override
    public void registerRegions(List<KvRegion> regions) {
        regions.forEach(KvRegion::segment); // refuses what is not in host memory
        layers = regions.stream().sorted(Comparator.comparingInt(KvRegion::layerIndex)).toList();
    }

    @Override
    public void beginStep(WorkerStep step) {
        List<ExampleMove> plan = ExampleMove.decode(step.plan());
        step.revoked().forEach(this::revoke);
        var awaited = new ArrayList<Job>();
        for (ExampleMove move : plan) {
            if (ended.contains(move.id()) || jobs.containsKey(move.id())) {
                continue;
            }
            if (!move.load()) {
                stepSaves.add(move);
                continue;
            }
            Job job = start(move);
            if (move.sync()) {
                awaited.add(job);
            }
        }
        awaited.forEach(job -> await(job, step.limit()));
    }

    private void await(Job job, Deadline limit) {
        try {
            job.result.get(Math.max(1, limit.remainingNanos()), TimeUnit.NANOSECONDS);
        } catch (TimeoutException | ExecutionException _) {
            job.revoked =
                    true; // not in place in time: reported as revoked once the thread is through
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            job.revoked = true;
        }
    }

    private Job start(ExampleMove move) {
        var job = new Job(move);
        jobs.put(move.id(), job);
        try {
            thread.execute(() ->
                    job.result.complete(job.revoked ? new TransferResult.Revoked() : run(move)));
        } catch (RejectedExecutionException _) {
            job.result.complete(
                    failed(
                            move,
                            new Failure(ErrorCode.BACKPRESSURE, QUEUE + " transfers are waiting")));
        }
        return job;
    }

    /// The border at which whatever went wrong becomes a failure of this transfer.
    private TransferResult run(ExampleMove move) {
        try {
            var blocks = new ArrayList<List<MemorySegment>>();
            for (int id : move.blocks()) {
                blocks.add(layers.stream().map(region -> region.block(id)).toList());
            }
            if (move.load()) {
                folder.read(move.digest(), move.tokens(), move.first(), blocks);
            } else {
                folder.write(move.digest(), move.tokens(), blocks);
            }
            return new TransferResult.Completed(
                    blocks.stream().flatMap(List::stream).mapToLong(MemorySegment::byteSize).sum());
        } catch (RuntimeException e) {
            return failed(move, Failure.of(e));
        }
    }

    private static TransferResult failed(ExampleMove move, Failure failure) {
        if (!move.load()) {
            return new TransferResult.Failed(failure, List.of());
        }
        int[] positions = new int[move.blocks().length];
        Arrays.setAll(positions, i -> move.first() + i);
        return new TransferResult.Failed(
                failure, List.of(new TransferResult.FailedBlocks(0, positions)));
    }

    private void revoke(TransferId id) {
        Job job = jobs.get(id);
        if (job != null) {
            job.revoked = true;
        } else if (!ended.contains(id)) {
            complete(id, new TransferResult.Revoked());
        }
    }

    @Override
    public void forwardFailed(WorkerStep step) {
        var failure = new Failure(ErrorCode.INTERNAL, "the blocks were not computed");
        stepSaves.forEach(
                move -> complete(move.id(), new TransferResult.Failed(failure, List.of())));
        stepSaves.clear();
    }

    @Override
    public void endStep(WorkerStep step) {
        stepSaves.forEach(this::start);
        stepSaves.clear();
    }

    @Override
    public StepReport report(WorkerStep step) {
        for (Job job : jobs.values().stream().filter(job -> job.result.isDone()).toList()) {
            jobs.remove(job.move.id());
            TransferResult result = job.revoked ? new TransferResult.Revoked() : job.result.join();
            if (result instanceof TransferResult.Completed(long bytes)) {
                stats =
                        stats.merge(
                                Stats.counter(
                                        job.move.load() ? "disk_load_bytes" : "disk_save_bytes",
                                        bytes));
            }
            complete(job.move.id(), result);
        }
        var report =
                new StepReport(rank, step.number(), completions, Payload.EMPTY, stats, List.of());
        completions.clear();
        stats = Stats.EMPTY;
        return report;
    }

    private void complete(TransferId id, TransferResult result) {
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
        closed = true;
        jobs.values().forEach(job -> job.revoked = true);
        thread.shutdown();
        try {
            if (!thread.awaitTermination(CLOSE_SECONDS, TimeUnit.SECONDS)) {
                throw new KvFerryException(
                        ErrorCode.TIMEOUT,
                        "a file of rank "
                                + rank
                                + " did not end in "
                                + CLOSE_SECONDS
                                + " s; its regions are in use");
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
    }
}
