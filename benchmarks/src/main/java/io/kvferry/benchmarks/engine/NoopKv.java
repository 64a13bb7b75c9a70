// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.engine;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.ConnectorCapabilities;
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

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/// A connector that never has anything: what remains is the cost of asking it.
public final class NoopKv implements KvConnectorProvider {
    private final Map<String, Long> counters = new HashMap<>();

    /// Reports nothing.
    public NoopKv() {
        this(0);
    }

    /// @param reported counters in each step report
    public NoopKv(int reported) {
        for (int i = 0; i < reported; i++) {
            counters.put("noop_counter_" + i, 1L);
        }
    }

    @Override
    public String name() {
        return "noop";
    }

    @Override
    public String description() {
        return "does nothing";
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
        return ConnectorCapabilities.of();
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return new SchedulerConnector() {
            @Override
            public LookupResult lookup(RequestView request, int localTokens) {
                return LookupResult.MISS;
            }

            @Override
            public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment load) {}

            @Override
            public Payload buildPlan(StepView step) {
                return Payload.EMPTY;
            }

            @Override
            public FinishDecision finish(
                    RequestView request, BlockTable blocks, FinishReason reason) {
                return FinishDecision.RELEASE;
            }

            @Override
            public void close() {}
        };
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        int rank = context.rank().rank();
        return new WorkerConnector() {
            @Override
            public void registerRegions(List<KvRegion> regions) {}

            @Override
            public void beginStep(WorkerStep step) {}

            @Override
            public void endStep(WorkerStep step, Set<String> notComputed) {}

            @Override
            public StepReport report(WorkerStep step) {
                var stats =
                        counters.isEmpty() ? Stats.EMPTY : new Stats(counters, Map.of(), Map.of());
                return new StepReport(
                        rank, step.number(), List.of(), Payload.EMPTY, stats, List.of());
            }

            @Override
            public void close() {}
        };
    }
}
