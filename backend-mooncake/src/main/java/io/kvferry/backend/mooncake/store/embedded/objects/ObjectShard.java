// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.objects;

import io.kvferry.backend.mooncake.store.StoreIdentity;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/// A part of the object table, with its lock. A chained hash table over the objects themselves: a
/// lookup makes no key object.
///
/// Threading: every method but [#lock] and [#unlock] by who holds the lock.
public final class ObjectShard {
    private static final int FIRST_BUCKETS = 16;
    private static final int MOST_BUCKETS = 1 << 30;

    private final ReentrantLock lock = new ReentrantLock();
    private @Nullable StoredObject[] buckets = new StoredObject[FIRST_BUCKETS];
    private int size;

    public void lock() {
        lock.lock();
    }

    public void unlock() {
        lock.unlock();
    }

    @SuppressWarnings("ReferenceEquality")
    public @Nullable StoredObject find(StoreIdentity identity, String key, int hash) {
        for (StoredObject at = buckets[hash & (buckets.length - 1)]; at != null; at = at.next) {
            if (at.hash == hash
                    && at.identity == identity // one object per identity and store
                    && at.key.equals(key)) {
                return at;
            }
        }
        return null;
    }

    /// Adds an object whose key is not there.
    void add(StoredObject object) {
        if (size >= buckets.length && buckets.length < MOST_BUCKETS) {
            grow();
        }
        link(buckets, object);
        size++;
    }

    /// Takes an object out.
    ///
    /// @return false when it is not there
    boolean remove(StoredObject object) {
        int slot = object.hash & (buckets.length - 1);
        StoredObject before = null;
        for (StoredObject at = buckets[slot]; at != null; before = at, at = at.next) {
            if (at == object) {
                if (before == null) {
                    buckets[slot] = at.next;
                } else {
                    before.next = at.next;
                }
                at.next = null;
                size--;
                return true;
            }
        }
        return false;
    }

    int size() {
        return size;
    }

    /// All objects; `visitor` may remove the one that it gets.
    public void forEach(Consumer<StoredObject> visitor) {
        for (int slot = 0; slot < buckets.length; slot++) {
            for (StoredObject at = buckets[slot]; at != null; ) {
                StoredObject following = at.next;
                visitor.accept(at);
                at = following;
            }
        }
    }

    private void grow() {
        var wider = new StoredObject[buckets.length * 2];
        forEach(object -> link(wider, object));
        buckets = wider;
    }

    private static void link(@Nullable StoredObject[] into, StoredObject object) {
        int slot = object.hash & (into.length - 1);
        object.next = into[slot];
        into[slot] = object;
    }
}
