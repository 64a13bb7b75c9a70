// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.plane;

import io.kvferry.backend.mooncake.te.EngineInfo;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.observe.Stats;

import java.lang.foreign.MemorySegment;
import java.util.Optional;

/// The data plane of one worker: moves its KV bytes.
///
/// Threading: any thread.
public sealed interface DataPlane extends AutoCloseable permits OwnEngine, HostBackends {
    /// Memory that peers have been given access to.
    @FunctionalInterface
    interface Registered extends AutoCloseable {
        @Override
        void close();
    }

    /// The identity that peers see. Without a transfer engine of its own it has no port and no
    /// grants.
    EngineInfo info();

    /// Memory for the cache that is reached better than other memory; empty when there is none.
    Optional<ProvidedMemory> provideMemory(long bytes);

    /// Makes a piece of the cache known, which may lie in memory that was provided.
    ///
    /// @throws KvFerryException when it cannot be reached
    Registered register(MemorySegment piece);

    /// Why peers cannot reach it, if that has been so for a while.
    default Optional<String> trouble() {
        return Optional.empty();
    }

    /// Figures since the last call.
    default Stats drainStats() {
        return Stats.EMPTY;
    }

    /// Fails what is in flight. On return nothing touches the cache any more. A later call returns
    /// at once, or fails as long as something may touch it.
    ///
    /// @throws KvFerryException when something may; the cache must stay in place then
    @Override
    void close();
}
