// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.lang.foreign.MemorySegment;

/// A registered region. Whoever moves bytes in or out of it holds its gate meanwhile.
final class Region {
    /// Slot of a region that is not in shared memory.
    static final int NOT_SHARED = -1;

    final MemorySegment memory;
    final long address;
    final long bytes;

    /// Slot in the engine's shared control page, or [#NOT_SHARED].
    final int sharedSlot;

    final Access access;

    final UseGate gate = new UseGate();

    Region(MemorySegment memory, int sharedSlot, Access access) {
        this.access = access;
        this.memory = memory;
        this.address = memory.address();
        this.bytes = memory.byteSize();
        this.sharedSlot = sharedSlot;
    }

    /// Whether `[from, from + length)` lies inside; unsigned, and safe against wrap-around.
    boolean contains(long from, long length) {
        long offset = from - address;
        return Long.compareUnsigned(from, address) >= 0
                && Long.compareUnsigned(offset, bytes) < 0
                && Long.compareUnsigned(length, bytes - offset) <= 0;
    }
}
