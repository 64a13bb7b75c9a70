// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.worker;

import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.observe.EventSink;

/// The worker half of the encoder cache's `MultiConnector` on one rank.
///
/// Threading: the rank's step thread only.
public final class MultiEcWorker extends CompositeWorker<EcWorkerConnector>
        implements EcWorkerConnector {
    public MultiEcWorker(WorkerChildren<EcWorkerConnector> children, EventSink events) {
        super(children, events);
    }

    @Override
    public void registerMemory(MemoryRange memory) {
        children.register(half -> half.registerMemory(memory));
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
}
