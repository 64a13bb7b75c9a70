// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.worker;

import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerHalf;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.wire.Payload;

import java.util.Optional;

/// Common base of the worker halves of the KV and the encoder-cache composite.
///
/// Threading: the rank's step thread only.
abstract class CompositeWorker<C extends WorkerHalf> implements WorkerHalf {
    final WorkerChildren<C> children;
    private final EventSink events;

    CompositeWorker(WorkerChildren<C> children, EventSink events) {
        this.children = children;
        this.events = events;
    }

    @Override
    public final Optional<ProvidedMemory> provideMemory(long bytes) {
        return children.provideMemory(bytes, events);
    }

    @Override
    public final Payload handshake() {
        return children.handshake();
    }

    @Override
    public final StepReport report(WorkerStep step) {
        return children.report(step);
    }

    @Override
    public final void close() {
        children.close();
    }
}
