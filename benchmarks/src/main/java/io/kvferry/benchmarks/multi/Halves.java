// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.multi;

import io.kvferry.multiconnector.SelectedKv;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.RankInfo;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.time.Duration;
import java.util.List;
import java.util.Set;

/// Both halves of a connector, called as an engine calls them in a step, without the engine.
final class Halves implements AutoCloseable {
    private static final int BLOCK = 16;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private final SchedulerConnector scheduler;
    private final WorkerConnector worker;
    private final StepView view;
    private long step;

    Halves(SelectedKv selected, int requests) {
        var group =
                new KvCacheGroup(
                        0,
                        KvCacheGroup.Kind.FULL_ATTENTION,
                        new KvFormat.Heads(DType.FLOAT16, KvLayout.LBNHC, 1, 2),
                        List.of("l0"),
                        BLOCK,
                        64);
        var spec = new KvCacheSpec(List.of(group), 8);
        var namespace =
                new CacheNamespace("m", "r", DType.FLOAT16, KvLayout.LBNHC, 1, BLOCK, 1, 1, "");
        var engine = new EngineInfo("m", namespace, spec, 1, 0, 1);
        scheduler = selected.openScheduler(engine);
        worker = selected.openWorker(engine, RankInfo.SINGLE);
        var views = new Scheduled[requests];
        for (int i = 0; i < requests; i++) {
            views[i] = new Scheduled(new Request("request-" + i));
            scheduler.onRequest(views[i].request());
        }
        view = new View(views);
    }

    /// CPU nanoseconds of one step, averaged over `steps`.
    double nanosPerStep(int steps) {
        long start = THREADS.getCurrentThreadCpuTime();
        for (int i = 0; i < steps; i++) {
            step();
        }
        return (double) (THREADS.getCurrentThreadCpuTime() - start) / steps;
    }

    private void step() {
        step++;
        var plan = scheduler.buildPlan(view);
        var workerStep =
                new WorkerStep(step, plan, List.of(), true, Deadline.in(Duration.ofSeconds(60)));
        worker.beginStep(workerStep);
        worker.endStep(workerStep, Set.of());
        var report = worker.report(workerStep);
        var merged = new MergedReport(step, List.of(), List.of(report));
        if (scheduler instanceof SchedulerHalf.Composite composite) {
            composite.settle(merged);
        } else {
            scheduler.onReport(merged);
        }
        scheduler.drainStats();
        scheduler.drainEvents();
    }

    @Override
    public void close() {
        scheduler.close();
        worker.close();
    }

    private record View(Scheduled[] requests) implements StepView {
        @Override
        public long number() {
            return 1;
        }

        @Override
        public int scheduledCount() {
            return requests.length;
        }

        @Override
        public ScheduledRequest scheduled(int index) {
            return requests[index];
        }

        @Override
        public List<String> preempted() {
            return List.of();
        }
    }

    private record Scheduled(Request request) implements StepView.ScheduledRequest, BlockTable {
        @Override
        public boolean admitted() {
            return false;
        }

        @Override
        public int computedTokens() {
            return 63;
        }

        @Override
        public int scheduledTokens() {
            return 1;
        }

        @Override
        public BlockTable blocks() {
            return this;
        }

        @Override
        public int groups() {
            return 1;
        }

        @Override
        public int count(int group) {
            return 4;
        }

        @Override
        public int block(int group, int position) {
            return position;
        }
    }

    private record Request(String id) implements RequestView {
        @Override
        public int tokenCount() {
            return 64;
        }

        @Override
        public int promptTokenCount() {
            return 64;
        }

        @Override
        public int token(int position) {
            return position;
        }

        @Override
        public int blockHashCount() {
            return 4;
        }

        @Override
        public BlockHash blockHash(int block) {
            return new BlockHash(block, 1, 2, 3);
        }

        @Override
        public int computedTokenCount() {
            return 63;
        }

        @Override
        public TransferParams params() {
            return TransferParams.EMPTY;
        }

        @Override
        public String cacheSalt() {
            return "";
        }

        @Override
        public int attempt() {
            return 0;
        }
    }
}
