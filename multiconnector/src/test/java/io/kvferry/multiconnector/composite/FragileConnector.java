// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.tck.faults.ScriptedConnector;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/// Offers 32 tokens of everything, then its worker half throws in the step that begins the load;
/// or, when told not to, notes the layers it is asked for.
final class FragileConnector {
    final KvConnectorProvider provider;
    final List<Integer> layers = new ArrayList<>();
    boolean throwing = true;
    LoadMode mode = LoadMode.ASYNC;

    FragileConnector(String name) {
        var scripted =
                new ScriptedConnector(
                                name,
                                ConnectorCapabilities.of(
                                        Feature.ASYNC_LOAD,
                                        Feature.SYNC_LOAD,
                                        Feature.LAYERWISE_LOAD))
                        .onLookup(
                                (_, local) -> LookupResult.hit(32 - local, mode, name, Tier.HOST));
        provider =
                (KvConnectorProvider)
                        Proxy.newProxyInstance(
                                getClass().getClassLoader(),
                                new Class<?>[] {KvConnectorProvider.class},
                                (_, method, arguments) -> {
                                    try {
                                        var result = method.invoke(scripted, arguments);
                                        return result instanceof WorkerConnector worker
                                                ? new Fragile(worker)
                                                : result;
                                    } catch (InvocationTargetException e) {
                                        throw e.getCause();
                                    }
                                });
    }

    private final class Fragile implements WorkerConnector {
        private final WorkerConnector whole;

        Fragile(WorkerConnector whole) {
            this.whole = whole;
        }

        @Override
        public void registerRegions(List<KvRegion> regions) {
            whole.registerRegions(regions);
        }

        @Override
        public void beginStep(WorkerStep step) {
            whole.beginStep(step);
            if (throwing && !step.plan().isEmpty()) {
                throw new IllegalStateException("broke while loading");
            }
        }

        @Override
        public void awaitLayer(int layerIndex, Deadline limit) {
            layers.add(layerIndex);
        }

        @Override
        public void endStep(WorkerStep step, Set<String> notComputed) {
            whole.endStep(step, notComputed);
        }

        @Override
        public StepReport report(WorkerStep step) {
            return whole.report(step);
        }

        @Override
        public void close() {
            whole.close();
        }
    }
}
