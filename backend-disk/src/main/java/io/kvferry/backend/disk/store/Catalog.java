// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import java.util.ArrayList;
import java.util.List;

/// What this process believes to be in the folder, and how much room is left: [BlockIndex] plus the
/// quota.
///
/// It is a belief, because other processes add and delete blocks too; [Janitor] and every read or
/// lookup correct it. Files of the blocks are the truth, and no call here touches them.
///
/// Threading: any thread; the monitor is held for memory work only (a monitor, unlike a contended
/// lock object, makes no garbage).
final class Catalog {
    /// What a lookup may assume about a block.
    enum Presence {
        ABSENT,
        /// Seen on disk a short while ago.
        FRESH,
        /// Seen, but long enough ago that another process may have deleted it.
        STALE,
        /// A read timed out recently: a miss for now, so that nobody is promised it again at once.
        DISTRUSTED
    }

    /// No count of evictions.
    private static final long UNSURE = -1;

    private final BlockIndex index = new BlockIndex();
    private final long quota;
    private final long high;
    private final long low;
    private final long verifyAfterNanos;
    private long reserved;
    private long evictions;
    private int evicting;

    Catalog(StoreConfig config) {
        this.quota = config.space().quotaBytes();
        this.high = (long) (config.space().quotaBytes() * config.space().highWatermark());
        this.low = (long) (config.space().quotaBytes() * config.space().lowWatermark());
        this.verifyAfterNanos = config.times().verifyAfter().toNanos();
    }

    /// Whether the block was there when it was last heard of.
    boolean believes(BlockDigest digest, long now) {
        return switch (presence(digest, now)) {
            case FRESH, STALE -> true;
            case ABSENT, DISTRUSTED -> false;
        };
    }

    synchronized Presence presence(BlockDigest digest, long now) {
        int slot = index.find(digest);
        if (slot == BlockIndex.NONE) {
            return Presence.ABSENT;
        }
        if (index.distrusted(slot, now)) {
            return Presence.DISTRUSTED;
        }
        return now - index.verifiedAt(slot) < verifyAfterNanos ? Presence.FRESH : Presence.STALE;
    }

    /// Asked before a look at the disk, for [#sighted].
    synchronized long lookBegins() {
        return evicting == 0 ? evictions : UNSURE;
    }

    /// The block was seen on disk at `now`, and used. One that is not in the catalog enters it,
    /// unless an eviction by this process may have deleted it since the look began: the next lookup
    /// asks the disk again.
    synchronized void sighted(BlockDigest digest, long bytes, long now, long lookBegan) {
        if (lookBegan == evictions || index.find(digest) != BlockIndex.NONE) {
            confirm(digest, bytes, now);
        }
    }

    /// The block was just saved, by whomever.
    synchronized void confirm(BlockDigest digest, long bytes, long now) {
        int slot = index.find(digest);
        if (slot == BlockIndex.NONE) {
            slot = index.add(digest, bytes);
        } else {
            index.resize(slot, bytes);
            index.touch(slot);
        }
        index.verifiedAt(slot, now);
    }

    /// The block is not on disk (any more); answers whether it was believed to be.
    synchronized boolean forget(BlockDigest digest) {
        int slot = index.find(digest);
        if (slot == BlockIndex.NONE) {
            return false;
        }
        index.remove(slot);
        return true;
    }

    synchronized void distrust(BlockDigest digest, long untilNanoTime) {
        int slot = index.find(digest);
        if (slot != BlockIndex.NONE) {
            index.distrust(slot, untilNanoTime);
        }
    }

    /// Keeps the block from eviction until as many [#unpin] calls; false when it is not known.
    synchronized boolean pin(BlockDigest digest) {
        int slot = index.find(digest);
        if (slot == BlockIndex.NONE) {
            return false;
        }
        index.pins(slot, index.pins(slot) + 1);
        return true;
    }

    synchronized void unpin(BlockDigest digest) {
        int slot = index.find(digest);
        if (slot != BlockIndex.NONE && index.pins(slot) > 0) {
            index.pins(slot, index.pins(slot) - 1);
        }
    }

    /// Sets bytes of the quota aside for a file about to be written; false when they do not fit.
    synchronized boolean reserve(long bytes) {
        if (index.totalBytes() + reserved + bytes > quota) {
            return false;
        }
        reserved += bytes;
        return true;
    }

    /// Gives a reservation back.
    synchronized void release(long bytes) {
        reserved -= bytes;
    }

    /// Turns a reservation into a block.
    synchronized void commit(BlockDigest digest, long bytes, long now) {
        reserved -= bytes;
        confirm(digest, bytes, now);
    }

    /// Whether the background should start to evict.
    synchronized boolean aboveHighWatermark() {
        return index.totalBytes() + reserved > high;
    }

    /// Forgets the least recently used unpinned block if more than the low watermark is taken, and
    /// puts its digest into `victim`; false when there is nothing to evict. [#evicted] ends it.
    synchronized boolean evictAboveLowWatermark(long[] victim) {
        return index.totalBytes() + reserved > low && evictOldest(victim);
    }

    /// Forgets the least recently used unpinned block and puts its digest into `victim`; false when
    /// all are pinned.
    synchronized boolean evictOldest(long[] victim) {
        int slot = index.oldestUnpinned();
        if (slot == BlockIndex.NONE) {
            return false;
        }
        index.digest(slot, victim);
        index.remove(slot);
        evictions++;
        evicting++;
        return true;
    }

    /// The file of a victim is gone.
    synchronized void evicted() {
        evicting--;
    }

    /// A scan of the folder met this file.
    synchronized void scanned(BlockDigest digest, long bytes, long now, int scan) {
        int slot = index.find(digest);
        if (slot == BlockIndex.NONE) {
            slot = index.add(digest, bytes);
            index.verifiedAt(slot, now);
        }
        index.resize(slot, bytes);
        index.scan(slot, scan);
    }

    /// Forgets what scan number `scan`, begun at `startedAt`, did not meet and nobody saw since;
    /// answers those.
    synchronized List<BlockDigest> sweep(int scan, long startedAt) {
        var gone = new ArrayList<BlockDigest>();
        for (int slot = index.oldest(); slot != BlockIndex.NONE; ) {
            int next = index.newerThan(slot);
            if (index.scan(slot) != scan && index.verifiedAt(slot) - startedAt < 0) {
                gone.add(index.digest(slot));
                index.remove(slot);
            }
            slot = next;
        }
        return gone;
    }

    /// Forgets everything; answers what that was.
    synchronized List<BlockDigest> clear() {
        var gone = new ArrayList<BlockDigest>();
        for (int slot = index.oldest(); slot != BlockIndex.NONE; slot = index.oldest()) {
            gone.add(index.digest(slot));
            index.remove(slot);
        }
        return gone;
    }

    synchronized long usedBytes() {
        return index.totalBytes();
    }

    synchronized long reservedBytes() {
        return reserved;
    }

    synchronized int blocks() {
        return index.size();
    }
}
