// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.memory;

import java.util.Arrays;

/// Hands out ranges of a segment: a two-level bitmap over size classes with a 3-bit mantissa, free
/// neighbours merge. A range is as long as asked for, rounded up to [#ALIGNMENT]; the classes only
/// guide the search. Constant time, no objects once its tables have grown.
///
/// Threading: none; the segment locks.
public final class OffsetAllocator {
    public static final int ALIGNMENT = 64;

    /// No room.
    public static final int NONE = -1;

    private static final int MANTISSA_BITS = 3;
    private static final int MANTISSAS = 1 << MANTISSA_BITS;
    private static final int TOPS = 64;

    /// Ranges that are looked at in the class of the size itself, some of which are too short.
    private static final int TRIES_IN_CLASS = 8;

    /// The same, before an allocation is given up: memory that is as fragmented as that is full.
    private static final int LAST_TRIES = 64;

    private final long capacity;
    private final int[] heads = new int[TOPS * MANTISSAS];
    private final byte[] leaves = new byte[TOPS];
    private long tops;

    // One range per index: its place, its neighbours in memory, its neighbours in its class.
    private long[] offset;
    private long[] length;
    private int[] before;
    private int[] after;
    private int[] previous;
    private int[] next;
    private boolean[] used;
    private int nodes;
    private int spare = NONE;

    private long usedBytes;
    private int ranges;

    public OffsetAllocator(long capacity) {
        this(capacity, 256);
    }

    public OffsetAllocator(long capacity, int rangesExpected) {
        this.capacity = capacity & -ALIGNMENT;
        int room = Math.max(4, rangesExpected);
        offset = new long[room];
        length = new long[room];
        before = new int[room];
        after = new int[room];
        previous = new int[room];
        next = new int[room];
        used = new boolean[room];
        Arrays.fill(heads, NONE);
        if (this.capacity > 0) {
            free(node(0, this.capacity, NONE, NONE));
        }
    }

    /// Takes a range.
    ///
    /// @return its handle, or [#NONE]
    public int allocate(long bytes) {
        if (bytes <= 0 || bytes > capacity) {
            return NONE;
        }
        long wanted = (bytes + ALIGNMENT - 1) & -ALIGNMENT;
        int node = find(wanted);
        if (node == NONE) {
            return NONE;
        }
        long rest = length[node] - wanted;
        if (rest > 0 && spare == NONE && nodes == offset.length) {
            grow(); // before anything changes
        }
        unlink(node);
        if (rest > 0) {
            int tail = node(offset[node] + wanted, rest, node, after[node]);
            if (after[tail] != NONE) {
                before[after[tail]] = tail;
            }
            after[node] = tail;
            length[node] = wanted;
            free(tail);
        }
        used[node] = true;
        usedBytes += wanted;
        ranges++;
        return node;
    }

    /// Gives a range back.
    public void release(int handle) {
        if (!used[handle]) {
            throw new IllegalStateException("range " + handle + " is not in use");
        }
        used[handle] = false;
        usedBytes -= length[handle];
        ranges--;
        int node = handle;
        int left = before[node];
        if (left != NONE && !used[left]) {
            unlink(left);
            node = join(left, node);
        }
        int right = after[node];
        if (right != NONE && !used[right]) {
            unlink(right);
            node = join(node, right);
        }
        free(node);
    }

    public long offset(int handle) {
        return offset[handle];
    }

    /// Bytes that a range takes up.
    public long length(int handle) {
        return length[handle];
    }

    public long capacity() {
        return capacity;
    }

    public long usedBytes() {
        return usedBytes;
    }

    /// Ranges in use.
    public int ranges() {
        return ranges;
    }

    /// Bytes of the longest free range.
    public long largestFree() {
        if (tops == 0) {
            return 0;
        }
        int top = 63 - Long.numberOfLeadingZeros(tops);
        int leaf = 31 - Integer.numberOfLeadingZeros(leaves[top] & 0xff);
        long largest = 0;
        for (int node = heads[top * MANTISSAS + leaf]; node != NONE; node = next[node]) {
            largest = Math.max(largest, length[node]);
        }
        return largest;
    }

    /// A free range of at least so many bytes: one of the next class up, all of which are long
    /// enough, or one of the first few of the class of the size itself.
    private int find(long wanted) {
        int own = classOf(wanted);
        int node = heads[own];
        for (int tries = 0; node != NONE && tries < TRIES_IN_CLASS; tries++) {
            if (length[node] >= wanted) {
                return node;
            }
            node = next[node];
        }
        int from = own + 1;
        int top = from / MANTISSAS;
        if (top < TOPS) {
            int rest = (leaves[top] & 0xff) >>> (from % MANTISSAS);
            if (rest != 0) {
                return heads[from + Integer.numberOfTrailingZeros(rest)];
            }
            long higher = top == TOPS - 1 ? 0 : tops & (-1L << (top + 1));
            if (higher != 0) {
                int at = Long.numberOfTrailingZeros(higher);
                return heads[at * MANTISSAS + Integer.numberOfTrailingZeros(leaves[at] & 0xff)];
            }
        }
        for (int tries = 0; node != NONE && tries < LAST_TRIES; tries++, node = next[node]) {
            if (length[node] >= wanted) {
                return node;
            }
        }
        return NONE;
    }

    /// The class whose ranges are at least as long as its bound, rounded down.
    private static int classOf(long bytes) {
        int high = 63 - Long.numberOfLeadingZeros(bytes);
        if (high < MANTISSA_BITS) {
            return (int) bytes;
        }
        int mantissa = (int) (bytes >>> (high - MANTISSA_BITS)) & (MANTISSAS - 1);
        return (high - MANTISSA_BITS + 1) * MANTISSAS + mantissa;
    }

    private int node(long at, long bytes, int left, int right) {
        int node = spare;
        if (node != NONE) {
            spare = next[node];
        } else {
            node = nodes++;
        }
        offset[node] = at;
        length[node] = bytes;
        before[node] = left;
        after[node] = right;
        used[node] = false;
        return node;
    }

    /// All tables or none: there may be no memory on the heap for one of them.
    private void grow() {
        int room = nodes * 2;
        long[] wideOffset = Arrays.copyOf(offset, room);
        long[] wideLength = Arrays.copyOf(length, room);
        int[] wideBefore = Arrays.copyOf(before, room);
        int[] wideAfter = Arrays.copyOf(after, room);
        int[] widePrevious = Arrays.copyOf(previous, room);
        int[] wideNext = Arrays.copyOf(next, room);
        boolean[] wideUsed = Arrays.copyOf(used, room);
        offset = wideOffset;
        length = wideLength;
        before = wideBefore;
        after = wideAfter;
        previous = widePrevious;
        next = wideNext;
        used = wideUsed;
    }

    /// The left one of two adjacent ranges takes over the right one.
    private int join(int left, int right) {
        length[left] += length[right];
        after[left] = after[right];
        if (after[left] != NONE) {
            before[after[left]] = left;
        }
        next[right] = spare;
        spare = right;
        return left;
    }

    private void free(int node) {
        int own = classOf(length[node]);
        int head = heads[own];
        previous[node] = NONE;
        next[node] = head;
        if (head != NONE) {
            previous[head] = node;
        }
        heads[own] = node;
        leaves[own / MANTISSAS] |= (byte) (1 << (own % MANTISSAS));
        tops |= 1L << (own / MANTISSAS);
    }

    private void unlink(int node) {
        if (previous[node] != NONE) {
            next[previous[node]] = next[node];
        }
        if (next[node] != NONE) {
            previous[next[node]] = previous[node];
        }
        int own = classOf(length[node]);
        if (heads[own] == node) {
            heads[own] = next[node];
            if (next[node] == NONE) {
                int top = own / MANTISSAS;
                leaves[top] &= (byte) ~(1 << (own % MANTISSAS));
                if (leaves[top] == 0) {
                    tops &= ~(1L << top);
                }
            }
        }
    }
}
