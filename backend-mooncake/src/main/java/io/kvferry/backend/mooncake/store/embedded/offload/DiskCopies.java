// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.offload;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.embedded.objects.ObjectShard;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreParts;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject.State;
import io.kvferry.backend.mooncake.store.embedded.offload.Offloads.Recovered;
import io.kvferry.backend.mooncake.store.tier.DiskObject;
import io.kvferry.backend.mooncake.store.tier.DiskTier;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;

/// The copies that objects have on disk: found when the store starts, removed with their objects,
/// lost.
///
/// A removal is confirmed when no restart finds the object again. Where the object is in a bucket
/// that is being written, that is not before the end of the write.
///
/// Threading: any thread. The monitor is taken inside of shard locks; no lock is taken under it.
final class DiskCopies {
    private static final Logger LOG = LoggerFactory.getLogger(DiskCopies.class);

    private final StoreParts parts;
    private final DiskTier disk;

    /// Objects that were removed while a bucket was being written in which a restart may find them.
    private int removedSealed;

    DiskCopies(StoreParts parts, DiskTier disk) {
        this.parts = parts;
        this.disk = disk;
    }

    /// Makes objects of what the tier holds from earlier. Called before the store has users.
    ///
    /// @param intern the one object for an identity
    void recover(UnaryOperator<StoreIdentity> intern, Recovered recovered) {
        long now = parts.time().now();
        List<DiskObject> found = disk.recover(intern);
        for (DiskObject copy : found) {
            StoredObject object = recovered.object(copy, now);
            ObjectShard shard = parts.objects().shardOf(object.hash);
            shard.lock();
            try {
                parts.objects().add(object);
            } finally {
                shard.unlock();
            }
        }
        if (!found.isEmpty()) {
            LOG.info("{}: {} objects found", disk.name(), found.size());
        }
    }

    /// An object is about to be removed. Under the lock of its shard.
    void removed(StoredObject object) {
        if (object.disk != null) {
            disk.removed(object.disk);
        } else if (object.sealed) {
            synchronized (this) {
                removedSealed++;
            }
        }
    }

    /// Waits until no restart finds again what was removed before this call. Outside of all locks.
    ///
    /// @return 0 or a code: then it is not certain, and whoever asked has to ask again
    int confirmRemovals() {
        boolean certain =
                awaitSealed(disk.config().ioLimit().toNanos()) && disk.confirmRemovals() == 0;
        return certain ? 0 : StoreCode.FILE_WRITE_FAIL.number();
    }

    private synchronized boolean awaitSealed(long nanos) {
        long end = System.nanoTime() + nanos;
        try {
            for (long left = nanos; removedSealed > 0; left = end - System.nanoTime()) {
                if (left <= 0) {
                    return false;
                }
                TimeUnit.NANOSECONDS.timedWait(this, left);
            }
            return true;
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    /// The bucket that was being written is whole or has failed, and what was removed meanwhile is
    /// with the tier.
    synchronized void writeEnded() {
        removedSealed = 0;
        notifyAll();
    }

    /// A copy turned out to be lost or damaged.
    void lost(StoredObject object, DiskObject copy) {
        ObjectShard shard = parts.objects().shardOf(object.hash);
        shard.lock();
        try {
            if (object.disk == copy) {
                disk.removed(copy);
                detach(object);
            }
        } finally {
            shard.unlock();
        }
    }

    /// The copy of an object on disk is gone. Without memory, the object is removed as well. The
    /// caller holds the lock of its shard.
    void detach(StoredObject object) {
        object.disk = null;
        if (!object.hasMemory() && object.state == State.COMPLETE) {
            parts.objects().erase(object);
        }
    }
}
