// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.embedded.objects.ObjectShard;
import io.kvferry.backend.mooncake.store.embedded.objects.ObjectTable;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreTime;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject.State;
import io.kvferry.backend.mooncake.store.tier.DiskObject;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.function.Predicate;

/// Lookups, leases and removals of one user.
///
/// Threading: any thread.
final class ObjectReads {
    private final EmbeddedStore store;
    private final EmbeddedClient client;
    private final long leaseTime;
    private final boolean renewLeases;

    ObjectReads(EmbeddedStore store, EmbeddedClient client) {
        this.store = store;
        this.client = client;
        this.leaseTime = StoreTime.nanos(store.config.leaseTime());
        this.renewLeases = store.config.renewLeases();
    }

    private @Nullable StoredObject find(ObjectShard shard, String key, int hash) {
        return shard.find(client.identity(), key, hash);
    }

    private static int readable(@Nullable StoredObject object) {
        if (object == null) {
            return StoreCode.OBJECT_NOT_FOUND.number();
        }
        return object.state == State.COMPLETE ? 0 : StoreCode.REPLICA_IS_NOT_READY.number();
    }

    /// Leases are only ever prolonged.
    private void grant(StoredObject object, long now) {
        object.lease = Math.max(object.lease, now + leaseTime);
        if (object.group != null) {
            object.group.extend(now, leaseTime);
        }
    }

    /// Leases the object of a key and pins it; 0 or a code.
    int pin(String key, BatchState state, int index) {
        store.counters.gets.increment();
        int hash = ObjectTable.hash(client.identityHash(), key);
        ObjectShard shard = store.objects.shardOf(hash);
        shard.lock();
        try {
            StoredObject object = find(shard, key, hash);
            int code = readable(object);
            if (code != 0 || object == null) {
                store.counters.getFailures.increment();
                return code;
            }
            grant(object, store.time.now());
            state.leases[index] = object.lease;
            state.copies[index] = object.hasMemory() ? null : object.disk;
            store.offloads.looked(object);
            object.pins++;
            state.pinned[index] = object;
            return 0;
        } finally {
            shard.unlock();
        }
    }

    void unpin(StoredObject object) {
        ObjectShard shard = store.objects.shardOf(object.hash);
        shard.lock();
        try {
            object.unpin();
        } finally {
            shard.unlock();
        }
    }

    /// Before the copy: prolongs a lease that is half over.
    ///
    /// @return false when it is over and is not to be prolonged
    boolean renew(StoredObject object, long[] leases, int index) {
        long left = leases[index] - store.time.now();
        if (!renewLeases) {
            return left > 0;
        }
        if (left <= leaseTime / 2) {
            prolong(object, leases, index);
        }
        return true;
    }

    private void prolong(StoredObject object, long[] leases, int index) {
        ObjectShard shard = store.objects.shardOf(object.hash);
        shard.lock();
        try {
            grant(object, store.time.now());
            leases[index] = object.lease;
        } finally {
            shard.unlock();
        }
    }

    /// After the copy: whether the lease covered all of it. The pin has kept the bytes in place in
    /// any case, so a lease may be prolonged now as well.
    boolean isInTime(StoredObject object, long[] leases, int index) {
        if (store.time.now() < leases[index]) {
            return true;
        }
        if (renewLeases) {
            prolong(object, leases, index);
        }
        return renewLeases;
    }

    int exists(String key, boolean lease) {
        store.counters.exists.increment();
        int hash = ObjectTable.hash(client.identityHash(), key);
        ObjectShard shard = store.objects.shardOf(hash);
        shard.lock();
        try {
            StoredObject object = find(shard, key, hash);
            if (object == null || object.state != State.COMPLETE) {
                return 0;
            }
            long now = store.time.now();
            if (lease) {
                grant(object, now);
            } else {
                object.lease = Math.max(object.lease, now); // used, but not kept
            }
            return 1;
        } finally {
            shard.unlock();
        }
    }

    int describe(String key, @Nullable ReplicaDescriptor[] found, int index) {
        store.counters.gets.increment();
        int hash = ObjectTable.hash(client.identityHash(), key);
        ObjectShard shard = store.objects.shardOf(hash);
        shard.lock();
        try {
            StoredObject object = find(shard, key, hash);
            int code = readable(object);
            if (code != 0 || object == null) {
                store.counters.getFailures.increment();
                return code;
            }
            long now = store.time.now();
            grant(object, now);
            store.offloads.looked(object);
            found[index] = descriptor(object, object.lease - now);
            return 0;
        } finally {
            shard.unlock();
        }
    }

    /// That in memory, if there is one.
    private static ReplicaDescriptor descriptor(StoredObject object, long lease) {
        DiskObject copy = object.disk;
        if (object.hasMemory() || copy == null) {
            return new ReplicaDescriptor(
                    ReplicaDescriptor.Tier.MEMORY,
                    object.place().name(),
                    object.place().id(),
                    object.offset,
                    object.size,
                    object.checksum,
                    lease);
        }
        return new ReplicaDescriptor(
                ReplicaDescriptor.Tier.LOCAL_DISK,
                copy.bucket().id() + ".bucket",
                copy.bucket().id(),
                copy.offset(),
                copy.size(),
                copy.checksum(),
                lease);
    }

    int remove(String key, boolean force) {
        store.counters.removes.increment();
        int hash = ObjectTable.hash(client.identityHash(), key);
        ObjectShard shard = store.objects.shardOf(hash);
        int code;
        shard.lock();
        try {
            StoredObject object = find(shard, key, hash);
            code = readable(object);
            if (code == 0 && object != null) {
                if (object.isLeased(store.time.now()) && !force) {
                    code = StoreCode.OBJECT_HAS_LEASE.number();
                } else {
                    erase(object);
                }
            }
        } finally {
            shard.unlock();
        }
        if (code == 0 || code == StoreCode.OBJECT_NOT_FOUND.number()) {
            int confirmed = store.confirmRemovals();
            code = confirmed == 0 ? code : confirmed;
        }
        if (code != 0) {
            store.counters.removeFailures.increment();
        }
        return code;
    }

    /// @param which asked outside of all locks, since it is an expression of a user; what it throws
    ///   ends the removal before anything is removed
    /// @return how many, or a code
    long removeAll(Predicate<String> which, boolean force) {
        var chosen = new ArrayList<StoredObject>();
        store.objects.forEach(object -> {
            if (object.state == State.COMPLETE && object.identity.equals(client.identity())) {
                chosen.add(object);
            }
        });
        chosen.removeIf(object -> !which.test(object.key));
        long now = store.time.now();
        long removed = 0;
        for (StoredObject object : chosen) {
            ObjectShard shard = store.objects.shardOf(object.hash);
            shard.lock();
            try {
                if (object.state == State.COMPLETE && (force || !object.isLeased(now))) {
                    erase(object);
                    removed++;
                }
            } finally {
                shard.unlock();
            }
        }
        int confirmed = store.confirmRemovals();
        return confirmed == 0 ? removed : confirmed;
    }

    void dropDamaged(String key) {
        int hash = ObjectTable.hash(client.identityHash(), key);
        ObjectShard shard = store.objects.shardOf(hash);
        StoredObject object;
        shard.lock();
        try {
            object = find(shard, key, hash);
        } finally {
            shard.unlock();
        }
        if (object != null) {
            dropDamaged(object);
        }
    }

    /// Removes an object whose bytes are not those that were put.
    void dropDamaged(StoredObject object) {
        store.counters.checksumFailures.increment();
        ObjectShard shard = store.objects.shardOf(object.hash);
        shard.lock();
        try {
            if (object.state == State.COMPLETE) {
                erase(object);
            }
        } finally {
            shard.unlock();
        }
    }

    /// Under the lock of its shard.
    private void erase(StoredObject object) {
        store.offloads.removed(object);
        store.objects.erase(object);
        object.freeMemory();
    }
}
