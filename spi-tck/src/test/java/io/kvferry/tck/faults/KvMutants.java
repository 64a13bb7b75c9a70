// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.tck.kv.KvConnectorContract;
import io.kvferry.tck.memory.MemoryConnectorProvider;
import io.kvferry.tck.memory.MemoryConnectorTckTest;
import io.kvferry.tck.memory.MemoryStore;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.UnaryOperator;

/// KV connectors with one defect each, as subclasses of the contract. Not run directly:
/// [KvMutantsTest] runs them and expects each to fail. This file has defects in answers and
/// reports.
final class KvMutants {
    private KvMutants() {}

    abstract static class Mutant extends KvConnectorContract {
        private final String name = "mutant-" + UUID.randomUUID();
        private Optional<MemoryStore> store = Optional.empty();

        @Override
        protected KvConnectorProvider provider() {
            return Interceptor.wrap(
                    KvConnectorProvider.class,
                    new MemoryConnectorProvider(),
                    (_, _, proceed) -> mutate(proceed.run()));
        }

        private @Nullable Object mutate(@Nullable Object opened) {
            return switch (opened) {
                case SchedulerConnector half -> scheduler(half);
                case WorkerConnector half -> worker(half);
                case ConnectorCapabilities claimed -> capabilities(claimed);
                case null, default -> opened;
            };
        }

        SchedulerConnector scheduler(SchedulerConnector half) {
            return half;
        }

        WorkerConnector worker(WorkerConnector half) {
            return half;
        }

        ConnectorCapabilities capabilities(ConnectorCapabilities claimed) {
            return claimed;
        }

        String load() {
            return "async";
        }

        String save() {
            return "step";
        }

        final String name() {
            return name;
        }

        @Override
        protected Map<String, Object> options() {
            store = Optional.of(MemoryStore.open(name));
            return options(name);
        }

        final Map<String, Object> options(String storeName) {
            return Map.of("store", storeName, "load", load(), "save", save());
        }

        @Override
        protected Optional<Map<String, Object>> optionsWithBound(int transfers) {
            var options = new HashMap<>(options(name));
            options.put("queue", transfers);
            return Optional.of(options);
        }

        @Override
        protected boolean stallStore() {
            store.orElseThrow().setStalled(true);
            return true;
        }

        @Override
        protected void resumeStore() {
            store.orElseThrow().setStalled(false);
        }

        @Override
        protected boolean isSharedClass(String className) {
            return MemoryConnectorTckTest.isMedium(className);
        }

        /// Short: what a mutant does not do at once, it never does.
        @Override
        protected Duration limit() {
            return Duration.ofMillis(500);
        }

        @Override
        protected boolean damageStore() {
            store.orElseThrow().corrupt();
            return true;
        }

        @Override
        protected void releaseStore() {
            store.ifPresent(MemoryStore::close);
        }
    }

    static WorkerConnector reporting(WorkerConnector half, UnaryOperator<List<Completion>> change) {
        return Defects.completing(WorkerConnector.class, half, change);
    }

    /// A scheduler half whose lookups are changed.
    static SchedulerConnector answering(
            SchedulerConnector half, UnaryOperator<LookupResult.Hit> change) {
        return Interceptor.wrap(
                SchedulerConnector.class,
                half,
                (_, _, proceed) -> {
                    var result = proceed.run();
                    return result instanceof LookupResult.Hit hit ? change.apply(hit) : result;
                });
    }

    static LookupResult.Hit longer(LookupResult.Hit hit, int by) {
        var share = hit.shares().getFirst();
        return (LookupResult.Hit)
                LookupResult.hit(hit.tokens() + by, hit.mode(), share.source(), share.tier());
    }

    static class None extends Mutant {
        @Override
        protected Duration limit() {
            return Duration.ofSeconds(15);
        }

        @Override
        protected KvConnectorProvider provider() {
            return new MemoryConnectorProvider(); // which can be loaded twice, unlike a proxy
        }
    }

    static class CompletesTwice extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return reporting(half, Defects::twice);
        }
    }

    static class HitsBeyondThePrompt extends Mutant {
        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            return answering(half, hit -> longer(hit, 4));
        }
    }

    static class IgnoresAlignment extends Mutant {
        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            return answering(half, hit -> hit.tokens() > 4 ? longer(hit, -1) : hit);
        }
    }

    static class ChangesItsMind extends Mutant {
        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            var asked = new int[1];
            return answering(
                    half, hit -> ++asked[0] > 5 && hit.tokens() > 4 ? longer(hit, -4) : hit);
        }
    }

    static class NeverAnswersRevocations extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return reporting(half, Defects::withoutRevocations);
        }
    }

    static class LosesFailures extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return reporting(half, Defects::withoutFailures);
        }
    }

    static class NeverLearnsOfFailures extends Mutant {
        @Override
        protected boolean damageStore() {
            return true; // every load fails anyway, and the store goes on promising
        }

        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            return Interceptor.wrap(
                    SchedulerConnector.class,
                    half,
                    (method, arguments, proceed) ->
                            method.getName().equals("onReport")
                                            && arguments[0] instanceof MergedReport report
                                    ? report
                                    : proceed.run());
        }

        @Override
        WorkerConnector worker(WorkerConnector half) {
            return reporting(
                    half,
                    completions ->
                            completions.stream()
                                    .map(completion ->
                                            new Completion(
                                                    completion.id(),
                                                    completion.rank(),
                                                    new Completion.Failed(
                                                            new Failure(ErrorCode.IO, "mutant"),
                                                            List.of())))
                                    .toList());
        }
    }

    static class RepeatsItsPlan extends Mutant {
        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            return Defects.repeatingPlans(SchedulerConnector.class, half);
        }
    }

    static class KeepsViews extends Mutant {
        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            var kept = new ArrayList<StepView>();
            return Defects.instead(
                    SchedulerConnector.class,
                    half,
                    "buildPlan",
                    (_, arguments, proceed) -> {
                        kept.add((StepView) arguments[0]);
                        kept.getFirst().scheduledCount();
                        return proceed.run();
                    });
        }
    }

    static class SharesItsSchedulerHalf extends Mutant {
        private final List<SchedulerConnector> first = new ArrayList<>();

        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            first.add(half);
            return first.getFirst();
        }
    }

    static class LeaksAThread extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            Defects.leakAThread();
            return half;
        }
    }

    /// Not as often as a case asks in its time, each millisecond; then it is, for the harness
    /// closes what the case has left.
    static class IsNeverClosed extends Mutant {
        private static final int REFUSES = 1000;

        @Override
        WorkerConnector worker(WorkerConnector half) {
            var asked = new AtomicInteger();
            return Defects.instead(
                    WorkerConnector.class,
                    half,
                    "close",
                    (_, _, proceed) -> {
                        if (asked.incrementAndGet() <= REFUSES) {
                            throw new KvFerryException(ErrorCode.TIMEOUT, "not yet");
                        }
                        return proceed.run();
                    });
        }
    }

    /// Says TIMEOUT, and then that it is closed, while a thread still writes.
    static class SaysClosedWhileItWrites extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            var regions = new ArrayList<KvRegion>();
            var asked = new AtomicInteger();
            return Interceptor.wrap(
                    WorkerConnector.class,
                    half,
                    (called, arguments, proceed) -> {
                        if (called.getName().equals("registerRegions")) {
                            ((List<?>) arguments[0]).forEach(each -> regions.add((KvRegion) each));
                        }
                        if (!called.getName().equals("close")) {
                            return proceed.run();
                        }
                        if (asked.incrementAndGet() == 1) {
                            proceed.run();
                            Defects.writeOn(() ->
                                    regions.forEach(region -> region.block(0).fill((byte) 7)));
                            throw new KvFerryException(ErrorCode.TIMEOUT, "threads still write");
                        }
                        return null;
                    });
        }
    }
}
