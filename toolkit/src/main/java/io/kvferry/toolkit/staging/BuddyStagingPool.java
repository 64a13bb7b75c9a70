// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.staging;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.toolkit.memory.HostPages;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletionStage;

/// The staging pool of a host. Its memory is allocated when it is first needed, in one piece.
///
/// A buffer's number holds the index of its first smallest block and how often that index was
/// handed out, so that the number of a buffer that is over never names another one.
///
/// Threading: any thread. The monitor is held for the bookkeeping of one call only.
public final class BuddyStagingPool implements StagingPool, AutoCloseable {
    /// Bytes of the smallest buffer: a page, so that O_DIRECT and memory registration can use each.
    public static final long SMALLEST = 4096;

    private static final int NONE = -1;

    // What a buffer is, by the index of its first smallest block.
    private static final byte FREE = 0;
    private static final byte HELD = 1;
    private static final byte EVICTABLE = 2;

    /// Given back, and occupied until the last pin ends.
    private static final byte LEAVING = 3;

    /// A pin of the pool's own, which nobody else can end.
    private static final int QUARANTINE = 1 << 30;

    private final Object monitor = new Object();
    private final BuddyAllocator buddies;
    private final int unitShift;
    private final int[] generations;
    private final int[] pins;
    private final byte[] kinds;
    private final @Nullable String[] owners;

    /// Evictable buffers from the oldest to the youngest, linked by index.
    private final int[] younger;

    private final int[] older;
    private int oldest = NONE;
    private int youngest = NONE;

    private @Nullable Arena arena;
    private MemoryRange.@Nullable Host range;
    private int buffers;
    private boolean closed;

    /// @param capacity bytes, rounded up to a power of two of at least [#SMALLEST]
    public BuddyStagingPool(long capacity) {
        this(Math.max(capacity, SMALLEST), SMALLEST);
    }

    BuddyStagingPool(long capacity, long smallest) {
        buddies = new BuddyAllocator(capacity, smallest);
        unitShift = Long.numberOfTrailingZeros(buddies.smallest());
        int units = 1 << buddies.topOrder();
        generations = new int[units];
        pins = new int[units];
        kinds = new byte[units];
        owners = new String[units];
        younger = new int[units];
        older = new int[units];
    }

    @Override
    public MemoryRange.Host range() {
        synchronized (monitor) {
            checkOpen();
            return memory();
        }
    }

    private MemoryRange.Host memory() {
        var known = range;
        if (known != null) {
            return known;
        }
        var fresh = Arena.ofShared();
        try {
            known = new MemoryRange.Host(HostPages.allocate(buddies.capacity(), fresh));
        } catch (OutOfMemoryError e) {
            fresh.close();
            throw new KvFerryException(
                    ErrorCode.NO_MEMORY,
                    "the staging pool cannot have its " + buddies.capacity() + " bytes",
                    e);
        }
        arena = fresh;
        range = known;
        return known;
    }

    private void checkOpen() {
        if (closed) {
            throw new KvFerryException(ErrorCode.CLOSED, "the staging pool is closed");
        }
    }

    @Override
    public long capacity() {
        return buddies.capacity();
    }

    @Override
    public long available() {
        synchronized (monitor) {
            return buddies.available();
        }
    }

    @Override
    public long allocate(String owner, long bytes) {
        return take(owner, bytes, HELD);
    }

    @Override
    public long allocateEvictable(String owner, long bytes) {
        return take(owner, bytes, EVICTABLE);
    }

    private long take(String owner, long bytes, byte kind) {
        synchronized (monitor) {
            checkOpen();
            memory();
            long offset = buddies.allocate(bytes);
            if (offset < 0) {
                offset = evictFor(bytes);
            }
            int index = (int) (offset >> unitShift);
            kinds[index] = kind;
            owners[index] = owner;
            pins[index] = 0;
            buffers++;
            if (kind == EVICTABLE) {
                linkYoungest(index);
            }
            int generation = ++generations[index];
            return (long) generation << 32 | index;
        }
    }

    private long evictFor(long bytes) {
        if (canMakeRoom(buddies.orderOf(bytes))) {
            for (int index = oldest; index != NONE; ) {
                int next = younger[index];
                if (pins[index] == 0) {
                    release(index);
                    long offset = buddies.allocate(bytes);
                    if (offset >= 0) {
                        return offset;
                    }
                }
                index = next;
            }
        }
        throw new KvFerryException(
                ErrorCode.NO_MEMORY,
                "no room for a buffer of "
                        + bytes
                        + " bytes: "
                        + buddies.available()
                        + " of "
                        + buddies.capacity()
                        + " bytes are free, in pieces; held by "
                        + holders());
    }

    /// Whether some range of that order would be free if all that may be evicted were.
    private boolean canMakeRoom(int order) {
        int step = 1 << order;
        int units = 1 << buddies.topOrder();
        for (int from = 0; from < units; from += step) {
            if (isOccupiedByAnother(from)) {
                continue; // inside of a larger buffer
            }
            int at = from;
            while (at < from + step && canBeFreed(at)) {
                at += 1 << buddies.orderAt(at);
            }
            if (at >= from + step) {
                return true;
            }
        }
        return false;
    }

    private boolean isOccupiedByAnother(int index) {
        return buddies.orderAt(index) < 0;
    }

    private boolean canBeFreed(int index) {
        return buddies.isFreeAt(index) || (kinds[index] == EVICTABLE && pins[index] == 0);
    }

    /// Back into the allocator.
    private void release(int index) {
        if (kinds[index] == EVICTABLE) {
            unlink(index);
        }
        kinds[index] = FREE;
        owners[index] = null;
        buffers--;
        buddies.free((long) index << unitShift);
        if (closed && buffers == 0) {
            freeMemory();
        }
    }

    private void linkYoungest(int index) {
        older[index] = youngest;
        younger[index] = NONE;
        if (youngest == NONE) {
            oldest = index;
        } else {
            younger[youngest] = index;
        }
        youngest = index;
    }

    private void unlink(int index) {
        int before = older[index];
        int after = younger[index];
        if (before == NONE) {
            oldest = after;
        } else {
            younger[before] = after;
        }
        if (after == NONE) {
            youngest = before;
        } else {
            older[after] = before;
        }
    }

    /// The index of a buffer that its holder has not given back; -1 for any other number.
    private int live(long buffer) {
        int index = (int) buffer;
        boolean good =
                index >= 0
                        && index < kinds.length
                        && (kinds[index] == HELD || kinds[index] == EVICTABLE)
                        && generations[index] == (int) (buffer >>> 32);
        return good ? index : NONE;
    }

    private int require(long buffer) {
        int index = live(buffer);
        if (index == NONE) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "buffer " + Long.toHexString(buffer) + " is over, or never was one");
        }
        return index;
    }

    @Override
    public long offset(long buffer) {
        synchronized (monitor) {
            return (long) require(buffer) << unitShift;
        }
    }

    @Override
    public MemorySegment segment(long buffer) {
        synchronized (monitor) {
            long offset = (long) require(buffer) << unitShift;
            return memory().segment().asSlice(offset, buddies.size(offset));
        }
    }

    @Override
    public boolean pin(long buffer) {
        synchronized (monitor) {
            int index = live(buffer);
            if (index == NONE) {
                return false;
            }
            pins[index]++;
            return true;
        }
    }

    @Override
    public void unpin(long buffer) {
        synchronized (monitor) {
            int index = (int) buffer;
            if (index < 0
                    || index >= kinds.length
                    || kinds[index] == FREE
                    || generations[index] != (int) (buffer >>> 32)
                    || (pins[index] & ~QUARANTINE) == 0) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "buffer " + Long.toHexString(buffer) + " is not pinned");
            }
            unpinned(index, 1);
        }
    }

    private void unpinned(int index, int what) {
        pins[index] -= what;
        if (pins[index] == 0 && kinds[index] == LEAVING) {
            release(index);
        }
    }

    @Override
    public void free(long buffer) {
        synchronized (monitor) {
            leave(require(buffer));
        }
    }

    private void leave(int index) {
        if (pins[index] == 0) {
            release(index);
            return;
        }
        if (kinds[index] == EVICTABLE) {
            unlink(index);
        }
        kinds[index] = LEAVING;
    }

    @Override
    public void quarantine(long buffer, CompletionStage<?> untouched) {
        int index;
        synchronized (monitor) {
            index = require(buffer);
            pins[index] += QUARANTINE;
            leave(index);
        }
        var _ =
                untouched.whenComplete((_, _) -> {
                    synchronized (monitor) {
                        unpinned(index, QUARANTINE);
                    }
                });
    }

    /// Bytes per owner that are not given back, or are but may still be touched.
    public Map<String, Long> held() {
        synchronized (monitor) {
            return holders();
        }
    }

    private Map<String, Long> holders() {
        var held = new TreeMap<String, Long>();
        for (int index = 0; index < kinds.length; index++) {
            var owner = owners[index];
            if (kinds[index] != FREE && owner != null) {
                held.merge(owner, buddies.size((long) index << unitShift), Long::sum);
            }
        }
        return held;
    }

    /// Refuses new buffers. The memory is freed now, or when the last buffer has come back: who
    /// still holds one ([#held]) may still have it written to.
    @Override
    public void close() {
        synchronized (monitor) {
            closed = true;
            if (buffers == 0) {
                freeMemory();
            }
        }
    }

    private void freeMemory() {
        var open = arena;
        arena = null;
        range = null;
        if (open != null) {
            open.close();
        }
    }

    @Override
    public String toString() {
        return "BuddyStagingPool[" + available() + " of " + capacity() + " bytes free]";
    }
}
