// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/// Ranges of native memory for [FileCalls#gather] and [FileCalls#scatterCached], filled and used up
/// again and again.
///
/// Threading: confined to one I/O thread.
public final class RangeList {
    private static final long RANGE_BYTES = 2L * Long.BYTES;

    private final MemorySegment ranges;
    private final int limit;
    private int first;
    private int end;
    private long lastEnd;
    private long bytes;

    /// @param limit ranges of one call, at least 3
    public RangeList(Arena arena, int limit) {
        this.limit = limit;
        this.ranges = arena.allocate(RANGE_BYTES * limit, Long.BYTES);
    }

    public void clear() {
        first = 0;
        end = 0;
        bytes = 0;
    }

    public int count() {
        return end;
    }

    public int limit() {
        return limit;
    }

    /// Bytes of the ranges; of those that were not written yet while they are being written.
    public long bytes() {
        return bytes;
    }

    /// One that begins where the last one ends makes it longer: the system copies few long ranges
    /// faster than many short ones.
    public void add(long address, long length) {
        bytes += length;
        if (end > first && address == lastEnd) {
            long lengthAt = RANGE_BYTES * (end - 1) + Long.BYTES;
            ranges.set(
                    ValueLayout.JAVA_LONG,
                    lengthAt,
                    ranges.get(ValueLayout.JAVA_LONG, lengthAt) + length);
            lastEnd += length;
            return;
        }
        ranges.set(ValueLayout.JAVA_LONG, RANGE_BYTES * end, address);
        ranges.set(ValueLayout.JAVA_LONG, RANGE_BYTES * end + Long.BYTES, length);
        end++;
        lastEnd = address + length;
    }

    /// Writes what is left with one call; answers as [FileCalls#gather].
    public long write(FileCalls calls, int handle, long offset) {
        // Only a short write goes on inside the list, so only that pays for a slice.
        MemorySegment left = first == 0 ? ranges : ranges.asSlice(RANGE_BYTES * first);
        long written = calls.gather(handle, left, end - first, offset);
        if (written > 0) {
            drop(written);
        }
        return written;
    }

    /// Reads into all of them with one call; answers as [FileCalls#scatterCached].
    public long readCached(FileCalls calls, int handle, long offset) {
        return calls.scatterCached(handle, ranges, end, offset);
    }

    private void drop(long written) {
        bytes -= written;
        for (long left = written; left > 0; ) {
            long at = RANGE_BYTES * first;
            long length = ranges.get(ValueLayout.JAVA_LONG, at + Long.BYTES);
            if (left < length) {
                long address = ranges.get(ValueLayout.JAVA_LONG, at);
                ranges.set(ValueLayout.JAVA_LONG, at, address + left);
                ranges.set(ValueLayout.JAVA_LONG, at + Long.BYTES, length - left);
                return;
            }
            left -= length;
            first++;
        }
    }
}
