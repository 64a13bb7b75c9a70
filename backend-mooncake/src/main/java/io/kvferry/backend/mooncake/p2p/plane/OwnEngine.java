// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.plane;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.EngineInfo;
import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Optional;

/// The connector's own transfer engine: prefillers write, and every load has a write grant. Where
/// the engine can, peers write only what is granted, and read nothing.
public final class OwnEngine implements DataPlane {
    private final TransferEngine engine;
    private final boolean offersMemory;
    private Optional<RegisteredMemory> provided = Optional.empty();

    /// @param offersMemory whether the cache may lie in memory that peers on this host can map
    public OwnEngine(TransferEngine engine, boolean offersMemory) {
        this.engine = engine;
        this.offersMemory = offersMemory;
    }

    public TransferEngine engine() {
        return engine;
    }

    @Override
    public EngineInfo info() {
        return engine.info();
    }

    private Access access() {
        return engine.info().grants() ? Access.GRANTED : Access.OPEN;
    }

    /// Memory that peers on this host can map. It is unregistered when this plane is closed, and
    /// stays for the host until that frees it.
    @Override
    public Optional<ProvidedMemory> provideMemory(long bytes) {
        if (!offersMemory) {
            return Optional.empty();
        }
        var arena = Arena.ofShared();
        RegisteredMemory registered;
        try {
            registered = engine.allocate(bytes, access(), arena);
        } catch (RuntimeException e) {
            arena.close();
            throw e;
        }
        if (!registered.shared()) { // no better than what the host has
            registered.close();
            arena.close();
            return Optional.empty();
        }
        provided = Optional.of(registered);
        return Optional.of(new SharedCache(new MemoryRange.Host(registered.memory()), arena));
    }

    private record SharedCache(MemoryRange.Host range, Arena arena) implements ProvidedMemory {
        @Override
        public void close() {
            arena.close();
        }
    }

    @Override
    public Registered register(MemorySegment piece) {
        if (provided.isPresent() && contains(provided.get().memory(), piece)) {
            return provided.get()::close;
        }
        return engine.register(piece, access())::close;
    }

    private static boolean contains(MemorySegment whole, MemorySegment piece) {
        return piece.address() >= whole.address()
                && piece.address() + piece.byteSize() <= whole.address() + whole.byteSize();
    }

    @Override
    public Optional<String> trouble() {
        return engine.trouble();
    }

    @Override
    public void close() {
        engine.close();
    }
}
