// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.spi.KvFerryException;

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

    /// Whether peers on the same host can map this memory. Other memory they may still copy without
    /// a socket, where the kernel lets them.
    boolean shared();

    /// Unregisters; memory that the engine allocated is freed as well. Every caller awaits the same
    /// end; after a failure a further call tries again.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when a process of this host was stopped in the
    ///   middle of a copy and may still touch the memory, which must not be reused then
    @Override
    void close();
}
