// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import io.kvferry.backend.mooncake.te.Ranges;

/// A part of a transfer that one connection carries: the bytes `[from, to)` of all its ranges laid
/// end to end.
///
/// @param firstRange the range that holds byte `from`
/// @param firstOffset where in that range the part begins
public record Slice(Ranges ranges, int firstRange, long firstOffset, long bytes) {
    /// A slice border inside a range falls on a multiple of this.
    private static final long GRAIN = 4096;

    private static final Slice NONE = new Slice(new Ranges(1), 0, 0, 0);

    /// Cuts a transfer into `parts` slices of about equal size.
    public static Slice[] cut(Ranges ranges, int parts) {
        var slices = new Slice[parts];
        long total = ranges.totalBytes();
        int range = 0;
        long before = 0;
        long from = 0;
        for (int i = 0; i < parts; i++) {
            long to = i == parts - 1 ? total : Math.max(from, (total / parts * (i + 1)) & -GRAIN);
            while (range < ranges.size() && before + ranges.bytes(range) <= from) {
                before += ranges.bytes(range);
                range++;
            }
            slices[i] = new Slice(ranges, range, from - before, to - from);
            from = to;
        }
        return slices;
    }

    /// Walks over the non-empty pieces of a slice; made once, used for one slice after the other.
    public static final class Cursor {
        private Slice slice = NONE;
        private int nextRange;
        private long nextOffset;
        private long left;
        private int range;
        private long offset;
        private long bytes;

        /// Goes to the start of a slice.
        public Cursor start(Slice of) {
            slice = of;
            nextRange = of.firstRange;
            nextOffset = of.firstOffset;
            left = of.bytes;
            return this;
        }

        public boolean next() {
            while (left > 0) {
                range = nextRange;
                offset = nextOffset;
                bytes = Math.min(left, slice.ranges.bytes(range) - offset);
                nextRange++;
                nextOffset = 0;
                left -= bytes;
                if (bytes > 0) {
                    return true;
                }
            }
            return false;
        }

        public boolean hasNext() {
            return left > 0;
        }

        public void moveTo(Cursor other) {
            slice = other.slice;
            nextRange = other.nextRange;
            nextOffset = other.nextOffset;
            left = other.left;
        }

        public int range() {
            return range;
        }

        public long bytes() {
            return bytes;
        }

        public long localAddress() {
            return slice.ranges.localAddress(range) + offset;
        }

        public long remoteAddress() {
            return slice.ranges.remoteAddress(range) + offset;
        }
    }
}
