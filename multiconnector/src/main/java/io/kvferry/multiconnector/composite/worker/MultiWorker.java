// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.worker;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.observe.EventSink;

import java.util.List;
import java.util.Set;

/// The worker half of `MultiConnector` on one rank. What belongs to a feature goes to the children
/// that claim it.
///
/// Threading: the rank's step thread only.
public final class MultiWorker extends CompositeWorker<WorkerConnector> implements WorkerConnector {
    private int layers;

    public MultiWorker(WorkerChildren<WorkerConnector> children, EventSink events) {
        super(children, events);
    }

    @Override
    public void registerRegions(List<KvRegion> regions) {
        layers = regions.stream().mapToInt(region -> region.layerIndex() + 1).max().orElse(0);
        children.register(half -> half.registerRegions(regions));
    }

    @Override
    public void beginStep(WorkerStep step) {
        children.begin(step);
        children.each(
                "beginStep",
                (half, child) -> {
                    half.beginStep(children.step(child));
                    if (children.mustDrain(child) && children.has(child, Feature.LAYERWISE_LOAD)) {
                        // The engine waits for this load without running the request, so nobody
                        // else would ask for the layers.
                        for (int layer = 0; layer < layers; layer++) {
                            half.awaitLayer(layer, step.limit());
                        }
                    }
                });
    }

    @Override
    public void awaitLayer(int layerIndex, Deadline limit) {
        children.each(
                "awaitLayer",
                (half, child) -> {
                    if (children.has(child, Feature.LAYERWISE_LOAD)) {
                        half.awaitLayer(layerIndex, limit);
                    }
                });
    }

    @Override
    public void saveLayer(int layerIndex) {
        children.each(
                "saveLayer",
                (half, child) -> {
                    if (children.has(child, Feature.LAYERWISE_SAVE)) {
                        half.saveLayer(layerIndex);
                    }
                });
    }

    @Override
    public void endStep(WorkerStep step, Set<String> notComputed) {
        children.each("endStep", (half, child) -> half.endStep(children.step(child), notComputed));
    }
}
