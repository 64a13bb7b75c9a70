// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.wire.Payload;

import java.util.Optional;

/// Common base of the worker halves of KV and encoder-cache connectors. Threads and errors as
/// [WorkerConnector].
public interface WorkerHalf extends AutoCloseable {
    /// Optional memory for the cache of this rank, for a half that transfers faster from memory of
    /// its own ([ConnectorCapabilities.Feature#PROVIDES_MEMORY]). Called at most once, before the
    /// cache is registered, which is then placed in it. If empty, the engine allocates the memory
    /// itself. At most one child of a composite provides it.
    ///
    /// @param bytes of the whole cache; of a KV cache, each region rounded up to 4096
    /// @throws KvFerryException on a failure; the engine then does not start. If there is not
    ///   enough room, return empty instead
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

    /// Aborts transfers in flight, waits (bounded) until no thread of the connector touches the
    /// engine's memory, and frees everything. Idempotent. Called on the rank's step thread; on
    /// another thread, after every other call has returned, when the half was given up or the rank
    /// ends.
    ///
    /// @throws KvFerryException TIMEOUT when threads may still touch the engine's memory. The
    ///   engine then calls again until it returns; open transfers count as in flight until then
    @Override
    void close();
}
