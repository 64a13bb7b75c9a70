// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.tck.ec.EcConnectorContract;
import io.kvferry.tck.harness.HarnessShape;
import io.kvferry.tck.memory.MemoryEcProvider;
import io.kvferry.tck.memory.MemoryStore;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.function.UnaryOperator;

/// Encoder-cache connectors with one defect each, like [KvMutants].
final class EcMutants {
    private EcMutants() {}

    abstract static class Mutant extends EcConnectorContract {
        private final String name = "ec-mutant-" + UUID.randomUUID();
        private Optional<MemoryStore> store = Optional.empty();

        @Override
        protected EcConnectorProvider provider() {
            return Interceptor.wrap(
                    EcConnectorProvider.class,
                    new MemoryEcProvider(),
                    (_, arguments, proceed) -> {
                        if (arguments.length > 0) {
                            arguments[0] = context(arguments[0]);
                        }
                        return mutate(proceed.run());
                    });
        }

        private @Nullable Object mutate(@Nullable Object opened) {
            return switch (opened) {
                case EcSchedulerConnector half -> scheduler(half);
                case EcWorkerConnector half -> worker(half);
                case ConnectorCapabilities claimed -> capabilities(claimed);
                case null, default -> opened;
            };
        }

        @Nullable Object context(@Nullable Object context) {
            return context;
        }

        EcSchedulerConnector scheduler(EcSchedulerConnector half) {
            return half;
        }

        EcWorkerConnector worker(EcWorkerConnector half) {
            return half;
        }

        ConnectorCapabilities capabilities(ConnectorCapabilities claimed) {
            return claimed;
        }

        @Override
        protected Map<String, Object> options() {
            store = Optional.of(MemoryStore.open(name));
            return Map.of("store", name, "hand_off", "hold");
        }

        final MemoryStore store() {
            return store.orElseThrow();
        }

        /// Short: what a mutant does not do at once, it never does.
        @Override
        protected Duration limit() {
            return Duration.ofMillis(500);
        }

        @Override
        protected boolean damageStore() {
            store().corrupt();
            return true;
        }

        @Override
        protected boolean stopStore() {
            store().setDown(true);
            return true;
        }

        @Override
        protected void releaseStore() {
            store.ifPresent(MemoryStore::close);
        }
    }

    static EcWorkerConnector reporting(
            EcWorkerConnector half, UnaryOperator<List<Completion>> change) {
        return Defects.completing(EcWorkerConnector.class, half, change);
    }

    /// A worker that sees another cache.
    static EcWorkerConnector caching(EcWorkerConnector half, UnaryOperator<EncoderCache> change) {
        return Interceptor.wrap(
                EcWorkerConnector.class,
                half,
                (_, arguments, proceed) -> {
                    if (arguments.length == 2 && arguments[1] instanceof EncoderCache cache) {
                        arguments[1] = change.apply(cache);
                    }
                    return proceed.run();
                });
    }

    static class None extends Mutant {
        @Override
        protected Duration limit() {
            return Duration.ofSeconds(15);
        }
    }

    static class CompletesTwice extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return reporting(half, Defects::twice);
        }
    }

    static class LosesFailures extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return reporting(half, Defects::withoutFailures);
        }
    }

    static class NeverAnswersRevocations extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return reporting(half, Defects::withoutRevocations);
        }
    }

    static class LoadsWhatWasRevoked extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return Interceptor.wrap(
                    EcWorkerConnector.class,
                    half,
                    (_, arguments, proceed) -> {
                        if (arguments.length == 2 && arguments[0] instanceof WorkerStep step) {
                            arguments[0] =
                                    new WorkerStep(
                                            step.number(),
                                            step.plan(),
                                            List.of(),
                                            step.forward(),
                                            step.limit());
                        }
                        return proceed.run();
                    });
        }
    }

    static class PromisesParts extends Mutant {
        @Override
        EcSchedulerConnector scheduler(EcSchedulerConnector half) {
            return Interceptor.wrap(
                    EcSchedulerConnector.class,
                    half,
                    (_, _, proceed) -> {
                        var result = proceed.run();
                        if (!(result instanceof LookupResult.Hit hit) || hit.tokens() < 2) {
                            return result;
                        }
                        var share = hit.shares().getFirst();
                        return LookupResult.hit(
                                hit.tokens() - 1, hit.mode(), share.source(), share.tier());
                    });
        }
    }

    static class RepeatsItsPlan extends Mutant {
        @Override
        EcSchedulerConnector scheduler(EcSchedulerConnector half) {
            return Defects.repeatingPlans(EcSchedulerConnector.class, half);
        }
    }

    static class LoadsOverWhatIsThere extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return caching(
                    half,
                    cache ->
                            Defects.instead(
                                    EncoderCache.class,
                                    cache,
                                    "get",
                                    (_, _, _) -> Optional.empty()));
        }
    }

    /// Takes room for an item and forgets about it when the load fails.
    static class LeavesRoomOfFailedLoads extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            var caches = new ArrayList<EncoderCache>();
            return reporting(
                    caching(
                            half,
                            cache -> {
                                caches.add(cache);
                                return cache;
                            }),
                    completions -> {
                        for (var completion : completions) {
                            if (completion.result() instanceof Completion.Failed) {
                                var hash = completion.id().subject();
                                caches.getLast()
                                        .allocate(
                                                new EcItem(
                                                        "r",
                                                        0,
                                                        hash,
                                                        "image",
                                                        40,
                                                        24,
                                                        DType.FLOAT32));
                            }
                        }
                        return completions;
                    });
        }
    }

    static class LoadsOnOneRankOnly extends Mutant {
        private int workers;

        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            if (workers++ % 2 == 0) {
                return half;
            }
            return caching(
                    half,
                    cache ->
                            Defects.instead(
                                    EncoderCache.class,
                                    cache,
                                    "publish",
                                    (_, arguments, _) -> {
                                        cache.discard(String.valueOf(arguments[0]));
                                        return null;
                                    }));
        }
    }

    static class SavesAStepLate extends Mutant {
        @Override
        protected Map<String, Object> options() {
            var options = new HashMap<>(super.options());
            options.put("hand_off", "none"); // or the items would have to stay in place
            return options;
        }

        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            var late = new ArrayList<Runnable>();
            return Interceptor.wrap(
                    EcWorkerConnector.class,
                    half,
                    (method, arguments, proceed) -> {
                        if (arguments.length == 2
                                && arguments[0] instanceof EcItem item
                                && arguments[1] instanceof EncoderOutput output) {
                            late.add(() -> half.save(item, output));
                            return null;
                        }
                        if (method.getName().equals("report")) {
                            late.forEach(Runnable::run);
                            late.clear();
                        }
                        return proceed.run();
                    });
        }
    }

    static class IgnoresModels extends Mutant {
        private static final CacheNamespace ONE = HarnessShape.small().withModel("any").namespace();

        @Override
        @Nullable Object context(@Nullable Object context) {
            return switch (context) {
                case SchedulerContext c ->
                        new SchedulerContext(
                                c.instance(),
                                c.config(),
                                c.options(),
                                anyModel(c.engine()),
                                c.host());
                case WorkerContext c ->
                        new WorkerContext(
                                c.instance(),
                                c.config(),
                                c.options(),
                                anyModel(c.engine()),
                                c.rank(),
                                c.host());
                case null, default -> context;
            };
        }
    }

    private static EngineInfo anyModel(EngineInfo engine) {
        return new EngineInfo(
                engine.modelName(),
                IgnoresModels.ONE,
                engine.cache(),
                engine.worldSize(),
                engine.dataParallelRank(),
                engine.incarnation());
    }

    static class IgnoresItsRole extends Mutant {
        @Override
        EcSchedulerConnector scheduler(EcSchedulerConnector half) {
            return Defects.instead(
                    EcSchedulerConnector.class,
                    half,
                    "lookup",
                    (_, arguments, proceed) ->
                            arguments[0] instanceof EcItem item && item.hash().equals("role")
                                    ? LookupResult.hit(
                                            item.embeddings(),
                                            LookupResult.LoadMode.ASYNC,
                                            "mutant",
                                            LookupResult.Tier.HOST)
                                    : proceed.run());
        }
    }

    /// Has memory for the cache, or has not, each time that it is asked.
    static class ChangesItsClaims extends Mutant {
        private int asked;

        @Override
        ConnectorCapabilities capabilities(ConnectorCapabilities claimed) {
            return asked++ % 2 == 0 ? claimed : Defects.with(claimed, Feature.PROVIDES_MEMORY);
        }
    }

    static class LeaksAThread extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            Defects.leakAThread();
            return half;
        }
    }
}
