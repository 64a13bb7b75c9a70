// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.memory;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.util.Arrays;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;

/// The registered regions, ordered by address. Reads are lock-free on an immutable snapshot; writes
/// copy it.
public final class RegionTable {
    private final ReentrantLock writing = new ReentrantLock();
    private volatile Region[] sorted = {};

    public void add(Region region) {
        writing.lock();
        try {
            Region[] old = withoutEnded(sorted);
            int at = floor(old, region.address);
            if ((at >= 0 && overlaps(old[at], region))
                    || (at + 1 < old.length && overlaps(region, old[at + 1]))) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "region 0x%x+%d overlaps one that is registered already"
                                .formatted(region.address, region.bytes));
            }
            Region[] grown = new Region[old.length + 1];
            System.arraycopy(old, 0, grown, 0, at + 1);
            grown[at + 1] = region;
            System.arraycopy(old, at + 1, grown, at + 2, old.length - at - 1);
            sorted = grown;
        } finally {
            writing.unlock();
        }
    }

    /// Drops regions that could not be removed; their gates are closed.
    private static Region[] withoutEnded(Region[] regions) {
        for (Region region : regions) {
            if (region.gate.isClosed()) {
                return Arrays.stream(regions)
                        .filter(other -> !other.gate.isClosed())
                        .toArray(Region[]::new);
            }
        }
        return regions;
    }

    /// Called before the gate of the region is closed. If the smaller table cannot be allocated,
    /// the region stays in the table until the next one is added.
    public void remove(Region region) {
        writing.lock();
        try {
            Region[] old = sorted;
            int at = floor(old, region.address);
            if (at < 0 || old[at] != region) {
                return;
            }
            Region[] shrunk = new Region[old.length - 1];
            System.arraycopy(old, 0, shrunk, 0, at);
            System.arraycopy(old, at + 1, shrunk, at, shrunk.length - at);
            sorted = shrunk;
        } catch (OutOfMemoryError _) {
            Thread.onSpinWait(); // who is let in looks at its gate
        } finally {
            writing.unlock();
        }
    }

    /// The one region that holds all of a non-empty range. Adjacent regions are not merged, as in
    /// Mooncake.
    @Nullable
    public Region find(long address, long bytes) {
        Region[] seen = sorted;
        int at = floor(seen, address);
        return at >= 0 && bytes != 0 && seen[at].contains(address, bytes) ? seen[at] : null;
    }

    public List<Region> all() {
        return List.of(sorted);
    }

    /// Index of the last region that starts at or below `address`, -1 when there is none.
    private static int floor(Region[] regions, long address) {
        int low = 0;
        int high = regions.length - 1;
        while (low <= high) {
            int middle = (low + high) >>> 1;
            if (Long.compareUnsigned(regions[middle].address, address) <= 0) {
                low = middle + 1;
            } else {
                high = middle - 1;
            }
        }
        return high;
    }

    private static boolean overlaps(Region lower, Region upper) {
        return Long.compareUnsigned(upper.address - lower.address, lower.bytes) < 0;
    }
}
