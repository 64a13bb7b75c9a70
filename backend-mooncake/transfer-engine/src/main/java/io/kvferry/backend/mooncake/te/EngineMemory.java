// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;

import java.lang.foreign.Arena;
import java.util.Optional;

/// Memory for a host's cache that peers on this machine can map once it is registered. It stays for
/// the host until that frees it, also when the engine was closed before.
public record EngineMemory(MemoryRange.Host range, Arena arena) implements ProvidedMemory {
    /// Empty if the engine offers no special memory, or has no room.
    public static Optional<ProvidedMemory> of(TransferEngine engine, long bytes) {
        var arena = Arena.ofShared();
        Optional<ProvidedMemory> made = Optional.empty();
        try {
            made =
                    engine.offer(bytes, arena)
                            .map(memory -> new EngineMemory(new MemoryRange.Host(memory), arena));
            return made;
        } finally {
            if (made.isEmpty()) {
                arena.close();
            }
        }
    }

    @Override
    public void close() {
        arena.close();
    }
}
