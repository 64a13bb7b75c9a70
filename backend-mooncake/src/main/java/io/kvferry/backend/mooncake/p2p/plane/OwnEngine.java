// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.plane;

import io.kvferry.backend.mooncake.te.Access;
import io.kvferry.backend.mooncake.te.EngineInfo;
import io.kvferry.backend.mooncake.te.EngineMemory;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.observe.Stats;

import java.lang.foreign.MemorySegment;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;

/// The connector's own transfer engine: prefillers write, and every load has a write grant. Where
/// the engine can, peers write only what is granted, and read nothing.
public final class OwnEngine implements DataPlane {
    private final TransferEngine engine;
    private final boolean offersMemory;
    private final AtomicLong reportedRefusals = new AtomicLong();

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

    @Override
    public Optional<ProvidedMemory> provideMemory(long bytes) {
        return offersMemory ? EngineMemory.of(engine, bytes) : Optional.empty();
    }

    @Override
    public Registered register(MemorySegment piece) {
        return engine.register(piece, access())::close;
    }

    @Override
    public Optional<String> trouble() {
        return engine.trouble();
    }

    @Override
    public Stats drainStats() {
        long refused = engine.refusedWrites();
        long more = refused - reportedRefusals.getAndSet(refused);
        return more > 0 ? Stats.counter("mooncake_num_refused_writes", more) : Stats.EMPTY;
    }

    @Override
    public void close() {
        engine.close();
    }
}
