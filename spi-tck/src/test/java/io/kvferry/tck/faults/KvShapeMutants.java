// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.tck.faults.KvMutants.Mutant;

import org.jspecify.annotations.Nullable;

import java.util.List;

/// [KvMutants] with defects that only caches of other forms show.
final class KvShapeMutants {
    private KvShapeMutants() {}

    /// Takes the position of a layer in the model for its place among the regions of a rank, and
    /// leaves out what it does not find there.
    static class CountsLayersFromZero extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return Defects.instead(
                    WorkerConnector.class,
                    half,
                    "registerRegions",
                    (_, arguments, _) -> {
                        if (arguments[0] instanceof List<?> all) {
                            half.registerRegions(
                                    all.stream()
                                            .map(KvRegion.class::cast)
                                            .filter(region -> region.layerIndex() < all.size())
                                            .toList());
                        }
                        return null;
                    });
        }
    }

    /// Finds the blocks of engines of any tensor-parallel size, and calls loads complete whatever
    /// the blocks turn out to be.
    static class TakesOtherSizesForItsOwn extends Mutant {
        @Override
        protected KvConnectorProvider provider() {
            return Interceptor.wrap(
                    KvConnectorProvider.class,
                    super.provider(),
                    (_, arguments, proceed) -> {
                        if (arguments.length > 0) {
                            arguments[0] = ofOneSize(arguments[0]);
                        }
                        return proceed.run();
                    });
        }

        @Override
        WorkerConnector worker(WorkerConnector half) {
            return KvMutants.reporting(half, Defects::withoutFailures);
        }

        private static @Nullable Object ofOneSize(@Nullable Object context) {
            return switch (context) {
                case SchedulerContext c ->
                        new SchedulerContext(
                                c.instance(),
                                c.config(),
                                c.options(),
                                ofOneSize(c.engine()),
                                c.host());
                case WorkerContext c ->
                        new WorkerContext(
                                c.instance(),
                                c.config(),
                                c.options(),
                                ofOneSize(c.engine()),
                                c.rank(),
                                c.host());
                case null, default -> context;
            };
        }

        private static EngineInfo ofOneSize(EngineInfo engine) {
            var own = engine.namespace();
            return new EngineInfo(
                    engine.modelName(),
                    new CacheNamespace(
                            own.model(),
                            own.runner(),
                            own.dtype(),
                            own.layout(),
                            own.layoutVersion(),
                            own.blockTokens(),
                            1,
                            own.ppSize(),
                            own.salt()),
                    engine.cache(),
                    engine.worldSize(),
                    engine.dataParallelRank(),
                    engine.incarnation());
        }
    }
}
