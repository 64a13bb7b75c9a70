// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
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
    private volatile RemovalLog[] followers = {};
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
        ObjectGroup known = groups.get(name);
        if (known != null) {
            return known;
        }
        var made = new ObjectGroup(name);
        boolean done = false;
        try {
            known = groups.putIfAbsent(name, made);
            done = true;
        } finally {
            countGroup(made);
            if (!done) { // it was inserted, and then the table could not grow
                dropEmpty(made);
            }
        }
        return known == null ? made : known;
    }

    /// Counts a group on the heap if it is in the table, and no longer if it is not.
    private void countGroup(ObjectGroup group) {
        boolean known = groups.get(group.name) == group;
        if (group.count(known)) {
            long bytes = ObjectGroup.heapBytes(group.name.group());
            heap.addAndGet(known ? bytes : -bytes);
        }
    }

    /// Forgets a group unless it has members.
    public void dropEmpty(ObjectGroup group) {
        if (group.closeIfEmpty()) {
            dropGroup(group);
        }
    }

    /// Forgets a group that has no member any more.
    private void dropGroup(ObjectGroup group) {
        try {
            groups.remove(group.name, group);
        } finally {
            countGroup(group);
        }
    }

    /// Takes an object that is in no table out of its group.
    public void leaveGroup(StoredObject object) {
        ObjectGroup group = object.group;
        if (group != null && group.remove(object)) {
            try {
                dropGroup(group);
            } catch (OutOfMemoryError _) {
                // The group is closed. The next put that finds it drops it.
            }
        }
    }

    /// Adds an object whose key is not there to its shard, whose lock the caller holds.
    public void add(StoredObject object) {
        shardOf(object.hash).add(object); // where there is no memory for it, nothing has changed
        heap.addAndGet(object.heapBytes());
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
    /// memory is the caller's to free. Does not fail where the heap is full.
    public void erase(StoredObject object) {
        if (!shardOf(object.hash).remove(object)) {
            throw new IllegalStateException("object is not in the table: " + object.key);
        }
        heap.addAndGet(-object.heapBytes());
        if (object.state == StoredObject.State.COMPLETE) {
            for (RemovalLog log : followers) {
                log.removed(object);
            }
        }
        object.state = StoredObject.State.REMOVED;
        leaveGroup(object);
    }

    /// Registers `log` for removals from now on.
    public synchronized void follow(RemovalLog log) {
        RemovalLog[] more = Arrays.copyOf(followers, followers.length + 1);
        more[followers.length] = log;
        followers = more;
    }

    public synchronized void unfollow(RemovalLog log) {
        followers =
                Arrays.stream(followers).filter(other -> other != log).toArray(RemovalLog[]::new);
    }
}
