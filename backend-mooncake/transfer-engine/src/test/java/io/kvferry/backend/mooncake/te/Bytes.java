// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/// Test data: every byte tells its offset and a seed.
public final class Bytes {
    private Bytes() {}

    static byte at(long offset, int seed) {
        long mixed = (offset + seed * 0x9E37_79B9L) * 0xD6E8_FEB8_6659_FD93L;
        return (byte) (mixed >>> 56);
    }

    public static void fill(MemorySegment memory, int seed) {
        for (long i = 0; i < memory.byteSize(); i++) {
            memory.set(ValueLayout.JAVA_BYTE, i, at(i, seed));
        }
    }

    /// Offset of the first byte that is not as [#fill] wrote it, -1 when all are.
    public static long mismatch(MemorySegment memory, long from, long to, int seed) {
        for (long i = from; i < to; i++) {
            if (memory.get(ValueLayout.JAVA_BYTE, i) != at(i, seed)) {
                return i;
            }
        }
        return -1;
    }
}
