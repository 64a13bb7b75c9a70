// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import io.kvferry.backend.mooncake.store.memory.OffsetAllocator;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;

/// A named piece of host memory that objects lie in. Freed once it is unmounted and nothing is left
/// in it.
///
/// Threading: any thread; a lock of its own around the allocator.
public final class Segment {
    private static final AtomicLong IDS = new AtomicLong();

    private final long id = IDS.incrementAndGet();
    private final String name;
    private final long owner;
    private final SegmentMemory.Taken memory;
    private final OffsetAllocator allocator;
    private final ReentrantLock lock = new ReentrantLock();
    private boolean mounted = true;
    private boolean freed;

    /// @param owner client that mounted it
    /// @throws OutOfMemoryError when there is no memory for it
    public Segment(String name, long owner, long bytes, SegmentMemory source) {
        this.name = name;
        this.owner = owner;
        this.allocator = new OffsetAllocator(bytes);
        this.memory = source.take(bytes);
    }

    /// Differs for every mount in this JVM.
    public long id() {
        return id;
    }

    public String name() {
        return name;
    }

    public long owner() {
        return owner;
    }

    public MemorySegment memory() {
        return memory.memory();
    }

    long capacity() {
        return allocator.capacity();
    }

    /// A range, as its handle; [OffsetAllocator#NONE] without room or when unmounted.
    int allocate(long bytes) {
        lock.lock();
        try {
            return mounted ? allocator.allocate(bytes) : OffsetAllocator.NONE;
        } finally {
            lock.unlock();
        }
    }

    long offset(int handle) {
        lock.lock();
        try {
            return allocator.offset(handle);
        } finally {
            lock.unlock();
        }
    }

    void release(int handle) {
        lock.lock();
        try {
            allocator.release(handle);
            freeIfUnused();
        } finally {
            lock.unlock();
        }
    }

    long usedBytes() {
        lock.lock();
        try {
            return allocator.usedBytes();
        } finally {
            lock.unlock();
        }
    }

    long largestFree() {
        lock.lock();
        try {
            return mounted ? allocator.largestFree() : 0;
        } finally {
            lock.unlock();
        }
    }

    /// Takes no more objects. The memory goes with the last object.
    public void unmount() {
        lock.lock();
        try {
            mounted = false;
            freeIfUnused();
        } finally {
            lock.unlock();
        }
    }

    public boolean isMounted() {
        lock.lock();
        try {
            return mounted;
        } finally {
            lock.unlock();
        }
    }

    /// Whether its memory has gone.
    boolean isFreed() {
        lock.lock();
        try {
            return freed;
        } finally {
            lock.unlock();
        }
    }

    private void freeIfUnused() {
        if (!mounted && !freed && allocator.ranges() == 0) {
            freed = true;
            memory.free().run();
        }
    }
}
