// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.Registration;

import org.jspecify.annotations.Nullable;

import java.util.function.Consumer;

/// Host memory known to the engine.
final class MooncakeRegistration implements Registration {
    private final MemoryRange.Host memory;
    private final Consumer<MooncakeRegistration> forget;
    private volatile @Nullable RegisteredMemory registered;

    /// @param forget called when it ends, before the engine forgets the memory
    MooncakeRegistration(MemoryRange.Host memory, Consumer<MooncakeRegistration> forget) {
        this.memory = memory;
        this.forget = forget;
    }

    /// The engine knows the memory from now on.
    void begin(RegisteredMemory byEngine) {
        registered = byEngine;
    }

    boolean covers(long at, long length) {
        long offset = at - address();
        return registered != null
                && Long.compareUnsigned(offset, memory.length()) < 0
                && Long.compareUnsigned(length, memory.length() - offset) <= 0;
    }

    @Override
    public MemoryRange memory() {
        return memory;
    }

    @Override
    public long device() {
        return 0;
    }

    @Override
    public long address() {
        return memory.segment().address();
    }

    @Override
    public void close() {
        forget.accept(this);
        RegisteredMemory known = registered;
        if (known != null) {
            known.close();
        }
    }
}
