// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import io.kvferry.backend.mooncake.store.memory.OffsetAllocator;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.AlignedStaging;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/// Aligned memory through which objects are read from bucket files, limited in bytes. It is taken
/// in slabs as it is needed, and kept.
///
/// Threading: any thread.
final class StagingPool implements AutoCloseable {
    private static final long PAGE = AlignedStaging.ALIGNMENT;

    /// What direct I/O reads before and behind the bytes that are wanted, at most.
    private static final long PADDING = 2 * PAGE;

    private static final long SLAB_BYTES = 64L << 20;

    /// The allocator's smallest range stands for a page.
    private static final long UNIT = OffsetAllocator.ALIGNMENT;

    private final SegmentMemory source;
    private final long budget;
    private final Semaphore pages;
    private final List<Slab> slabs = new ArrayList<>();
    private long taken;
    private int lent;
    private boolean closed;

    private record Slab(SegmentMemory.Taken memory, OffsetAllocator allocator) {}

    /// @param budget bytes that are lent at a time
    StagingPool(SegmentMemory source, long budget) {
        this.source = source;
        this.budget = budget & -PAGE;
        this.pages = new Semaphore((int) Math.min(Integer.MAX_VALUE, this.budget / PAGE), true);
    }

    /// What Mooncake counts for an object: its bytes in whole pages, and two more.
    static long bytesFor(long size) {
        return AlignedStaging.align(size) + PADDING;
    }

    long budget() {
        return budget;
    }

    /// A piece of the pool.
    final class Buffer implements AutoCloseable {
        private final Slab slab;
        private final int handle;
        private final int count;
        private final MemorySegment memory;
        private boolean open = true;

        private Buffer(Slab slab, int handle, int count) {
            this.slab = slab;
            this.handle = handle;
            this.count = count;
            this.memory =
                    slab.memory
                            .memory()
                            .asSlice(slab.allocator.offset(handle) / UNIT * PAGE, count * PAGE);
        }

        MemorySegment memory() {
            return memory;
        }

        @Override
        public void close() {
            synchronized (StagingPool.this) {
                if (!open) {
                    return;
                }
                open = false;
                slab.allocator.release(handle);
                lent--;
                freeIfClosed();
            }
            pages.release(count);
        }
    }

    /// Room for an object of so many bytes.
    ///
    /// @param nanos longest wait for others to give theirs back; 0 for none
    /// @return null without room
    @Nullable Buffer take(long size, long nanos) throws InterruptedException {
        return reserve(bytesFor(size), nanos) ? allocate(bytesFor(size)) : null;
    }

    /// Sets room aside for several objects at once, so that two readers never wait for what the
    /// other has.
    boolean reserve(long bytes, long nanos) throws InterruptedException {
        if (bytes > budget) {
            return false;
        }
        int count = (int) (bytes / PAGE);
        return nanos <= 0
                ? pages.tryAcquire(count)
                : pages.tryAcquire(count, nanos, TimeUnit.NANOSECONDS);
    }

    /// Allocates a part of what was reserved.
    ///
    /// @return null when memory cannot be allocated; the reservation of this part is released then
    @Nullable Buffer allocate(long bytes) {
        int count = (int) (bytes / PAGE);
        Buffer buffer = null;
        try {
            buffer = find(count);
            return buffer;
        } finally {
            if (buffer == null) {
                pages.release(count);
            }
        }
    }

    /// Gives back a part of what was reserved.
    void giveBack(long bytes) {
        pages.release((int) (bytes / PAGE));
    }

    private synchronized @Nullable Buffer find(int count) {
        if (closed) {
            return null;
        }
        for (Slab slab : slabs) {
            int handle = slab.allocator.allocate(count * UNIT);
            if (handle != OffsetAllocator.NONE) {
                return lend(slab, handle, count);
            }
        }
        // Pieces of many sizes leave gaps; slabs beyond the budget close those of one slab.
        if (taken > budget + SLAB_BYTES) {
            freeIdle();
        }
        if (taken > budget + SLAB_BYTES) {
            return null;
        }
        long bytes = Math.max(count * PAGE, Math.min(SLAB_BYTES, budget));
        SegmentMemory.Taken memory;
        try {
            memory = source.take(bytes);
        } catch (OutOfMemoryError | KvFerryException _) { // each source has its own
            return null;
        }
        Slab slab = null;
        try {
            var made = new Slab(memory, new OffsetAllocator(bytes / PAGE * UNIT));
            slabs.add(made);
            slab = made;
        } finally {
            if (slab == null) {
                memory.free().run();
            }
        }
        taken += bytes;
        return lend(slab, slab.allocator.allocate(count * UNIT), count);
    }

    private Buffer lend(Slab slab, int handle, int count) {
        boolean done = false;
        try {
            var buffer = new Buffer(slab, handle, count);
            done = true;
            lent++;
            return buffer;
        } finally {
            if (!done) {
                slab.allocator.release(handle);
            }
        }
    }

    /// Frees slabs without lent buffers; none of them was large enough for the request.
    private void freeIdle() {
        for (var at = slabs.iterator(); at.hasNext(); ) {
            Slab slab = at.next();
            if (slab.allocator.ranges() == 0) {
                at.remove();
                taken -= slab.allocator.capacity() / UNIT * PAGE;
                slab.memory.free().run();
            }
        }
    }

    /// Bytes that are lent now.
    synchronized long lentBytes() {
        long sum = 0;
        for (Slab slab : slabs) {
            sum += slab.allocator.usedBytes() / UNIT * PAGE;
        }
        return sum;
    }

    /// Lends nothing more; the memory goes with the last piece that comes back.
    @Override
    public synchronized void close() {
        if (!closed) {
            closed = true;
            freeIfClosed();
        }
    }

    private void freeIfClosed() {
        if (closed && lent == 0) {
            slabs.forEach(slab -> slab.memory.free().run());
            slabs.clear();
        }
    }
}
