// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.tck.faults.FaultPlan.Fault;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/// Wraps an encoder-cache connector provider so that what it opens misbehaves on a [FaultPlan]:
/// methods throw; loads fail, come late, twice or never, or deliver wrong bytes. An item is loaded
/// whole or not at all, so [Fault#TRUNCATE] never strikes. For tests of engines and composites.
public final class FaultyEcConnector {
    private static final Set<String> MAY_THROW =
            Set.of(
                    "onRequest",
                    "lookup",
                    "onAllocated",
                    "buildPlan",
                    "onReport",
                    "finish",
                    "beginStep",
                    "save",
                    "endStep",
                    "report");

    private FaultyEcConnector() {}

    public static EcConnectorProvider wrap(EcConnectorProvider provider, FaultPlan plan) {
        return wrap(provider.name(), provider, plan);
    }

    /// @param name what the faulty one is selected by, so that it can stand beside a sound one
    public static EcConnectorProvider wrap(
            String name, EcConnectorProvider provider, FaultPlan plan) {
        return Interceptor.wrap(
                EcConnectorProvider.class,
                provider,
                (method, _, proceed) -> {
                    if (method.getName().equals("name")) {
                        return name;
                    }
                    var opened = proceed.run();
                    return switch (opened) {
                        case EcSchedulerConnector half -> scheduler(half, plan);
                        case EcWorkerConnector half -> worker(half, plan);
                        case null, default -> opened;
                    };
                });
    }

    private static EcSchedulerConnector scheduler(EcSchedulerConnector half, FaultPlan plan) {
        return Interceptor.wrap(
                EcSchedulerConnector.class,
                half,
                (method, arguments, proceed) -> {
                    Faults.throwSometimes(method, MAY_THROW, plan);
                    if (method.getName().equals("lookup")
                            && arguments[0] instanceof EcItem item
                            && plan.strikes(Fault.ILLEGAL_HIT)) {
                        return illegalHit(item, plan);
                    }
                    var result = proceed.run();
                    return Faults.isForgotten(method, plan) ? null : result;
                });
    }

    private static LookupResult illegalHit(EcItem item, FaultPlan plan) {
        int rows = plan.pick(2) == 0 ? item.embeddings() + 1 : Integer.MAX_VALUE;
        return LookupResult.hit(
                rows, LookupResult.LoadMode.ASYNC, "illegal", LookupResult.Tier.HOST);
    }

    private static EcWorkerConnector worker(EcWorkerConnector half, FaultPlan plan) {
        var reports = new FaultyReports(plan);
        Set<String> spoilt = ConcurrentHashMap.newKeySet();
        return Interceptor.wrap(
                EcWorkerConnector.class,
                half,
                (method, arguments, proceed) -> {
                    Faults.throwSometimes(method, MAY_THROW, plan);
                    if (method.getName().equals("beginStep")
                            && arguments[0] instanceof WorkerStep step
                            && arguments[1] instanceof EncoderCache cache) {
                        reports.begin(step);
                        arguments[1] = new FaultyCache(cache, plan, spoilt);
                    }
                    var result = proceed.run();
                    if (Faults.isForgotten(method, plan)) {
                        return null;
                    }
                    return result instanceof StepReport report
                            ? reports.disturb(report, completion -> change(completion, spoilt))
                            : result;
                });
    }

    private static Completion change(Completion completion, Set<String> spoilt) {
        boolean failed =
                completion.result() instanceof Completion.Completed
                        && spoilt.remove(completion.id().subject());
        return failed
                ? new Completion(
                        completion.id(),
                        completion.rank(),
                        new Completion.Failed(
                                new Failure(ErrorCode.IO, "injected failure"), List.of()))
                : completion;
    }

    /// The engine's cache as the connector sees it: some items are discarded where it publishes
    /// them, and some get a wrong byte.
    private static final class FaultyCache implements EncoderCache {
        private final EncoderCache cache;
        private final FaultPlan plan;
        private final Set<String> spoilt;
        private final Map<String, MemorySegment> rooms = new ConcurrentHashMap<>();

        FaultyCache(EncoderCache cache, FaultPlan plan, Set<String> spoilt) {
            this.cache = cache;
            this.plan = plan;
            this.spoilt = spoilt;
        }

        @Override
        public Optional<EncoderOutput> get(String hash) {
            return cache.get(hash);
        }

        @Override
        public EncoderOutput allocate(EcItem item) {
            var room = cache.allocate(item);
            rooms.put(item.hash(), room.data());
            return room;
        }

        @Override
        public void publish(String hash) {
            var room = rooms.remove(hash);
            if (plan.strikes(Fault.FAIL)) {
                spoilt.add(hash);
                cache.discard(hash);
                return;
            }
            if (room != null && plan.strikes(Fault.CORRUPT)) {
                long at = plan.pick((int) room.byteSize());
                byte right = room.get(ValueLayout.JAVA_BYTE, at);
                room.set(ValueLayout.JAVA_BYTE, at, (byte) ~right);
            }
            cache.publish(hash);
        }

        @Override
        public void discard(String hash) {
            rooms.remove(hash);
            cache.discard(hash);
        }
    }
}
