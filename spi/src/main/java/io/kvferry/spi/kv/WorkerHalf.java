// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.wire.Payload;

import java.util.Optional;

/// Common base of the worker halves of KV and encoder-cache connectors. Threads and errors as
/// [WorkerConnector].
public interface WorkerHalf extends AutoCloseable {
    /// Memory for the cache of this rank, which the half reaches better than other memory
    /// ([ConnectorCapabilities.Feature#PROVIDES_MEMORY]). At most once, before the cache is
    /// registered, which then lies in it. The engine allocates by itself when this is empty. Of a
    /// composite at most one child provides it.
    ///
    /// @param bytes of the whole cache; of a KV cache, each region rounded up to 4096
    /// @throws KvFerryException when something is broken; the engine then does not start. Having no
    ///   room is no reason to throw
    default Optional<ProvidedMemory> provideMemory(long bytes) {
        return Optional.empty();
    }

    /// Data that the scheduler half needs before the first request, such as the address of a
    /// listener ([ConnectorCapabilities.Feature#HANDSHAKE]). Once, after the memory was registered.
    default Payload handshake() {
        return Payload.EMPTY;
    }

    /// Events since the last report. Called once per step, after `endStep`, also on empty steps;
    /// never blocks. A half with something to report between steps says so with
    /// [io.kvferry.spi.HostServices#wake].
    StepReport report(WorkerStep step);

    /// Aborts what is in flight, waits (bounded) until no thread of the connector touches memory of
    /// the engine, frees everything. Idempotent. On the rank's step thread, or, when the half is
    /// given up or the rank ends, on another one, after every other call has returned.
    ///
    /// @throws KvFerryException TIMEOUT when threads may still touch that memory: this is called
    ///   again, until it returns; what the half has open has not ended until then
    @Override
    void close();
}
