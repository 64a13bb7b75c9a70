// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import io.kvferry.backend.mooncake.te.Access;

import java.lang.foreign.MemorySegment;

/// A registered region. Code that moves bytes in or out of it holds its gate meanwhile.
public final class Region {
    /// Slot of a region that is not in shared memory.
    public static final int NOT_SHARED = -1;

    public final MemorySegment memory;
    public final long address;
    public final long bytes;

    /// Slot in the engine's shared control page, or [#NOT_SHARED].
    public final int sharedSlot;

    public final Access access;

    public final UseGate gate = new UseGate();

    public Region(MemorySegment memory, int sharedSlot, Access access) {
        this.access = access;
        this.memory = memory;
        this.address = memory.address();
        this.bytes = memory.byteSize();
        this.sharedSlot = sharedSlot;
    }

    /// Whether peers that name the memory key may read and write it.
    public boolean isKeyed() {
        return access == Access.KEYED;
    }

    /// Whether `[from, from + length)` lies inside; unsigned, and safe against wrap-around.
    boolean contains(long from, long length) {
        long offset = from - address;
        return Long.compareUnsigned(from, address) >= 0
                && Long.compareUnsigned(offset, bytes) < 0
                && Long.compareUnsigned(length, bytes - offset) <= 0;
    }
}
