// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/// A connector with every feature, which writes down what it is called with. One engine at a time.
final class LeasingConnector implements KvConnectorProvider {
    /// Halves are opened again on threads of their own.
    final List<String> calls = new CopyOnWriteArrayList<>();

    volatile String brokenCall = "";

    /// Worker halves are not opened while it is closed.
    volatile CountDownLatch gate = new CountDownLatch(0);

    /// Worker halves are not closed while it is closed, for a minute at most.
    volatile CountDownLatch closing = new CountDownLatch(0);

    boolean resets = true;
    Optional<Deadline> pending = Optional.empty();
    private final String name;
    private @Nullable BlockPool pool;

    LeasingConnector(String name) {
        this.name = name;
    }

    BlockPool.Lease lease(TransferId id, int block) {
        if (pool == null) {
            throw new IllegalStateException("no pool was bound to " + name);
        }
        return pool.lease(id, 0, new int[] {block}, Deadline.in(Duration.ofSeconds(9)));
    }

    /// Renews a hold, as the child of a composite.
    Optional<Deadline> renewHold(TransferId id, Deadline deadline) {
        return pool == null ? Optional.empty() : pool.renewHold(id, deadline);
    }

    private void call(String what) {
        calls.add(what);
        if (what.startsWith(brokenCall) && !brokenCall.isEmpty()) {
            throw new IllegalStateException("injected into " + what);
        }
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public String description() {
        return "has every feature";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.NONE;
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        return ConnectorCapabilities.of(Feature.values());
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        call("openScheduler");
        return new Scheduler();
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        call("openWorker");
        while (gate.getCount() > 0) {
            try {
                gate.await();
            } catch (InterruptedException e) {
                calls.add("interrupted");
            }
        }
        return new Worker(context.rank().rank());
    }

    private final class Scheduler implements SchedulerConnector {
        @Override
        public void bindBlockPool(BlockPool blocks) {
            pool = blocks;
        }

        @Override
        public void onHandshakes(List<Payload> byRank) {
            byRank.forEach(
                    one -> call("onHandshakes " + new String(one.bytes(), StandardCharsets.UTF_8)));
        }

        @Override
        public Optional<Deadline> pendingWork() {
            return pending;
        }

        @Override
        public CompletionStage<Boolean> resetCache(Deadline limit) {
            call("resetCache");
            return CompletableFuture.completedStage(resets);
        }

        @Override
        public Stats drainStats() {
            return Stats.counter("lookups", 3);
        }

        @Override
        public List<CacheEvent> drainEvents() {
            return List.of(new CacheEvent.Cleared(name));
        }

        @Override
        public void onRequest(RequestView request) {
            call("onRequest " + request.id());
        }

        @Override
        public LookupResult lookup(RequestView request, int localTokens) {
            call("lookup");
            return LookupResult.MISS;
        }

        @Override
        public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
            call("onAllocated");
        }

        @Override
        public Payload buildPlan(StepView step) {
            call("buildPlan");
            for (int i = 0; i < step.scheduledCount(); i++) {
                var request = step.scheduled(i).request();
                call("step " + request.id() + " " + request.params().values());
            }
            return new Payload(3, ("plan of " + name).getBytes(StandardCharsets.UTF_8));
        }

        @Override
        public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
            call("finish " + request.params().values());
            return FinishDecision.RELEASE;
        }

        @Override
        public void close() {
            call("close scheduler");
        }
    }

    private final class Worker implements WorkerConnector {
        private final int rank;
        private final List<Completion> done = new ArrayList<>();

        Worker(int rank) {
            this.rank = rank;
        }

        @Override
        public void registerRegions(List<KvRegion> regions) {
            call("registerRegions " + regions.size());
        }

        @Override
        public Payload handshake() {
            return new Payload(1, (name + rank).getBytes(StandardCharsets.UTF_8));
        }

        @Override
        public void beginStep(WorkerStep step) {
            call(
                    "beginStep v"
                            + step.plan().version()
                            + " "
                            + new String(step.plan().bytes(), StandardCharsets.UTF_8));
            step.revoked()
                    .forEach(id -> done.add(new Completion(id, rank, new Completion.Revoked())));
        }

        @Override
        public void awaitLayer(int layerIndex, Deadline limit) {
            call("awaitLayer " + layerIndex);
        }

        @Override
        public void saveLayer(int layerIndex) {
            call("saveLayer " + layerIndex);
        }

        @Override
        public void endStep(WorkerStep step, Set<String> notComputed) {
            call("endStep");
        }

        @Override
        public StepReport report(WorkerStep step) {
            var report =
                    new StepReport(
                            rank,
                            step.number(),
                            done,
                            Payload.EMPTY,
                            Stats.counter("loads", 1),
                            List.of(new CacheEvent.Cleared("worker of " + name)));
            done.clear();
            return report;
        }

        @Override
        public void close() {
            call("close worker");
            var limit = Deadline.in(Duration.ofMinutes(1));
            while (closing.getCount() > 0 && !limit.passed()) {
                LockSupport.parkNanos(1_000_000);
            }
        }
    }
}
