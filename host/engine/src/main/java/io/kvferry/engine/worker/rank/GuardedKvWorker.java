// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.rank;

import io.kvferry.engine.model.LayerHooks;
import io.kvferry.engine.worker.RankResult;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerStep;

import org.jspecify.annotations.Nullable;

import java.util.Set;

/// The worker half of a KV connector.
final class GuardedKvWorker extends GuardedWorker<WorkerConnector> implements LayerHooks {
    private final int layers;
    private @Nullable WorkerStep step;
    private int loadedLayers;
    private int savedLayers;

    GuardedKvWorker(
            @Nullable WorkerConnector half,
            ConnectorCapabilities capabilities,
            int layers,
            Runnable wake) {
        super("the KV connector's worker half", half, capabilities, wake);
        this.layers = layers;
    }

    void begin(WorkerStep next) {
        step = next;
        loadedLayers = 0;
        savedLayers = 0;
        var target = half();
        if (target != null) {
            guard(() -> target.beginStep(next));
        }
    }

    @Override
    public void beforeLayer(int layerIndex) {
        var target = half();
        var now = step;
        if (target != null && now != null && capabilities.has(Feature.LAYERWISE_LOAD)) {
            loadedLayers = layerIndex + 1;
            guard(() -> target.awaitLayer(layerIndex, now.limit()));
        }
    }

    @Override
    public void afterLayer(int layerIndex) {
        var target = half();
        if (target != null && capabilities.has(Feature.LAYERWISE_SAVE)) {
            savedLayers = layerIndex + 1;
            guard(() -> target.saveLayer(layerIndex));
        }
    }

    /// Calls the layer hooks that a runner did not call, so that no load stays open and no save is
    /// lost.
    ///
    /// @param computed whether the runner returned normally: layers that it did not compute must
    ///   not be saved
    void completeLayers(boolean computed) {
        for (int layer = loadedLayers; layer < layers; layer++) {
            beforeLayer(layer);
        }
        for (int layer = savedLayers; computed && layer < layers; layer++) {
            afterLayer(layer);
        }
    }

    /// @param notComputed requests of the step whose KV is not in the blocks
    void end(RankResult result, Set<String> notComputed) {
        var target = half();
        var now = step;
        if (target != null && now != null) {
            guard(() -> target.endStep(now, notComputed));
        }
        if (half() != null && target != null && now != null) {
            guard(() -> result.kvReport(checked(target.report(now))));
        }
        takeDefect().ifPresent(result::kvDefect);
        step = null;
    }
}
