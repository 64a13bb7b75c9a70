// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.memory.HostPages;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/// Page-aligned memory of this process alone.
public final class PrivatePages {
    private PrivatePages() {}

    public static MemorySegment allocate(long bytes, Arena arena) {
        if (bytes <= 0) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST, "cannot allocate " + bytes + " bytes");
        }
        try {
            return HostPages.allocate(bytes, arena);
        } catch (OutOfMemoryError e) {
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY,
                    "cannot allocate " + bytes + " bytes outside the heap: " + e.getMessage(),
                    e);
        }
    }
}
