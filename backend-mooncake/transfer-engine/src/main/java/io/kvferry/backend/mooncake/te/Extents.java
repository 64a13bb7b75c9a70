// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.util.Arrays;

/// A set of addresses as disjoint ranges in address order, merged where they touch: what a
/// [WriteGrant] covers.
///
/// Immutable.
public final class Extents {
    private final long[] starts;
    private final long[] ends;

    private Extents(long[] starts, long[] ends) {
        this.starts = starts;
        this.ends = ends;
    }

    /// One range of at least one byte.
    public static Extents of(long address, long bytes) {
        return new Builder().add(address, bytes).build();
    }

    /// Collects ranges, in any order and overlapping as they like.
    public static final class Builder {
        private long[] starts = new long[16];
        private long[] ends = new long[16];
        private int count;

        public Builder add(long address, long bytes) {
            if (bytes < 1 || address < 0 || address + bytes < 0) {
                throw new IllegalArgumentException(
                        "no range of memory: 0x%x+%d".formatted(address, bytes));
            }
            if (count == starts.length) {
                starts = Arrays.copyOf(starts, count * 2);
                ends = Arrays.copyOf(ends, count * 2);
            }
            starts[count] = address;
            ends[count++] = address + bytes;
            return this;
        }

        /// Starts and ends may be sorted apart: where the i-th start lies behind the end before it
        /// in this order, as many ranges have ended as have begun.
        public Extents build() {
            Arrays.sort(starts, 0, count);
            Arrays.sort(ends, 0, count);
            int merged = 0;
            for (int i = 0; i < count; i++) {
                if (i > 0 && starts[i] <= ends[i - 1]) {
                    ends[merged - 1] = ends[i];
                } else {
                    starts[merged] = starts[i];
                    ends[merged++] = ends[i];
                }
            }
            return new Extents(Arrays.copyOf(starts, merged), Arrays.copyOf(ends, merged));
        }
    }

    /// Disjoint ranges.
    public int size() {
        return starts.length;
    }

    public boolean isEmpty() {
        return starts.length == 0;
    }

    public long address(int index) {
        return starts[index];
    }

    public long bytes(int index) {
        return ends[index] - starts[index];
    }

    /// Lowest address; of a set that is not empty.
    public long start() {
        return starts[0];
    }

    /// First address behind the highest range.
    public long end() {
        return ends[ends.length - 1];
    }

    /// Whether one range holds all of `[from, from + length)`; safe against wrap-around.
    public boolean covers(long from, long length) {
        int at = Arrays.binarySearch(starts, from);
        int range = at >= 0 ? at : -at - 2;
        if (range < 0) {
            return false;
        }
        long offset = from - starts[range];
        long size = ends[range] - starts[range];
        return Long.compareUnsigned(offset, size) < 0
                && Long.compareUnsigned(length, size - offset) <= 0;
    }

    /// Whether a range has a byte of `[from, from + length)`; safe against wrap-around.
    public boolean overlaps(long from, long length) {
        if (length == 0 || from < 0) { // no range lies up there
            return false;
        }
        long last = from + length - 1;
        if (last < from) {
            last = Long.MAX_VALUE;
        }
        int at = Arrays.binarySearch(starts, last);
        int range = at >= 0 ? at : -at - 2;
        return range >= 0 && ends[range] > from;
    }

    @Override
    public String toString() {
        return isEmpty() ? "nothing" : "%d ranges in 0x%x..0x%x".formatted(size(), start(), end());
    }
}
