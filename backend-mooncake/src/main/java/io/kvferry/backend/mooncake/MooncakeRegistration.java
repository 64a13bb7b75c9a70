// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import io.kvferry.backend.mooncake.te.RegisteredMemory;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.Registration;

import java.util.function.Consumer;

/// Host memory known to the engine.
final class MooncakeRegistration implements Registration {
    private final MemoryRange.Host memory;
    private final RegisteredMemory registered;
    private final Consumer<MooncakeRegistration> forget;

    MooncakeRegistration(
            MemoryRange.Host memory,
            RegisteredMemory registered,
            Consumer<MooncakeRegistration> forget) {
        this.memory = memory;
        this.registered = registered;
        this.forget = forget;
    }

    boolean covers(long at, long length) {
        long offset = at - registered.address();
        return Long.compareUnsigned(offset, registered.bytes()) < 0
                && Long.compareUnsigned(length, registered.bytes() - offset) <= 0;
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
        return registered.address();
    }

    @Override
    public void close() {
        forget.accept(this);
        registered.close();
    }
}
