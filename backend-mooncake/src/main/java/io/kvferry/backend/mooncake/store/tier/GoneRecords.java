// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/// The file of a bucket that says which of its objects were removed: per object a record with its
/// index, and the same inverted.
final class GoneRecords {
    /// Of one record.
    static final int BYTES = 2 * Integer.BYTES;

    private GoneRecords() {}

    static MemorySegment encode(Arena arena, int[] indexes) {
        MemorySegment records = arena.allocate((long) BYTES * indexes.length);
        for (int i = 0; i < indexes.length; i++) {
            int index = indexes[i];
            records.setAtIndex(ValueLayout.JAVA_INT_UNALIGNED, 2L * i, index);
            records.setAtIndex(ValueLayout.JAVA_INT_UNALIGNED, 2L * i + 1, ~index);
        }
        return records;
    }

    /// Takes the objects of a file out of their bucket. A torn record is none: who removed the
    /// object was never answered. The next one is written over it.
    static void drop(byte[] file, Bucket bucket) {
        MemorySegment records = MemorySegment.ofArray(file);
        int count = file.length / BYTES;
        for (int i = 0; i < count; i++) {
            long at = (long) i * BYTES;
            int index = records.get(ValueLayout.JAVA_INT_UNALIGNED, at);
            int check = records.get(ValueLayout.JAVA_INT_UNALIGNED, at + Integer.BYTES);
            if (check == ~index && index >= 0 && index < bucket.size()) {
                bucket.drop(index);
            }
        }
        bucket.addRecords(count);
    }
}
