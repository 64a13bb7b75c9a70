// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.multi;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.BlockTable;
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
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import java.util.List;
import java.util.Set;

/// A connector with the minimal per-step work of one that saves: it inspects every scheduled
/// request, sends a 12-byte plan for each, decodes it on the worker and reports one counter. Moves
/// no data.
public final class PlanningConnector implements KvConnectorProvider {
    static final String NAME = "PlanningConnector";

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "plans for every request and moves nothing (benchmarks)";
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
        return ConnectorCapabilities.of(Feature.SAVE);
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return new Scheduler();
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        return new Worker(context.rank().rank());
    }

    private static final class Scheduler implements SchedulerConnector {
        private final WireWriter out = new WireWriter(8192);

        @Override
        public LookupResult lookup(RequestView request, int localTokens) {
            return LookupResult.MISS;
        }

        @Override
        public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {}

        @Override
        public Payload buildPlan(StepView step) {
            out.reset();
            for (int i = 0; i < step.scheduledCount(); i++) {
                var scheduled = step.scheduled(i);
                int end = scheduled.computedTokens() + scheduled.scheduledTokens();
                var blocks = scheduled.blocks();
                out.i32(i).i32(end).i32(blocks.block(0, blocks.count(0) - 1));
            }
            return out.toPayload(1);
        }

        @Override
        public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
            return FinishDecision.RELEASE;
        }

        @Override
        public void close() {}
    }

    private static final class Worker implements WorkerConnector {
        private final int rank;
        private long planned;

        Worker(int rank) {
            this.rank = rank;
        }

        @Override
        public void registerRegions(List<KvRegion> regions) {}

        @Override
        public void beginStep(WorkerStep step) {
            var in = step.plan().reader();
            while (in.remaining() > 0) {
                planned += in.i32() + in.i32() + in.i32() > 0 ? 1 : 0;
            }
        }

        @Override
        public void endStep(WorkerStep step, Set<String> notComputed) {}

        @Override
        public StepReport report(WorkerStep step) {
            var report =
                    new StepReport(
                            rank,
                            step.number(),
                            List.of(),
                            Payload.EMPTY,
                            Stats.counter("planned", planned),
                            List.of());
            planned = 0;
            return report;
        }

        @Override
        public void close() {}
    }
}
