// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.FinishDecision;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.TransferResult;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/// An encoder-cache connector whose answers a test gives.
final class ScriptedEc implements EcConnectorProvider {
    final Set<String> has = new HashSet<>();
    final List<String> calls = new ArrayList<>();
    LookupResult.LoadMode mode = LookupResult.LoadMode.ASYNC;
    TransferResult result = new TransferResult.Completed(1);
    FinishDecision decision = FinishDecision.RELEASE;
    String brokenCall = "";
    private final List<Completion> extra = new ArrayList<>();
    private final String name;

    ScriptedEc(String name) {
        this.name = name;
    }

    void complete(TransferId id, int rank) {
        extra.add(new Completion(id, rank, new TransferResult.Completed(1)));
    }

    private void call(String what) {
        calls.add(what);
        if (!brokenCall.isEmpty() && what.startsWith(brokenCall)) {
            throw new IllegalStateException("injected into " + what);
        }
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public String description() {
        return "answers what a test says";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.none();
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        return ConnectorCapabilities.of(Feature.ASYNC_LOAD, Feature.SAVE, Feature.HOLD);
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
            return has.contains(item.hash())
                    ? LookupResult.hit(item.embeddings(), mode, name, LookupResult.Tier.DISK)
                    : LookupResult.miss();
        }

        @Override
        public void onAllocated(EcItem item, Optional<TransferId> load) {
            call("onAllocated " + item.hash() + load.map(id -> " load").orElse(" none"));
            load.ifPresent(plan::add);
        }

        @Override
        public void onFreed(String hash) {
            call("onFreed " + hash);
        }

        @Override
        public Payload buildPlan(long step) {
            if (plan.isEmpty()) {
                return Payload.EMPTY;
            }
            var out = new WireWriter().i32(plan.size());
            plan.forEach(id -> id.write(out));
            plan.clear();
            return out.toPayload(1);
        }

        @Override
        public void onRevoked(TransferId id) {
            plan.remove(id);
            call("onRevoked " + id);
        }

        @Override
        public FinishDecision finish(String requestId, FinishReason reason) {
            call("finish " + requestId);
            return decision;
        }

        @Override
        public void close() {
            call("close scheduler");
        }
    }

    private final class Worker implements EcWorkerConnector {
        private final int rank;
        private final List<Completion> done = new ArrayList<>();

        Worker(int rank) {
            this.rank = rank;
        }

        @Override
        public void beginStep(WorkerStep step, EncoderCache cache) {
            call("beginStep");
            step.revoked()
                    .forEach(
                            id -> done.add(new Completion(id, rank, new TransferResult.Revoked())));
            if (!step.plan().isEmpty()) {
                var in = step.plan().reader();
                for (int n = in.count(13); n > 0; n--) {
                    done.add(new Completion(TransferId.read(in), rank, result));
                }
            }
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
            extra.removeIf(completion -> completion.rank() == rank && done.add(completion));
            var report =
                    new StepReport(
                            rank,
                            step.number(),
                            done,
                            Payload.EMPTY,
                            Stats.counter("loads", 1),
                            List.of());
            done.clear();
            return report;
        }

        @Override
        public void close() {
            call("close worker");
        }
    }
}
