// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.engine.model.LayerHooks;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.HandshakeSource;
import io.kvferry.spi.kv.LayerwiseLoad;
import io.kvferry.spi.kv.LayerwiseSave;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

/// The worker half of a KV connector.
final class KvHalf extends ConnectorHalf<WorkerConnector> implements LayerHooks {
    private final int layers;
    private final ConnectorCapabilities capabilities;
    private @Nullable WorkerStep step;
    private int loadedLayers;
    private int savedLayers;

    KvHalf(@Nullable WorkerConnector half, ConnectorCapabilities capabilities, int layers) {
        super("the KV connector's worker half", half);
        this.capabilities = capabilities;
        this.layers = layers;
    }

    Payload handshake() {
        return half() instanceof HandshakeSource source && capabilities.has(Feature.HANDSHAKE)
                ? source.handshake()
                : Payload.EMPTY;
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
        var now = step;
        if (half() instanceof LayerwiseLoad load
                && capabilities.has(Feature.LAYERWISE_LOAD)
                && now != null) {
            loadedLayers = layerIndex + 1;
            guard(() -> load.awaitLayer(layerIndex, now.limit()));
        }
    }

    @Override
    public void afterLayer(int layerIndex) {
        if (half() instanceof LayerwiseSave save && capabilities.has(Feature.LAYERWISE_SAVE)) {
            savedLayers = layerIndex + 1;
            guard(() -> save.saveLayer(layerIndex));
        }
    }

    /// Calls the hooks that a runner left out, so that no load stays open and no save is lost.
    ///
    /// @param computed whether the runner got through: layers that it did not compute must not be
    ///   saved
    void completeLayers(boolean computed) {
        for (int layer = loadedLayers; layer < layers; layer++) {
            beforeLayer(layer);
        }
        for (int layer = savedLayers; computed && layer < layers; layer++) {
            afterLayer(layer);
        }
    }

    void end(RankResult result) {
        var target = half();
        var now = step;
        if (target != null && now != null) {
            guard(() -> {
                if (!result.isClean()) {
                    target.forwardFailed(now);
                }
                target.endStep(now);
            });
        }
        if (half() != null && target != null && now != null) {
            guard(() -> result.kvReport(checked(target.report(now))));
        }
        takeDefect().ifPresent(result::kvDefect);
        step = null;
    }

    @Override
    public void close() {
        var open = take();
        if (open != null) {
            open.close();
        }
    }
}
