// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import java.util.BitSet;
import java.util.List;

/// Objects that were written together: `<id>.bucket` with their keys and values, `<id>.meta` that
/// says where each is, and `<id>.gone` with those that were removed since.
///
/// Threading: any thread; its monitor holds no other lock.
public final class Bucket {
    private final long id;
    private List<DiskObject> objects = List.of();
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
    void complete(List<DiskObject> all, long bytes) {
        objects = List.copyOf(all);
        fileBytes = bytes;
    }

    /// All that it was written with.
    public List<DiskObject> objects() {
        return objects;
    }

    /// Of all its files.
    public long fileBytes() {
        return fileBytes;
    }

    /// Notes that an object is of no use any more.
    ///
    /// @return false when that was known
    synchronized boolean drop(int index) {
        if (gone.get(index)) {
            return false;
        }
        gone.set(index);
        return true;
    }

    synchronized boolean isGone(int index) {
        return gone.get(index);
    }

    /// Whether nothing in it is of use any more.
    public synchronized boolean isEmpty() {
        return gone.cardinality() == objects.size();
    }

    /// Makes room for so many records in the file of the removed objects.
    ///
    /// @return index of the first
    synchronized int addRecords(int count) {
        int first = goneRecords;
        goneRecords += count;
        return first;
    }

    /// Orders buckets by their last use.
    long lastUse() {
        return lastUse;
    }

    void use(long stamp) {
        lastUse = stamp;
    }
}
