// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;

/// The buckets of a tier, with their numbers, and how full they make it.
///
/// Threading: any thread.
final class BucketTable {
    /// Bits of a bucket's number below the milliseconds of its time.
    private static final int ID_SHIFT = 12;

    private final TierConfig config;
    private final long capacity;
    private final AtomicLong uses = new AtomicLong();
    private final TreeMap<Long, Bucket> buckets = new TreeMap<>();
    private long lastId;
    private volatile long used;

    /// @param capacity bytes of all files
    BucketTable(TierConfig config, long capacity) {
        this.config = config;
        this.capacity = capacity;
    }

    /// Counts the uses of buckets, by which they are ordered.
    AtomicLong uses() {
        return uses;
    }

    /// A bucket that is to be written.
    synchronized Bucket next() {
        lastId = Math.max(lastId + 1, System.currentTimeMillis() << ID_SHIFT);
        return new Bucket(lastId);
    }

    /// A number is taken by a bucket that is not in the table.
    synchronized void know(long id) {
        lastId = Math.max(lastId, id);
    }

    synchronized void add(Bucket bucket) {
        bucket.use(uses.incrementAndGet());
        buckets.put(bucket.id(), bucket);
        know(bucket.id());
        used += bucket.fileBytes();
    }

    synchronized void remove(Bucket bucket) {
        if (buckets.remove(bucket.id()) != null) {
            used -= bucket.fileBytes();
        }
    }

    /// In the order in which they are deleted; none where they are not.
    synchronized List<Bucket> victims() {
        var all = new ArrayList<>(buckets.values());
        switch (config.eviction()) {
            case NONE -> all.clear();
            case FIFO -> {} // as they are
            case LRU -> all.sort(Comparator.comparingLong(Bucket::lastUse));
        }
        return all;
    }

    /// Those in which nothing is of use any more.
    synchronized List<Bucket> empty() {
        return buckets.values().stream().filter(Bucket::isEmpty).toList();
    }

    synchronized int size() {
        return buckets.size();
    }

    /// Bytes of all files.
    long usedBytes() {
        return used;
    }

    /// Whether another bucket of so many bytes would lift the tier above its high watermark.
    boolean isCrowded(long bytes) {
        return used + bytes > config.highWatermark() * capacity;
    }

    /// Whether it would leave it above its low watermark.
    boolean isAboveLow(long bytes) {
        return used + bytes > config.lowWatermark() * capacity;
    }

    /// Whether it would not fit.
    boolean isFull(long bytes) {
        return used + bytes > capacity;
    }
}
