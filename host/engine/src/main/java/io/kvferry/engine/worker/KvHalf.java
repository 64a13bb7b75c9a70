// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.engine.model.LayerHooks;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.HandshakeSource;
import io.kvferry.spi.kv.LayerwiseLoad;
import io.kvferry.spi.kv.LayerwiseSave;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.wire.Payload;

import org.jspecify.annotations.Nullable;

/// The worker half of a KV connector behind a wall: the first exception out of it is a defect,
/// after which it is closed and never called again.
final class KvHalf implements LayerHooks, AutoCloseable {
    private final int layers;
    private final ConnectorCapabilities capabilities;
    private @Nullable WorkerConnector half;
    private @Nullable Failure defect;
    private @Nullable WorkerStep step;
    private int loadedLayers;
    private int savedLayers;

    KvHalf(@Nullable WorkerConnector half, ConnectorCapabilities capabilities, int layers) {
        this.half = half;
        this.capabilities = capabilities;
        this.layers = layers;
    }

    Payload handshake() {
        return half instanceof HandshakeSource source && capabilities.has(Feature.HANDSHAKE)
                ? source.handshake()
                : Payload.EMPTY;
    }

    void begin(WorkerStep next) {
        step = next;
        loadedLayers = 0;
        savedLayers = 0;
        var target = half;
        if (target != null) {
            guard(() -> target.beginStep(next));
        }
    }

    @Override
    public void beforeLayer(int layerIndex) {
        var now = step;
        if (half instanceof LayerwiseLoad load
                && capabilities.has(Feature.LAYERWISE_LOAD)
                && now != null) {
            loadedLayers = layerIndex + 1;
            guard(() -> load.awaitLayer(layerIndex, now.limit()));
        }
    }

    @Override
    public void afterLayer(int layerIndex) {
        if (half instanceof LayerwiseSave save && capabilities.has(Feature.LAYERWISE_SAVE)) {
            savedLayers = layerIndex + 1;
            guard(() -> save.saveLayer(layerIndex));
        }
    }

    /// Calls the hooks that a runner left out, so that no load stays open and no save is lost.
    void completeLayers() {
        for (int layer = loadedLayers; layer < layers; layer++) {
            beforeLayer(layer);
        }
        for (int layer = savedLayers; layer < layers; layer++) {
            afterLayer(layer);
        }
    }

    void end(RankResult result) {
        var target = half;
        var now = step;
        if (target != null && now != null) {
            guard(() -> target.endStep(now));
        }
        if (half != null && target != null && now != null) {
            guard(() -> result.kvReport(checked(target.report(now))));
        }
        var broken = defect;
        if (broken != null) {
            defect = null;
            result.kvDefect(broken);
        }
        step = null;
    }

    private static StepReport checked(@Nullable StepReport report) {
        if (report == null) {
            throw new IllegalStateException("report() answered null");
        }
        return report;
    }

    private void guard(Runnable call) {
        try {
            call.run();
        } catch (Exception | LinkageError | AssertionError e) { // the one border to the plugin
            defect = new Failure(ErrorCode.INTERNAL, "the KV connector's worker half failed: " + e);
            giveUp();
        }
    }

    /// Closing is what stops the plugin's threads from touching the cache.
    private void giveUp() {
        var broken = half;
        half = null;
        if (broken != null) {
            try {
                broken.close();
            } catch (Exception | LinkageError | AssertionError e) {
                defect = new Failure(ErrorCode.INTERNAL, defect + "; and close() failed too: " + e);
            }
        }
    }

    @Override
    public void close() {
        var open = half;
        half = null;
        if (open != null) {
            open.close();
        }
    }
}
