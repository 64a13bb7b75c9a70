// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.memory.KvRegion;

import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/// Blocks of a finished request on one rank of the producer, offered to the consumer's rank of the
/// same number. The consumer reads them in place; after [#withdraw] has returned, nothing reads
/// them any more.
///
/// Threading: any thread.
public final class HandOff {
    private final List<KvRegion> regions;
    private final int[][] blocks;
    private final ReentrantReadWriteLock access = new ReentrantReadWriteLock();
    private boolean open = true; // guarded by access
    private volatile boolean taken;

    /// @param blocks block ids by group and position
    public HandOff(List<KvRegion> regions, int[][] blocks) {
        this.regions = regions;
        this.blocks = blocks;
    }

    /// Copies one block of one layer; false when the offer has ended or never had that block.
    public boolean read(int regionIndex, int position, MemorySegment target, long offset) {
        access.readLock().lock();
        try {
            var region = regions.get(regionIndex);
            var ids = blocks[region.group()];
            if (!open || position >= ids.length) {
                return false;
            }
            MemorySegment.copy(
                    region.segment(),
                    region.offset(ids[position]),
                    target,
                    offset,
                    region.blockBytes());
            return true;
        } finally {
            access.readLock().unlock();
        }
    }

    /// The consumer needs it no longer.
    public void taken() {
        taken = true;
    }

    public boolean isTaken() {
        return taken;
    }

    public void withdraw() {
        access.writeLock().lock();
        try {
            open = false;
        } finally {
            access.writeLock().unlock();
        }
    }
}
