// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

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
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiFunction;

/// A KV connector whose answers a test gives, and which remembers what it was told. It moves no
/// bytes by itself: the test writes into the regions if it wants to. One engine per instance, in
/// one process.
///
/// Threading: script it before the engine starts, or from any thread with thread-safe functions.
public final class ScriptedConnector extends Scripted<ScriptedConnector>
        implements KvConnectorProvider {
    /// What `onAllocated` said.
    public record Allocation(String requestId, LoadAssignment load, List<Integer> blocks) {}

    private volatile BiFunction<RequestView, Integer, LookupResult> lookup =
            (_, _) -> LookupResult.MISS;
    private volatile BiFunction<RequestView, FinishReason, FinishDecision> finish =
            (_, _) -> FinishDecision.RELEASE;
    private final List<Allocation> allocations = Collections.synchronizedList(new ArrayList<>());
    private final List<TransferId> revoked = Collections.synchronizedList(new ArrayList<>());
    private final List<String> finished = Collections.synchronizedList(new ArrayList<>());
    private final Map<Integer, List<KvRegion>> regions = new ConcurrentHashMap<>();

    public ScriptedConnector(String name, ConnectorCapabilities capabilities) {
        super(name, capabilities);
    }

    /// Answers lookups by (request, local tokens).
    public ScriptedConnector onLookup(BiFunction<RequestView, Integer, LookupResult> answer) {
        lookup = answer;
        return this;
    }

    public ScriptedConnector onFinish(
            BiFunction<RequestView, FinishReason, FinishDecision> answer) {
        finish = answer;
        return this;
    }

    public List<Allocation> allocations() {
        return List.copyOf(allocations);
    }

    /// Ids that the scheduler half was told of by `onRevoked`.
    public List<TransferId> revoked() {
        return List.copyOf(revoked);
    }

    /// Ids of finished requests.
    public List<String> finished() {
        return List.copyOf(finished);
    }

    /// The regions of one rank.
    public List<KvRegion> regions(int rank) {
        return regions.getOrDefault(rank, List.of());
    }

    @Override
    ScriptedConnector self() {
        return this;
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return new Scheduler();
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        return new Worker(context.rank().rank());
    }

    private final class Scheduler implements SchedulerConnector {
        private final List<TransferId> plan = new ArrayList<>();

        @Override
        public LookupResult lookup(RequestView request, int localTokens) {
            return lookup.apply(request, localTokens);
        }

        @Override
        public void onAllocated(RequestView request, BlockTable blocks, LoadAssignment assigned) {
            var ids = new ArrayList<Integer>();
            for (int i = 0; blocks.groups() > 0 && i < blocks.count(0); i++) {
                ids.add(blocks.block(0, i));
            }
            allocations.add(new Allocation(request.id(), assigned, ids));
            if (!assigned.isEmpty()) {
                plan.add(assigned.id());
            }
        }

        @Override
        public Payload buildPlan(StepView step) {
            return ScriptedTransfers.plan(plan);
        }

        @Override
        public void onRevoked(TransferId id) {
            plan.remove(id);
            revoked.add(id);
        }

        @Override
        public FinishDecision finish(RequestView request, BlockTable blocks, FinishReason reason) {
            finished.add(request.id());
            return finish.apply(request, reason);
        }

        @Override
        public void close() {
            plan.clear();
        }
    }

    private final class Worker implements WorkerConnector {
        private final int rank;
        private final ScriptedTransfers.Rank loads;

        Worker(int rank) {
            this.rank = rank;
            loads = transfers.new Rank(rank);
        }

        @Override
        public void registerRegions(List<KvRegion> all) {
            regions.put(rank, List.copyOf(all));
        }

        @Override
        public void beginStep(WorkerStep step) {
            loads.begin(step);
        }

        @Override
        public void endStep(WorkerStep step, Set<String> notComputed) {
            // Saves nothing.
        }

        @Override
        public StepReport report(WorkerStep step) {
            return loads.report(step, Stats.EMPTY);
        }

        @Override
        public void close() {
            loads.close();
        }
    }
}
