// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.lang.foreign.MemorySegment;

/// Memory that peers can reach until it is closed.
///
/// Threading: any thread; [#close] waits until no transfer touches the memory, and aborts those
/// that take too long.
public interface RegisteredMemory extends AutoCloseable {
    MemorySegment memory();

    /// Absolute address of the first byte; what peers name.
    default long address() {
        return memory().address();
    }

    default long bytes() {
        return memory().byteSize();
    }

    /// Whether peers on the same host can map this memory.
    boolean shared();

    /// Unregisters; memory that the engine allocated is freed as well. Idempotent.
    @Override
    void close();
}
