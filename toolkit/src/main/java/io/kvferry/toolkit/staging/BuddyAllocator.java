// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.staging;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/// Hands out offsets of a range whose size is a power of two, in blocks whose sizes are powers of
/// two and whose offsets are multiples of their sizes. Knows nothing of memory: offsets and sizes
/// are in bytes, as `long`.
///
/// A free block of each size is taken last in, first out; where none of the size is there, the next
/// larger one is split and its lower half kept. Freed buddies merge. Neither allocates on the heap.
///
/// Threading: confined; guarded by its user.
public final class BuddyAllocator {
    private static final int NONE = -1;

    /// What the smallest block at an index begins.
    private static final byte INSIDE = -1;

    private static final int FREE = 0x40;
    private static final int ORDER = 0x3f;

    private final long capacity;
    private final int unitShift;
    private final int topOrder;

    /// Per smallest block: the order of the block that begins there, with [#FREE], or [#INSIDE].
    private final byte[] state;

    /// Free lists, doubly linked by index, one per order.
    private final int[] heads;

    private final int[] next;
    private final int[] previous;
    private long available;

    /// @param capacity bytes to hand out, rounded up to a power of two
    /// @param smallest bytes of the smallest block, rounded up to a power of two
    /// @throws IllegalArgumentException unless `0 < smallest <= capacity`, or when there would be
    ///   more than 2^28 smallest blocks
    public BuddyAllocator(long capacity, long smallest) {
        if (smallest < 1 || capacity < smallest || capacity > 1L << 61) {
            throw new IllegalArgumentException(
                    "capacity " + capacity + ", smallest block " + smallest);
        }
        this.capacity = roundUp(capacity);
        this.unitShift = Long.numberOfTrailingZeros(roundUp(smallest));
        this.topOrder = Long.numberOfTrailingZeros(this.capacity) - unitShift;
        if (topOrder > 28) {
            throw new IllegalArgumentException(
                    "capacity "
                            + capacity
                            + " has too many blocks of "
                            + smallest
                            + " bytes; make the smallest block larger");
        }
        int units = 1 << topOrder;
        state = new byte[units];
        Arrays.fill(state, INSIDE);
        next = new int[units];
        previous = new int[units];
        heads = new int[topOrder + 1];
        Arrays.fill(heads, NONE);
        push(0, topOrder);
        available = this.capacity;
    }

    static long roundUp(long bytes) {
        return bytes <= 1 ? 1 : Long.highestOneBit(bytes - 1) << 1;
    }

    /// Bytes that can be handed out in all.
    public long capacity() {
        return capacity;
    }

    /// Bytes of the smallest block.
    public long smallest() {
        return 1L << unitShift;
    }

    /// Bytes that are free now.
    public long available() {
        return available;
    }

    /// Takes a block of at least `bytes`.
    ///
    /// @return its offset, or -1 when no free block is large enough
    /// @throws KvFerryException [ErrorCode#INVALID_REQUEST] when `bytes` is not positive, or is
    ///   more than the capacity
    public long allocate(long bytes) {
        int order = orderOf(bytes);
        int found = order;
        while (found <= topOrder && heads[found] == NONE) {
            found++;
        }
        if (found > topOrder) {
            return -1;
        }
        int index = heads[found];
        unlink(index, found);
        while (found > order) {
            found--;
            push(index + (1 << found), found);
        }
        state[index] = (byte) order;
        available -= bytesOf(order);
        return (long) index << unitShift;
    }

    /// The order of the smallest block that `bytes` fit into.
    int orderOf(long bytes) {
        if (bytes <= 0) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST, "a buffer of " + bytes + " bytes was asked for");
        }
        if (bytes > capacity) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "a buffer of " + bytes + " bytes was asked for, the pool has " + capacity);
        }
        return Math.max(0, Long.numberOfTrailingZeros(roundUp(bytes)) - unitShift);
    }

    int topOrder() {
        return topOrder;
    }

    private long bytesOf(int order) {
        return 1L << (unitShift + order);
    }

    /// Whether an allocated block begins at `offset`.
    public boolean isAllocated(long offset) {
        return offset >= 0
                && offset < capacity
                && (offset & (smallest() - 1)) == 0
                && (state[(int) (offset >> unitShift)] & ~ORDER) == 0;
    }

    /// Bytes of the allocated block at `offset`.
    ///
    /// @throws KvFerryException [ErrorCode#INVALID_REQUEST] when none begins there
    public long size(long offset) {
        return bytesOf(state[index(offset)]);
    }

    /// The block at an index of smallest blocks: its order, whether free or not; less than 0 inside
    /// of one.
    int orderAt(int index) {
        return state[index] == INSIDE ? -1 : state[index] & ORDER;
    }

    boolean isFreeAt(int index) {
        return state[index] != INSIDE && (state[index] & FREE) != 0;
    }

    /// Gives a block back and merges it with its free buddies.
    ///
    /// @throws KvFerryException [ErrorCode#INVALID_REQUEST] when no allocated block begins there;
    ///   nothing changes then
    public void free(long offset) {
        int index = index(offset);
        int order = state[index];
        available += bytesOf(order);
        state[index] = INSIDE;
        while (order < topOrder) {
            int buddy = index ^ (1 << order);
            if (state[buddy] != (byte) (order | FREE)) {
                break;
            }
            unlink(buddy, order);
            state[buddy] = INSIDE;
            index = Math.min(index, buddy);
            order++;
        }
        push(index, order);
    }

    private int index(long offset) {
        if (!isAllocated(offset)) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST, "no buffer begins at offset " + offset);
        }
        return (int) (offset >> unitShift);
    }

    private void push(int index, int order) {
        int head = heads[order];
        state[index] = (byte) (order | FREE);
        next[index] = head;
        previous[index] = NONE;
        if (head != NONE) {
            previous[head] = index;
        }
        heads[order] = index;
    }

    private void unlink(int index, int order) {
        int before = previous[index];
        int after = next[index];
        if (before == NONE) {
            heads[order] = after;
        } else {
            next[before] = after;
        }
        if (after != NONE) {
            previous[after] = before;
        }
    }

    /// Offsets of the free blocks of exactly `size` bytes, the next one to be taken first.
    public List<Long> freeBlocks(long size) {
        var offsets = new ArrayList<Long>();
        for (int at = heads[orderOf(size)]; at != NONE; at = next[at]) {
            offsets.add((long) at << unitShift);
        }
        return offsets;
    }
}
