// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.wire.Payload;

/// What the worker halves of KV and of encoder-cache connectors have in common. Threads and errors
/// as [WorkerConnector].
public interface WorkerHalf extends AutoCloseable {
    /// What the scheduler half has to know before the first request, such as the address of a
    /// listener ([ConnectorCapabilities.Feature#HANDSHAKE]). Once, after the memory was registered.
    default Payload handshake() {
        return Payload.EMPTY;
    }

    /// What happened since the last report. Once per step, after `endStep`, also on empty steps;
    /// never blocks. A half with something to report between steps says so with
    /// [io.kvferry.spi.HostServices#wake].
    StepReport report(WorkerStep step);

    /// Aborts what is in flight, waits (bounded) until no thread of the connector touches memory of
    /// the engine, frees everything. Idempotent.
    @Override
    void close();
}
