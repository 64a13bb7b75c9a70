// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;

/// Objects that were written together: `<id>.bucket` with their keys and values, `<id>.meta` that
/// says where each is, and `<id>.gone` with those that were removed since.
///
/// Threading: any thread; its monitor holds no other lock.
public final class Bucket {
    private final long id;
    private @Nullable DiskObject[] objects = {};
    private long fileBytes;
    private final BitSet gone = new BitSet();
    private int goneRecords;
    private volatile long lastUse;

    Bucket(long id) {
        this.id = id;
    }

    /// Differs for every bucket that a folder ever had; later ones have larger ones.
    public long id() {
        return id;
    }

    /// Called once, before others see the bucket.
    synchronized void complete(List<DiskObject> all, long bytes) {
        objects = all.toArray(new DiskObject[0]);
        fileBytes = bytes;
    }

    /// Those that are not gone.
    public synchronized List<DiskObject> objects() {
        var left = new ArrayList<DiskObject>(objects.length);
        for (DiskObject object : objects) {
            if (object != null) {
                left.add(object);
            }
        }
        return left;
    }

    /// How many it was written with.
    synchronized int size() {
        return objects.length;
    }

    /// Of all its files.
    public long fileBytes() {
        return fileBytes;
    }

    /// Whether an object is of use.
    synchronized boolean holds(int index) {
        return !gone.get(index);
    }

    /// Notes that an object is of no use any more, and keeps nothing of it.
    synchronized void drop(int index) {
        gone.set(index);
        objects[index] = null;
    }

    /// Whether nothing in it is of use any more.
    public synchronized boolean isEmpty() {
        return gone.cardinality() == objects.length;
    }

    /// Makes room for so many records in the file of the removed objects.
    ///
    /// @return index of the first
    synchronized int addRecords(int count) {
        int first = goneRecords;
        goneRecords += count;
        return first;
    }

    /// They were not written: the next ones may have their room.
    synchronized void giveBackRecords(int first, int count) {
        if (goneRecords == first + count) {
            goneRecords = first;
        }
    }

    /// Orders buckets by their last use.
    long lastUse() {
        return lastUse;
    }

    void use(long stamp) {
        lastUse = stamp;
    }
}
