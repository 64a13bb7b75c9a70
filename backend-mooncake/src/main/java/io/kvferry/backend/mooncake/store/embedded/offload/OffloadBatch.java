// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.offload;

import io.kvferry.backend.mooncake.store.embedded.objects.ObjectShard;
import io.kvferry.backend.mooncake.store.embedded.objects.ObjectTable;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreParts;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject.State;
import io.kvferry.backend.mooncake.store.embedded.offload.OffloadQueue.Taken;
import io.kvferry.backend.mooncake.store.tier.BucketSource;
import io.kvferry.backend.mooncake.store.tier.DiskObject;
import io.kvferry.backend.mooncake.store.tier.DiskTier;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.List;

/// Objects of one bucket, from the queue to the disk. They are pinned until the bucket is written
/// or has failed.
///
/// Threading: one thread.
final class OffloadBatch implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(OffloadBatch.class);

    /// Of a bucket's meta file, per object, beside its key.
    private static final long META_BYTES = 64;

    private static final long PAGES = 2 * 4096;

    private final StoreParts parts;
    private final DiskTier disk;
    private final OffloadQueue queue;

    /// Without room at first, so that `ensureCapacity` makes some.
    private final ArrayList<Taken> claimed = new ArrayList<>(0);

    private long bytes;
    private boolean tookAny;

    /// How many of the first ones are no longer pinned for the write.
    private int settled;

    OffloadBatch(StoreParts parts, DiskTier disk, OffloadQueue queue) {
        this.parts = parts;
        this.disk = disk;
        this.queue = queue;
    }

    /// Whether the tier can hold an object at all; otherwise every other bucket would be deleted
    /// for nothing.
    static boolean fits(DiskTier disk, StoredObject object) {
        return diskBytes(object) + PAGES <= disk.capacity();
    }

    private static long diskBytes(StoredObject object) {
        return object.size + object.key.length() * 6L + META_BYTES;
    }

    /// Takes objects from the queue until the bucket is full, if there is enough for one, or
    /// something has waited long enough.
    ///
    /// @param flush whether not to wait for more
    /// @return whether the queue had something to take, wanted or not
    boolean fill(boolean flush) {
        int keys = disk.config().bucketKeys();
        while (claimed.size() < keys) {
            claimed.ensureCapacity(claimed.size() + 1); // before an object is pinned
            Taken next = queue.take(bytes, flush || tookAny);
            if (next == null) {
                break;
            }
            tookAny = true;
            if (claim(next.object(), next.evicted())) {
                claimed.add(next);
                bytes += diskBytes(next.object());
            }
        }
        return tookAny;
    }

    /// Whether there is nothing to write: what was taken is no longer wanted on disk.
    boolean isEmpty() {
        return claimed.isEmpty();
    }

    /// Bytes of the bucket's files, a bit more rather than less.
    long fileBytes() {
        return bytes + PAGES;
    }

    /// Pins an object for the time of the write.
    private boolean claim(StoredObject object, boolean evicted) {
        ObjectShard shard = parts.objects().shardOf(object.hash);
        shard.lock();
        try {
            boolean wanted =
                    object.state == State.COMPLETE
                            && object.hasMemory()
                            && object.disk == null
                            && !object.writing;
            if (wanted) {
                object.writing = true;
                object.pins += evicted ? 0 : 1;
            } else if (evicted) {
                object.unpin();
                dropEvicted(object);
            }
            return wanted;
        } finally {
            if (evicted) {
                queue.uncountEvicting(object);
            }
            shard.unlock();
        }
    }

    /// Writes the bucket.
    ///
    /// @param copies gets what [#attach] needs
    /// @return 0 or a negated [io.kvferry.toolkit.disk.Errno]; then nothing was written
    int write(List<@Nullable DiskObject> copies) {
        var sources = new ArrayList<BucketSource>(claimed.size());
        for (Taken taken : claimed) {
            StoredObject object = taken.object();
            sources.add(
                    new BucketSource(
                            object.identity,
                            object.key,
                            object.group == null ? null : object.group.name.group(),
                            object.hardPinned,
                            object.place().memory().asSlice(object.offset, object.size),
                            parts.config().checksums(),
                            object.checksum));
        }
        return disk.write(sources, i -> seal(claimed.get(i).object()), copies);
    }

    /// From here on a restart may find the object in the bucket that is being written.
    ///
    /// @return false when it was removed before that
    private boolean seal(StoredObject object) {
        ObjectShard shard = parts.objects().shardOf(object.hash);
        shard.lock();
        try {
            object.sealed = object.state == State.COMPLETE;
            return object.sealed;
        } finally {
            shard.unlock();
        }
    }

    /// Gives the objects the copies that were written.
    void attach(List<@Nullable DiskObject> copies) {
        for (int i = 0; i < copies.size(); i++) {
            StoredObject object = claimed.get(i).object();
            DiskObject copy = copies.get(i);
            ObjectShard shard = parts.objects().shardOf(object.hash);
            shard.lock();
            try {
                settled = i + 1;
                object.writing = false;
                object.sealed = false;
                try {
                    if (object.state != State.COMPLETE) {
                        if (copy != null) {
                            disk.removed(copy);
                        }
                    } else if (copy == null) {
                        dropDamaged(object);
                    } else {
                        object.disk = copy;
                        disk.counters().offloadedKeys.increment();
                        disk.counters().offloadedBytes.add(object.size);
                    }
                } finally {
                    object.unpin();
                }
                if (claimed.get(i).evicted()) {
                    dropEvicted(object);
                }
            } finally {
                shard.unlock();
            }
        }
    }

    private void dropDamaged(StoredObject object) {
        parts.counters().checksumFailures.increment();
        LOG.warn("other bytes than were put under {}; the object is dropped", object.key);
        parts.objects().erase(object);
        object.freeMemory();
    }

    /// What was chosen for eviction and is on disk now, unless it was used meanwhile.
    private void dropEvicted(StoredObject object) {
        if (object.disk != null && object.isEvictable() && !object.isLeased(parts.time().now())) {
            object.dropMemory();
            parts.counters().evictedKeys.increment();
            parts.counters().evictedBytes.add(object.size);
        }
    }

    /// Lets go of those that did not get to disk.
    @Override
    public void close() {
        for (int i = settled; i < claimed.size(); i++) { // takes no memory of the heap
            letGo(parts.objects(), claimed.get(i).object());
        }
        claimed.clear();
    }

    /// Unpins an object that does not get to disk.
    static void letGo(ObjectTable objects, StoredObject object) {
        ObjectShard shard = objects.shardOf(object.hash);
        shard.lock();
        try {
            object.writing = false;
            object.sealed = false;
            object.unpin();
        } finally {
            shard.unlock();
        }
    }
}
