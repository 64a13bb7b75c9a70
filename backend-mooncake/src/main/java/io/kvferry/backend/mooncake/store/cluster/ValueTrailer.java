// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;

/// What stands behind each value in a cluster, little-endian: 4 bytes of magic, the CRC32C of key
/// and value, and the length of the value in 8 bytes. Mooncake's API has no checksum, and its batch
/// reads can bring bytes whose lease has ended meanwhile.
final class ValueTrailer {
    static final long BYTES = 16;

    private static final int MAGIC = 0x3156464b; // "KFV1"
    private static final ValueLayout.OfInt INT =
            ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
    private static final ValueLayout.OfLong LONG =
            ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

    private ValueTrailer() {}

    /// @param length of the value, behind which it is written
    static void write(MemorySegment memory, long length, int checksum) {
        memory.set(INT, length, MAGIC);
        memory.set(INT, length + 4, checksum);
        memory.set(LONG, length + 8, length);
    }

    static boolean matches(MemorySegment memory, long length, int checksum) {
        return memory.get(INT, length) == MAGIC
                && memory.get(INT, length + 4) == checksum
                && memory.get(LONG, length + 8) == length;
    }
}
