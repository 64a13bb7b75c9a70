// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/// Test data: every byte tells its offset and a seed.
public final class Bytes {
    /// Tests run without the optimizing compiler, where access to a segment costs the most.
    private static final int PART = 64 << 10;

    private Bytes() {}

    static byte at(long offset, int seed) {
        long mixed = (offset + seed * 0x9E37_79B9L) * 0xD6E8_FEB8_6659_FD93L;
        return (byte) (mixed >>> 56);
    }

    public static void fill(MemorySegment memory, int seed) {
        for (long at = 0; at < memory.byteSize(); at += PART) {
            var part = part(at, memory.byteSize(), seed);
            MemorySegment.copy(part, 0, memory, ValueLayout.JAVA_BYTE, at, part.length);
        }
    }

    /// Offset of the first byte that is not as [#fill] wrote it, -1 when all are.
    public static long mismatch(MemorySegment memory, long from, long to, int seed) {
        for (long at = from; at < to; at += PART) {
            var part = part(at, to, seed);
            long different =
                    MemorySegment.mismatch(
                            memory,
                            at,
                            at + part.length,
                            MemorySegment.ofArray(part),
                            0,
                            part.length);
            if (different >= 0) {
                return at + different;
            }
        }
        return -1;
    }

    private static byte[] part(long from, long to, int seed) {
        var part = new byte[(int) Math.min(PART, to - from)];
        for (int i = 0; i < part.length; i++) {
            part[i] = at(from + i, seed);
        }
        return part;
    }
}
