// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import io.kvferry.toolkit.disk.NativeCrc;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/// What stands behind each value in a cluster, little-endian: 4 bytes of magic, the CRC32C of key
/// and value, and the length of the value in 8 bytes. Mooncake's API has no checksum, and its batch
/// reads can bring bytes whose lease has ended meanwhile.
final class ValueTrailer {
    static final long BYTES = 16;

    private static final long PIECE = 16L << 20;

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

    /// Whether something of the kind stands there.
    static boolean isOne(MemorySegment memory, long length) {
        return memory.get(INT, length) == MAGIC && memory.get(LONG, length + 8) == length;
    }

    /// CRC32C of key and value: the whole value of another object is wrong, too.
    static int checksum(NativeCrc crc, MemorySegment key, MemorySegment value, long length) {
        crc.reset();
        crc.update(key.address(), key.byteSize());
        for (long at = 0; at < length; at += PIECE) {
            crc.update(value.address() + at, Math.min(PIECE, length - at));
        }
        return crc.value();
    }

    /// As [#checksum(NativeCrc, MemorySegment, MemorySegment, long)], for one value now and then.
    static int checksum(String key, MemorySegment value, long length) {
        try (var arena = Arena.ofConfined()) {
            byte[] utf8 = key.getBytes(StandardCharsets.UTF_8);
            MemorySegment copy = arena.allocate(utf8.length);
            copy.copyFrom(MemorySegment.ofArray(utf8));
            return checksum(new NativeCrc(), copy, value, length);
        }
    }

    static boolean matches(MemorySegment memory, long length, int checksum) {
        return memory.get(INT, length) == MAGIC
                && memory.get(INT, length + 4) == checksum
                && memory.get(LONG, length + 8) == length;
    }
}
