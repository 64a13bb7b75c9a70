// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.offload;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreParts;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.backend.mooncake.store.tier.DiskObject;
import io.kvferry.backend.mooncake.store.tier.DiskTier;

import org.jspecify.annotations.Nullable;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ThreadFactory;
import java.util.function.UnaryOperator;

/// Writes objects to the disk tier, when their put ends or when they are evicted from memory. An
/// evicted object keeps its memory until it is on disk. Without a tier this does nothing.
///
/// Evictions wait for the disk, so a slow disk slows puts down. While the disk is full, broken or
/// hangs, offloading pauses and evictions free memory immediately.
///
/// Threading: any thread.
public final class Offloads implements AutoCloseable {
    private final @Nullable OffloadLoop loop;

    public Offloads(StoreParts parts, @Nullable DiskTier tier) {
        this.loop = tier == null ? null : new OffloadLoop(parts, tier);
    }

    /// Starts the thread that writes; without it [#step] does.
    public void start(ThreadFactory threads) {
        if (loop != null) {
            loop.start(threads);
        }
    }

    /// Makes an object of a copy on disk.
    @FunctionalInterface
    public interface Recovered {
        /// @return an object that can be read and is in no table yet
        StoredObject object(DiskObject copy, long now);
    }

    /// What the tier holds from earlier. Called before the store has users.
    ///
    /// @param intern the one object for an identity
    public void recover(UnaryOperator<StoreIdentity> intern, Recovered recovered) {
        if (loop != null) {
            loop.copies.recover(intern, recovered);
        }
    }

    /// A lookup found an object. Under the lock of its shard.
    public void looked(StoredObject object) {
        if (loop != null && !object.hasMemory()) {
            loop.disk.counters().hits.increment();
        }
    }

    /// A put has ended. Under the lock of the object's shard.
    public void ended(StoredObject object) {
        if (loop != null && !loop.disk.config().onEvict()) {
            loop.queue.add(object);
        }
    }

    /// An eviction has chosen an object without a copy on disk. Under the lock of its shard.
    ///
    /// @return whether its memory goes when it is on disk; else it goes now, and the object with it
    public boolean evict(StoredObject object) {
        return loop != null && loop.queue.addEvicted(object);
    }

    /// Bytes of memory that go as soon as their objects are on disk.
    public long evictingBytes() {
        return loop == null ? 0 : loop.queue.evictingBytes();
    }

    /// An object is about to be removed. Under the lock of its shard.
    public void removed(StoredObject object) {
        if (loop != null) {
            loop.copies.removed(object);
        }
    }

    /// Waits until no restart finds again what was removed before this call. Outside of all locks.
    ///
    /// @return 0 or a code: then it is not certain, and whoever asked has to ask again
    public int confirmRemovals() {
        return loop == null ? 0 : loop.copies.confirmRemovals();
    }

    /// A copy turned out to be lost or damaged.
    public void lost(StoredObject object, DiskObject copy) {
        if (loop != null) {
            loop.copies.lost(object, copy);
        }
    }

    /// A put found that the objects cost too much of the heap.
    public void wantHeap() {
        if (loop != null) {
            loop.evictor.wantHeap();
        }
    }

    /// Writes one bucket, if there is enough for one, or something has waited long enough.
    ///
    /// @param flush whether not to wait for more
    /// @return whether there was something to write
    public boolean step(boolean flush) {
        return loop != null && loop.step(flush);
    }

    /// Now, by the names of Mooncake's metrics; empty without a tier.
    public Map<String, Long> gauges() {
        var gauges = new TreeMap<String, Long>();
        if (loop != null) {
            DiskTier disk = loop.disk;
            gauges.put("master_allocated_file_size_bytes", disk.usedBytes());
            gauges.put("master_total_file_capacity_bytes", disk.capacity());
            gauges.put("kvferry_disk_buckets", (long) disk.bucketCount());
            gauges.put("kvferry_disk_staging_bytes", disk.stagingInUse());
            loop.addGauges(gauges);
        }
        return gauges;
    }

    /// Writes what waits, for a while, and ends; the tier stays open.
    @Override
    public void close() {
        if (loop != null) {
            loop.close();
        }
    }
}
