// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/// Page-aligned memory of this process alone.
record PrivatePages(Arena arena, MemorySegment memory) {
    private static final long PAGE = 4096;

    static PrivatePages allocate(long bytes) {
        if (bytes <= 0) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST, "cannot allocate " + bytes + " bytes");
        }
        Arena arena = Arena.ofShared();
        try {
            return new PrivatePages(arena, arena.allocate(bytes, PAGE));
        } catch (OutOfMemoryError e) {
            arena.close();
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY,
                    "cannot allocate "
                            + bytes
                            + " bytes outside the heap; see -XX:MaxDirectMemorySize",
                    e);
        }
    }

    void close() {
        arena.close();
    }
}
