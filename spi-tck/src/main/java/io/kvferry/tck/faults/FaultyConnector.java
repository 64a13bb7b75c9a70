// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.tck.faults.FaultPlan.Fault;

import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;

/// Wraps a KV connector provider so that what it opens misbehaves on a [FaultPlan]: methods throw
/// or answer null or nonsense; loads fail, come late, twice or never, or deliver wrong bytes. For
/// tests of engines and composites, in one process.
public final class FaultyConnector {
    private static final Set<String> MAY_THROW =
            Set.of(
                    "lookup",
                    "onAllocated",
                    "buildPlan",
                    "finish",
                    "beginStep",
                    "endStep",
                    "report",
                    "onRequest",
                    "onReport");

    /// Where a load goes, as the scheduler half saw it: positions from `first` on, block ids of
    /// group 0.
    @SuppressWarnings("ArrayRecordComponent") // never compared
    private record Loading(int first, int[] blocks) {}

    private final FaultPlan plan;
    private final Map<String, Map<TransferId, Loading>> loadsByEngine = new ConcurrentHashMap<>();

    private FaultyConnector(FaultPlan plan) {
        this.plan = plan;
    }

    public static KvConnectorProvider wrap(KvConnectorProvider provider, FaultPlan plan) {
        return wrap(provider.name(), provider, plan);
    }

    /// @param name what the faulty one is selected by, so that it can stand beside a sound one
    public static KvConnectorProvider wrap(
            String name, KvConnectorProvider provider, FaultPlan plan) {
        var faulty = new FaultyConnector(plan);
        return Interceptor.wrap(
                KvConnectorProvider.class,
                provider,
                (method, arguments, proceed) -> {
                    if (method.getName().equals("name")) {
                        return name;
                    }
                    var opened = proceed.run();
                    if (opened instanceof SchedulerConnector half
                            && arguments[0] instanceof SchedulerContext context) {
                        return faulty.scheduler(half, context);
                    }
                    if (opened instanceof WorkerConnector half
                            && arguments[0] instanceof WorkerContext context) {
                        return faulty.worker(half, context);
                    }
                    return opened;
                });
    }

    private Map<TransferId, Loading> loads(String engineId) {
        return loadsByEngine.computeIfAbsent(engineId, _ -> new ConcurrentHashMap<>());
    }

    private SchedulerConnector scheduler(SchedulerConnector half, SchedulerContext context) {
        var loads = loads(context.config().engineId());
        int blockTokens = context.engine().cache().blockTokens();
        return Interceptor.wrap(
                SchedulerConnector.class,
                half,
                (method, arguments, proceed) -> {
                    Faults.throwSometimes(method, MAY_THROW, plan);
                    if (method.getName().equals("onAllocated")
                            && arguments[1] instanceof BlockTable table
                            && arguments[2] instanceof LoadAssignment load
                            && !load.isEmpty()) {
                        int first = load.fromToken() / blockTokens;
                        loads.put(
                                load.id(),
                                new Loading(
                                        first,
                                        table.copy(
                                                0,
                                                first,
                                                Math.ceilDiv(load.toToken(), blockTokens))));
                    }
                    if (method.getName().equals("lookup")
                            && arguments[0] instanceof RequestView request
                            && plan.strikes(Fault.ILLEGAL_HIT)) {
                        return illegalHit(request, (int) arguments[1]);
                    }
                    var result = proceed.run();
                    return Faults.isForgotten(method, plan) ? null : result;
                });
    }

    private WorkerConnector worker(WorkerConnector half, WorkerContext context) {
        var loads = loads(context.config().engineId());
        var reports = new FaultyReports(plan);
        var regions = new ArrayList<KvRegion>();
        return Interceptor.wrap(
                WorkerConnector.class,
                half,
                (method, arguments, proceed) -> {
                    Faults.throwSometimes(method, MAY_THROW, plan);
                    if (method.getName().equals("beginStep")
                            && arguments[0] instanceof WorkerStep step) {
                        reports.begin(step);
                    }
                    if (method.getName().equals("registerRegions")
                            && arguments[0] instanceof List<?> all) {
                        all.forEach(region -> regions.add((KvRegion) region));
                    }
                    var result = proceed.run();
                    if (Faults.isForgotten(method, plan)) {
                        return null;
                    }
                    return result instanceof StepReport report
                            ? reports.disturb(
                                    report, completion -> change(completion, regions, loads))
                            : result;
                });
    }

    private LookupResult illegalHit(RequestView request, int localTokens) {
        int left = request.tokenCount() - localTokens;
        int tokens =
                switch (plan.pick(3)) {
                    case 0 -> Integer.MAX_VALUE; // overflows when the local tokens are added
                    case 1 -> left + 1;
                    default -> left > 3 ? left - 3 : left + 3; // ends within a block
                };
        return LookupResult.hit(
                tokens, LookupResult.LoadMode.ASYNC, "illegal", LookupResult.Tier.HOST);
    }

    private Completion change(
            Completion completion, List<KvRegion> regions, Map<TransferId, Loading> loads) {
        // A composite's worker half reports the parts of a load under the names of its children.
        var whole = completion.id().forChild("");
        var loading = Optional.ofNullable(loads.getOrDefault(completion.id(), loads.get(whole)));
        boolean completed = completion.result() instanceof Completion.Completed;
        if (loading.isEmpty() || !completed) {
            return completion;
        }
        int first = loading.get().first;
        int count = loading.get().blocks.length;
        if (plan.strikes(Fault.FAIL)) {
            return failed(
                    completion,
                    IntStream.range(first, first + count).toArray(),
                    "injected failure");
        }
        if (plan.strikes(Fault.TRUNCATE)) {
            return failed(
                    completion,
                    IntStream.range(first + count / 2, first + count).toArray(),
                    "injected short read");
        }
        if (plan.strikes(Fault.CORRUPT)) {
            var region = regions.get(plan.pick(regions.size()));
            long at =
                    region.offset(loading.get().blocks[plan.pick(count)])
                            + plan.pick((int) region.blockBytes());
            var memory = region.segment();
            memory.set(ValueLayout.JAVA_BYTE, at, (byte) ~memory.get(ValueLayout.JAVA_BYTE, at));
        }
        return completion;
    }

    private static Completion failed(Completion completion, int[] positions, String why) {
        var blocks = List.of(new Completion.FailedBlocks(0, positions));
        return new Completion(
                completion.id(),
                completion.rank(),
                new Completion.Failed(new Failure(ErrorCode.IO, why), blocks));
    }
}
