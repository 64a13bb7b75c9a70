// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.testkit;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;

/// Promises every prompt once, holds every ended one, and completes each load and hold a while
/// later in a thread of its own, which then signals. Nothing is copied: for models that do not
/// look.
public final class LateKv implements KvConnectorProvider {
    public static final String NAME = "late";

    /// Long enough for an engine to come to rest.
    private static final long LATE_NANOS = 300_000_000;

    public ConnectorConfig config() {
        return new ConnectorConfig(
                NAME,
                KvRole.BOTH,
                "engine-1",
                "cpu",
                0,
                -1,
                1,
                "127.0.0.1",
                1,
                LoadFailurePolicy.FAIL,
                Map.of());
    }

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "test connector that completes late, and says so";
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
        return ConnectorCapabilities.of(Feature.ASYNC_LOAD, Feature.HOLD, Feature.SIGNALS);
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return new SchedulerHalf();
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        return new WorkerHalf(context.rank().rank(), context.host()::wake);
    }

    private static final class SchedulerHalf implements SchedulerConnector {
        private final Set<String> promised = new HashSet<>();
        private final List<TransferId> begun = new ArrayList<>();

        @Override
        public LookupResult lookup(RequestView request, int localTokens) {
            return promised.add(request.id())
                    ? LookupResult.hit(
                            request.promptTokenCount() - localTokens,
                            LoadMode.ASYNC,
                            NAME,
                            Tier.PEER)
                    : LookupResult.MISS;
        }

        @Override
        public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {
            if (!load.isEmpty()) {
                begun.add(load.id());
            }
        }

        @Override
        public Payload buildPlan(StepView step) {
            var plan = new WireWriter().i32(begun.size());
            begun.forEach(id -> id.write(plan));
            begun.clear();
            return plan.toPayload(1);
        }

        @Override
        public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
            var hold = TransferId.save(request.id(), request.attempt());
            begun.add(hold);
            return new FinishDecision.Hold(
                    hold, Deadline.in(Duration.ofMinutes(5)), TransferParams.EMPTY);
        }

        @Override
        public void close() {}
    }

    private static final class WorkerHalf implements WorkerConnector {
        private final int rank;
        private final Runnable wake;
        private final Queue<Completion> due = new ConcurrentLinkedQueue<>();

        WorkerHalf(int rank, Runnable wake) {
            this.rank = rank;
            this.wake = wake;
        }

        @Override
        public void registerRegions(List<KvRegion> regions) {}

        @Override
        public void beginStep(WorkerStep step) {
            var plan = step.plan().reader();
            for (int left = plan.i32(); left > 0; left--) {
                var id = TransferId.read(plan);
                Thread.ofVirtual().start(() -> complete(id));
            }
            step.revoked()
                    .forEach(id -> due.add(new Completion(id, rank, new Completion.Revoked())));
        }

        private void complete(TransferId id) {
            LockSupport.parkNanos(LATE_NANOS);
            due.add(new Completion(id, rank, new Completion.Completed(0)));
            wake.run();
        }

        @Override
        public void endStep(WorkerStep step, Set<String> notComputed) {}

        @Override
        public StepReport report(WorkerStep step) {
            var completions = new ArrayList<Completion>();
            for (var next = due.poll(); next != null; next = due.poll()) {
                completions.add(next);
            }
            return new StepReport(
                    rank, step.number(), completions, Payload.EMPTY, Stats.EMPTY, List.of());
        }

        @Override
        public void close() {}
    }
}
