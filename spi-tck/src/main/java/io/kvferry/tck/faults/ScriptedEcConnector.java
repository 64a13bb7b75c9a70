// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.function.Function;

/// An encoder-cache connector whose answers a test gives, and which remembers what it was told. It
/// moves no bytes. One engine per instance, in one process.
///
/// Threading: script it before the engine starts, or from any thread with thread-safe functions.
public final class ScriptedEcConnector extends Scripted<ScriptedEcConnector>
        implements EcConnectorProvider {
    private volatile Function<EcItem, LookupResult> lookup = _ -> LookupResult.MISS;
    private volatile BiFunction<String, FinishReason, FinishDecision> finish =
            (_, _) -> FinishDecision.RELEASE;
    private volatile Consumer<String> before = _ -> {};
    private final List<String> calls = new CopyOnWriteArrayList<>();

    public ScriptedEcConnector(String name, ConnectorCapabilities capabilities) {
        super(name, capabilities);
    }

    public ScriptedEcConnector onLookup(Function<EcItem, LookupResult> answer) {
        lookup = answer;
        return this;
    }

    public ScriptedEcConnector onFinish(BiFunction<String, FinishReason, FinishDecision> answer) {
        finish = answer;
        return this;
    }

    /// Runs before each call, with what [#calls] will say of it, and before `buildPlan`; may throw
    /// instead of the call.
    public ScriptedEcConnector beforeEach(Consumer<String> action) {
        before = action;
        return this;
    }

    /// What was called: `lookup HASH`, `onAllocated HASH load` (or `none`), `onFreed HASH`,
    /// `onRevoked ID`, `finish REQUEST`, `beginStep`, `save HASH`, `endStep`, `close scheduler`,
    /// `close worker`.
    public List<String> calls() {
        return List.copyOf(calls);
    }

    private void call(String what) {
        calls.add(what);
        before.accept(what);
    }

    @Override
    ScriptedEcConnector self() {
        return this;
    }

    @Override
    public EcSchedulerConnector openScheduler(SchedulerContext context) {
        return new Scheduler();
    }

    @Override
    public EcWorkerConnector openWorker(WorkerContext context) {
        return new Worker(context.rank().rank());
    }

    private final class Scheduler implements EcSchedulerConnector {
        private final List<TransferId> plan = new ArrayList<>();

        @Override
        public LookupResult lookup(EcItem item) {
            call("lookup " + item.hash());
            return lookup.apply(item);
        }

        @Override
        public void onAllocated(EcItem item, Optional<TransferId> id) {
            call("onAllocated " + item.hash() + (id.isPresent() ? " load" : " none"));
            id.ifPresent(plan::add);
        }

        @Override
        public void onFreed(String hash) {
            call("onFreed " + hash);
        }

        @Override
        public Payload buildPlan(long step) {
            before.accept("buildPlan");
            return ScriptedTransfers.plan(plan);
        }

        @Override
        public void onRevoked(TransferId id) {
            plan.remove(id);
            call("onRevoked " + id);
        }

        @Override
        public FinishDecision finish(String requestId, FinishReason reason) {
            call("finish " + requestId);
            return finish.apply(requestId, reason);
        }

        @Override
        public void close() {
            call("close scheduler");
        }
    }

    private final class Worker implements EcWorkerConnector {
        private final ScriptedTransfers.Rank loads;

        Worker(int rank) {
            loads = transfers.new Rank(rank);
        }

        @Override
        public void beginStep(WorkerStep step, EncoderCache cache) {
            call("beginStep");
            loads.begin(step);
        }

        @Override
        public void save(EcItem item, EncoderOutput output) {
            call("save " + item.hash());
        }

        @Override
        public void endStep(WorkerStep step) {
            call("endStep");
        }

        @Override
        public StepReport report(WorkerStep step) {
            return loads.report(step, Stats.counter("loads", 1));
        }

        @Override
        public void close() {
            call("close worker");
        }
    }
}
