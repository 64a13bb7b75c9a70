// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.crossmemory;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/// The argument of one copying call: pairs of local and remote pieces, each with the range it
/// belongs to. Made once, used for one call after the other.
///
/// Threading: one thread at a time.
public final class IoVectors {
    private static final long LENGTH_AT = 8;

    private final MemorySegment local;
    private final MemorySegment remote;
    private final int[] ranges = new int[ProcessVm.MOST_VECTORS];
    private int first;
    private int count;
    private long bytes;

    public IoVectors(Arena arena) {
        long size = ProcessVm.MOST_VECTORS * ProcessVm.VECTOR_BYTES;
        this.local = arena.allocate(size, Long.BYTES);
        this.remote = arena.allocate(size, Long.BYTES);
    }

    public void clear() {
        first = 0;
        count = 0;
        bytes = 0;
    }

    public boolean isFull() {
        return count == ProcessVm.MOST_VECTORS;
    }

    public void add(int range, long localAddress, long remoteAddress, long length) {
        long at = count * ProcessVm.VECTOR_BYTES;
        local.set(JAVA_LONG, at, localAddress);
        local.set(JAVA_LONG, at + LENGTH_AT, length);
        remote.set(JAVA_LONG, at, remoteAddress);
        remote.set(JAVA_LONG, at + LENGTH_AT, length);
        ranges[count] = range;
        count++;
        bytes += length;
    }

    /// Drops the first bytes, which have been copied.
    void advance(long copied) {
        bytes -= copied;
        long left = copied;
        while (left > 0) {
            long at = first * ProcessVm.VECTOR_BYTES;
            long length = local.get(JAVA_LONG, at + LENGTH_AT);
            long part = Math.min(left, length);
            local.set(JAVA_LONG, at, local.get(JAVA_LONG, at) + part);
            remote.set(JAVA_LONG, at, remote.get(JAVA_LONG, at) + part);
            local.set(JAVA_LONG, at + LENGTH_AT, length - part);
            remote.set(JAVA_LONG, at + LENGTH_AT, length - part);
            left -= part;
            if (part == length) {
                first++;
            }
        }
    }

    /// Bytes not yet copied.
    public long bytes() {
        return bytes;
    }

    int count() {
        return count - first;
    }

    /// The local pieces not yet copied, as the kernel wants them.
    MemorySegment local() {
        return first == 0 ? local : local.asSlice(first * ProcessVm.VECTOR_BYTES);
    }

    MemorySegment remote() {
        return first == 0 ? remote : remote.asSlice(first * ProcessVm.VECTOR_BYTES);
    }

    /// The range of the first piece not yet copied.
    public int range() {
        return ranges[first];
    }

    public long remoteAddress() {
        return remote.get(JAVA_LONG, first * ProcessVm.VECTOR_BYTES);
    }
}
