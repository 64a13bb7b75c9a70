// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/// Page-aligned memory of this process alone.
public final class PrivatePages {
    private static final long PAGE = 4096;

    private PrivatePages() {}

    public static MemorySegment allocate(long bytes, Arena arena) {
        if (bytes <= 0) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST, "cannot allocate " + bytes + " bytes");
        }
        try {
            return arena.allocate(bytes, PAGE);
        } catch (OutOfMemoryError e) {
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY,
                    "cannot allocate "
                            + bytes
                            + " bytes outside the heap; see -XX:MaxDirectMemorySize",
                    e);
        }
    }
}
