// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import io.kvferry.spi.memory.MemoryKind;

import java.util.Arrays;

/// Many ranges of one kind of memory, in columns, adjacent ranges of equal stride compressed into
/// runs: 100,000 equal blocks cost a few longs. An address is what [Registration#address] counts
/// from: a native address for host and device memory, a byte offset for files, objects and volumes.
///
/// Threading: immutable once built.
public final class DescriptorList {
    private final MemoryKind kind;
    private final int count;
    private final long bytes;
    // One run per entry: `repeat` ranges of `length` bytes, the first at `address`, each `stride`
    // further on.
    private final long[] device;
    private final long[] address;
    private final long[] length;
    private final long[] stride;
    private final int[] firstIndex;

    private DescriptorList(Builder b) {
        kind = b.kind;
        count = b.count;
        bytes = b.bytes;
        device = Arrays.copyOf(b.device, b.runs);
        address = Arrays.copyOf(b.address, b.runs);
        length = Arrays.copyOf(b.length, b.runs);
        stride = Arrays.copyOf(b.stride, b.runs);
        firstIndex = Arrays.copyOf(b.firstIndex, b.runs);
    }

    /// A list with a single range.
    public static DescriptorList of(MemoryKind kind, long device, long address, long length) {
        return builder(kind).add(device, address, length).build();
    }

    /// The whole of one registration.
    public static DescriptorList of(Registration registration) {
        return of(
                registration.memory().kind(),
                registration.device(),
                registration.address(),
                registration.memory().length());
    }

    public static Builder builder(MemoryKind kind) {
        return new Builder(kind);
    }

    public MemoryKind kind() {
        return kind;
    }

    /// Number of ranges.
    public int count() {
        return count;
    }

    /// Sum of all lengths.
    public long bytes() {
        return bytes;
    }

    /// Number of runs that the ranges were compressed into.
    int runs() {
        return address.length;
    }

    /// Device (region id) of range `index`.
    public long device(int index) {
        return device[runOf(index)];
    }

    public long address(int index) {
        int run = runOf(index);
        return address[run] + (index - firstIndex[run]) * stride[run];
    }

    public long length(int index) {
        return length[runOf(index)];
    }

    /// Whether range `i` is as long as range `i` of the other list, for all of them: what the two
    /// sides of a transfer must be. Takes time by runs, not by ranges.
    public boolean pairsWith(DescriptorList other) {
        if (count != other.count || bytes != other.bytes) {
            return false;
        }
        int mine = 0;
        int its = 0;
        while (mine < runs()) {
            if (length[mine] != other.length[its]) {
                return false;
            }
            int end = Integer.compare(end(mine), other.end(its));
            mine += end <= 0 ? 1 : 0;
            its += end >= 0 ? 1 : 0;
        }
        return true;
    }

    /// The index after the last range of a run.
    private int end(int run) {
        return run + 1 == runs() ? count : firstIndex[run + 1];
    }

    private int runOf(int index) {
        if (index < 0 || index >= count) {
            throw new IndexOutOfBoundsException("descriptor " + index + " of " + count);
        }
        int found = Arrays.binarySearch(firstIndex, index);
        return found >= 0 ? found : -found - 2;
    }

    @Override
    public String toString() {
        return "DescriptorList["
                + kind
                + ", "
                + count
                + " ranges, "
                + bytes
                + " bytes, "
                + runs()
                + " runs]";
    }

    /// Collects ranges in transfer order.
    public static final class Builder {
        private final MemoryKind kind;
        private long[] device = new long[8];
        private long[] address = new long[8];
        private long[] length = new long[8];
        private long[] stride = new long[8];
        private int[] firstIndex = new int[8];
        private int runs;
        private int count;
        private long bytes;

        private Builder(MemoryKind kind) {
            this.kind = kind;
        }

        /// Appends one range.
        ///
        /// @throws IllegalArgumentException on a negative or zero length
        public Builder add(long onDevice, long at, long size) {
            if (size <= 0) {
                throw new IllegalArgumentException("descriptor " + count + " has length " + size);
            }
            if (!extendsLastRun(onDevice, at, size)) {
                startRun(onDevice, at, size);
            }
            count = Math.addExact(count, 1);
            bytes = Math.addExact(bytes, size);
            return this;
        }

        /// Appends `repeat` ranges of `size` bytes, `step` apart.
        public Builder addStrided(long onDevice, long at, long size, long step, int repeat) {
            for (int i = 0; i < repeat; i++) {
                add(onDevice, at + i * step, size);
            }
            return this;
        }

        public DescriptorList build() {
            if (count == 0) {
                throw new IllegalArgumentException("a descriptor list needs at least one range");
            }
            return new DescriptorList(this);
        }

        private boolean extendsLastRun(long onDevice, long at, long size) {
            if (runs == 0 || device[runs - 1] != onDevice || length[runs - 1] != size) {
                return false;
            }
            int inRun = count - firstIndex[runs - 1];
            if (inRun == 1) {
                stride[runs - 1] = at - address[runs - 1];
                return true;
            }
            return at == address[runs - 1] + inRun * stride[runs - 1];
        }

        private void startRun(long onDevice, long at, long size) {
            if (runs == address.length) {
                int room = runs * 2;
                device = Arrays.copyOf(device, room);
                address = Arrays.copyOf(address, room);
                length = Arrays.copyOf(length, room);
                stride = Arrays.copyOf(stride, room);
                firstIndex = Arrays.copyOf(firstIndex, room);
            }
            device[runs] = onDevice;
            address[runs] = at;
            length[runs] = size;
            stride[runs] = 0;
            firstIndex[runs] = count;
            runs++;
        }
    }
}
