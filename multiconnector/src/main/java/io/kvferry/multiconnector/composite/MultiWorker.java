// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.HandshakeSource;
import io.kvferry.spi.kv.LayerwiseLoad;
import io.kvferry.spi.kv.LayerwiseSave;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.wire.Payload;

import java.util.List;

/// The worker half of `MultiConnector` on one rank. It implements every optional interface and
/// passes each on to the children that have it.
///
/// Threading: the rank's step thread only.
final class MultiWorker implements WorkerConnector, HandshakeSource, LayerwiseLoad, LayerwiseSave {
    private final WorkerChildren<WorkerConnector> children;
    private int layers;

    MultiWorker(WorkerChildren<WorkerConnector> children) {
        this.children = children;
    }

    @Override
    public void registerRegions(List<KvRegion> regions) {
        layers = regions.stream().mapToInt(region -> region.layerIndex() + 1).max().orElse(0);
        for (int i = 0; i < children.count(); i++) {
            children.half(i)
                    .registerRegions(
                            regions); // not isolated: an engine without its memory does not start
        }
    }

    @Override
    public Payload handshake() {
        return children.handshake((half, _) ->
                half instanceof HandshakeSource source ? source.handshake() : Payload.EMPTY);
    }

    @Override
    public void beginStep(WorkerStep step) {
        children.begin(step);
        children.each(
                "beginStep",
                (half, child) -> {
                    half.beginStep(children.step(child));
                    if (children.mustDrain(child) && half instanceof LayerwiseLoad layerwise) {
                        // The engine waits for this load without running the request, so nobody
                        // else would ask for the layers.
                        for (int layer = 0; layer < layers; layer++) {
                            layerwise.awaitLayer(layer, step.limit());
                        }
                    }
                });
    }

    @Override
    public void awaitLayer(int layerIndex, Deadline limit) {
        children.each(
                "awaitLayer",
                (half, _) -> {
                    if (half instanceof LayerwiseLoad layerwise) {
                        layerwise.awaitLayer(layerIndex, limit);
                    }
                });
    }

    @Override
    public void saveLayer(int layerIndex) {
        children.each(
                "saveLayer",
                (half, _) -> {
                    if (half instanceof LayerwiseSave layerwise) {
                        layerwise.saveLayer(layerIndex);
                    }
                });
    }

    @Override
    public void forwardFailed(WorkerStep step) {
        children.each("forwardFailed", (half, child) -> half.forwardFailed(children.step(child)));
    }

    @Override
    public void endStep(WorkerStep step) {
        children.each("endStep", (half, child) -> half.endStep(children.step(child)));
    }

    @Override
    public StepReport report(WorkerStep step) {
        return children.report(step, WorkerConnector::report);
    }

    @Override
    public void close() {
        children.close();
    }
}
