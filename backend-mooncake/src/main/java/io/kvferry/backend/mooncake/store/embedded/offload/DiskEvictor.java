// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.offload;

import io.kvferry.backend.mooncake.store.embedded.objects.ObjectShard;
import io.kvferry.backend.mooncake.store.embedded.objects.ObjectTable;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreParts;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.backend.mooncake.store.tier.Bucket;
import io.kvferry.backend.mooncake.store.tier.DiskObject;
import io.kvferry.backend.mooncake.store.tier.DiskTier;

/// Deletes buckets: those in which nothing is of use any more, and others, with the copies in them,
/// where the disk or the heap needs room.
///
/// Threading: one thread at a time; [#wantHeap] any.
final class DiskEvictor {
    private final StoreParts parts;
    private final DiskTier disk;
    private final DiskCopies copies;
    private final OffloadPause pause;
    private volatile boolean heapWanted;

    DiskEvictor(StoreParts parts, DiskTier disk, DiskCopies copies, OffloadPause pause) {
        this.parts = parts;
        this.disk = disk;
        this.copies = copies;
        this.pause = pause;
    }

    /// A put found that the objects cost too much of the heap.
    void wantHeap() {
        heapWanted = true;
    }

    /// Deletes the buckets in which nothing is of use any more.
    void deleteEmpty() {
        for (Bucket bucket : disk.empty()) {
            if (pause.isOn()) { // a disk that hangs is not asked for one bucket after the other
                break;
            }
            delete(bucket);
        }
    }

    private void delete(Bucket bucket) {
        if (!disk.delete(bucket)) {
            pause.begin("the disk does not answer");
        }
    }

    /// Makes room for another bucket.
    ///
    /// @return whether there is room, and the disk answers
    boolean makeRoom(long bytes) {
        if (disk.isCrowded(bytes)) {
            for (Bucket victim : disk.victims()) {
                if (pause.isOn() || !disk.isAboveLow(bytes)) {
                    break;
                }
                evict(victim, false);
            }
        }
        return !pause.isOn() && !disk.isFull(bytes);
    }

    /// Deletes buckets, and their objects with them, as long as the objects cost too much of the
    /// heap.
    void makeHeap() {
        boolean wanted = heapWanted;
        heapWanted = false;
        if (!wanted && parts.heapShare() <= parts.config().highWatermark()) {
            return;
        }
        for (Bucket victim : disk.victims()) {
            if (pause.isOn() || (!wanted && parts.heapShare() <= parts.config().highWatermark())) {
                return;
            }
            wanted &= !evict(victim, true);
        }
    }

    /// Deletes the first bucket that can be spared.
    void evictOne() {
        for (Bucket victim : disk.victims()) {
            if (evict(victim, false)) {
                return;
            }
        }
    }

    /// Deletes a bucket, unless it has the only copy of an object that is leased, being read or
    /// hard-pinned.
    ///
    /// @param whole whether objects go that have memory as well
    private boolean evict(Bucket victim, boolean whole) {
        for (DiskObject copy : victim.objects()) {
            if (!visit(copy, false, whole)) {
                return false;
            }
        }
        disk.withdraw(victim);
        for (DiskObject copy : victim.objects()) {
            visit(copy, true, whole);
        }
        delete(victim);
        return true;
    }

    /// @param drop whether the object gives its copy up; else it is only looked at
    /// @return whether the copy can be spared
    private boolean visit(DiskObject copy, boolean drop, boolean whole) {
        int hash = ObjectTable.hash(copy.identity().hashCode(), copy.key());
        ObjectShard shard = parts.objects().shardOf(hash);
        shard.lock();
        try {
            StoredObject object = shard.find(copy.identity(), copy.key(), hash);
            if (object == null || object.disk != copy) {
                return true;
            }
            if (!drop) {
                return object.hasMemory()
                        || (object.pins == 0
                                && !object.hardPinned
                                && !object.isLeased(parts.time().now()));
            }
            copies.detach(object);
            if (whole && object.isEvictable() && !object.isLeased(parts.time().now())) {
                parts.objects().erase(object);
                object.freeMemory();
            }
            return true;
        } finally {
            shard.unlock();
        }
    }
}
