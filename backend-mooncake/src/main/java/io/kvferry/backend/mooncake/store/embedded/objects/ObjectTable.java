// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/// All objects of a store, in shards by the hash of their keys.
///
/// Threading: any thread; see [ObjectShard].
public final class ObjectTable {
    private static final int SHARD_BITS = 8;

    private final ObjectShard[] shards = new ObjectShard[1 << SHARD_BITS];
    private final ConcurrentHashMap<ObjectGroup.Name, ObjectGroup> groups =
            new ConcurrentHashMap<>();
    private final CopyOnWriteArrayList<RemovalLog> followers = new CopyOnWriteArrayList<>();
    private final AtomicLong heap = new AtomicLong();

    public ObjectTable() {
        for (int i = 0; i < shards.length; i++) {
            shards[i] = new ObjectShard();
        }
    }

    /// @param identityHash hash of the identity, which its user computes once
    public static int hash(int identityHash, String key) {
        int mixed = (identityHash * 31 + key.hashCode()) * 0x9e37_79b9;
        return mixed ^ (mixed >>> 15);
    }

    public static int shardIndex(int hash) {
        return hash >>> (Integer.SIZE - SHARD_BITS);
    }

    public ObjectShard shardOf(int hash) {
        return shards[shardIndex(hash)];
    }

    public ObjectShard shard(int index) {
        return shards[index];
    }

    /// All objects, one shard locked at a time, from a random one on.
    public void forEach(Consumer<StoredObject> visitor) {
        int start = ThreadLocalRandom.current().nextInt(shards.length);
        for (int i = 0; i < shards.length; i++) {
            ObjectShard shard = shards[(start + i) % shards.length];
            shard.lock();
            try {
                shard.forEach(visitor);
            } finally {
                shard.unlock();
            }
        }
    }

    public long size() {
        long sum = 0;
        for (ObjectShard shard : shards) {
            shard.lock();
            try {
                sum += shard.size();
            } finally {
                shard.unlock();
            }
        }
        return sum;
    }

    public ObjectGroup group(ObjectGroup.Name name) {
        return groups.computeIfAbsent(
                name,
                made -> {
                    heap.addAndGet(ObjectGroup.heapBytes(made.group()));
                    return new ObjectGroup(made);
                });
    }

    /// Adds an object whose key is not there to its shard, whose lock the caller holds.
    public void add(StoredObject object) {
        heap.addAndGet(object.heapBytes());
        shardOf(object.hash).add(object);
    }

    /// What all objects and groups cost on the heap.
    public long heapBytes() {
        return heap.get();
    }

    /// An object that is in no table any more is kept, or is so no longer.
    public void keep(StoredObject object, boolean kept) {
        heap.addAndGet(kept ? object.heapBytes() : -object.heapBytes());
    }

    /// Takes an object out of its shard, whose lock the caller holds, and out of its group. Its
    /// memory is the caller's to free.
    public void erase(StoredObject object) {
        if (!shardOf(object.hash).remove(object)) {
            throw new IllegalStateException("object is not in the table: " + object.key);
        }
        heap.addAndGet(-object.heapBytes());
        if (object.state == StoredObject.State.COMPLETE) {
            followers.forEach(log -> log.removed(object));
        }
        object.state = StoredObject.State.REMOVED;
        ObjectGroup group = object.group;
        if (group != null && group.remove(object)) {
            dropGroup(group);
        }
    }

    /// From now on `log` hears what goes.
    public void follow(RemovalLog log) {
        followers.add(log);
    }

    public void unfollow(RemovalLog log) {
        followers.remove(log);
    }

    /// Forgets a group that has no member any more.
    public void dropGroup(ObjectGroup group) {
        if (groups.remove(group.name, group)) {
            heap.addAndGet(-ObjectGroup.heapBytes(group.name.group()));
        }
    }
}
