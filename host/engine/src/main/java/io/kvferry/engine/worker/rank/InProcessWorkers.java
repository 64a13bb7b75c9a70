// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.rank;

import io.kvferry.engine.model.Model;
import io.kvferry.engine.worker.Handshakes;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.engine.worker.StepPlan;
import io.kvferry.engine.worker.WorkerGroup;
import io.kvferry.engine.worker.WorkerSetup;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// The ranks of an engine in its own process: a single rank on the scheduler thread, several with a
/// thread each.
public final class InProcessWorkers implements WorkerGroup {
    private final List<RankWorker> ranks = new ArrayList<>();
    private final List<ExecutorService> threads = new ArrayList<>();
    private final List<RankResult> results = new ArrayList<>();
    private final List<Future<RankResult>> running = new ArrayList<>();
    private boolean closed;
    private boolean stuck;

    /// Opens all ranks, or none.
    public static InProcessWorkers open(WorkerSetup setup, Model model) {
        var group = new InProcessWorkers();
        try {
            for (int rank = 0; rank < setup.engine().worldSize(); rank++) {
                group.ranks.add(RankWorker.open(setup, model, rank));
                if (setup.engine().worldSize() > 1) {
                    group.threads.add(stepThread(rank));
                }
            }
            return group;
        } catch (RuntimeException | LinkageError e) {
            group.close();
            throw e;
        }
    }

    private static ExecutorService stepThread(int rank) {
        return Executors.newSingleThreadExecutor(
                Thread.ofPlatform().daemon().name("kvferry-rank-" + rank).factory());
    }

    @Override
    public List<Handshakes> handshakes() {
        return ranks.stream().map(RankWorker::handshakes).toList();
    }

    @Override
    public List<RankResult> execute(StepPlan plan) {
        results.clear();
        if (threads.isEmpty()) {
            results.add(ranks.getFirst().step(plan));
            return results;
        }
        running.clear();
        for (int rank = 0; rank < ranks.size(); rank++) {
            var worker = ranks.get(rank);
            Callable<RankResult> step = () -> worker.step(plan);
            running.add(threads.get(rank).submit(step));
        }
        for (int rank = 0; rank < ranks.size(); rank++) {
            results.add(await(running.get(rank), rank, plan));
        }
        return results;
    }

    private RankResult await(Future<RankResult> step, int rank, StepPlan plan) {
        try {
            return step.get(Math.max(1, plan.limit().remainingNanos()), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            stuck = true;
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    "rank " + rank + " did not finish step " + plan.number() + " in time",
                    e);
        } catch (ExecutionException e) {
            throw new KvFerryException(
                    ErrorCode.INTERNAL,
                    "rank " + rank + " broke in step " + plan.number() + ": " + e.getCause(),
                    e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            stuck = true;
            throw new KvFerryException(
                    ErrorCode.CANCELLED, "interrupted in step " + plan.number(), e);
        }
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        threads.forEach(ExecutorService::shutdownNow);
        if (stuck) {
            return; // a rank still runs: freeing its memory under it would crash the process
        }
        for (var worker : ranks) {
            worker.close();
        }
    }
}
