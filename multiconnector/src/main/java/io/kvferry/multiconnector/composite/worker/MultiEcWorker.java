// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.worker;

import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.wire.Payload;

import java.util.Optional;

/// The worker half of the encoder cache's `MultiConnector` on one rank.
///
/// Threading: the rank's step thread only.
public final class MultiEcWorker implements EcWorkerConnector {
    private final WorkerChildren<EcWorkerConnector> children;
    private final EventSink events;

    public MultiEcWorker(WorkerChildren<EcWorkerConnector> children, EventSink events) {
        this.children = children;
        this.events = events;
    }

    @Override
    public Optional<ProvidedMemory> provideMemory(long bytes) {
        return children.provideMemory(bytes, events);
    }

    @Override
    public void registerMemory(MemoryRange memory) {
        children.register(half -> half.registerMemory(memory));
    }

    @Override
    public Payload handshake() {
        return children.handshake();
    }

    @Override
    public void beginStep(WorkerStep step, EncoderCache cache) {
        children.begin(step);
        children.each("beginStep", (half, child) -> half.beginStep(children.step(child), cache));
    }

    @Override
    public void save(EcItem item, EncoderOutput output) {
        children.each("save", (half, _) -> half.save(item, output));
    }

    @Override
    public void endStep(WorkerStep step) {
        children.each("endStep", (half, child) -> half.endStep(children.step(child)));
    }

    @Override
    public StepReport report(WorkerStep step) {
        return children.report(step);
    }

    @Override
    public void close() {
        children.close();
    }
}
