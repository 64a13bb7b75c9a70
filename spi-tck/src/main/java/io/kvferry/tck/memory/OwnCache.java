// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;

import java.lang.foreign.Arena;

/// Memory that a connector allocated for the engine's cache.
record OwnCache(MemoryRange.Host range, Arena arena) implements ProvidedMemory {
    static OwnCache of(long bytes) {
        var arena = Arena.ofShared();
        return new OwnCache(new MemoryRange.Host(arena.allocate(bytes, 4096)), arena);
    }

    @Override
    public void close() {
        arena.close();
    }
}
