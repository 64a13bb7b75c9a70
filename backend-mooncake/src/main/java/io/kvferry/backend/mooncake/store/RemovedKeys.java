// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store;

import io.kvferry.backend.mooncake.store.Store.Removals;

import java.util.ArrayList;

/// Keys of removed objects, kept until they are taken. Bounded in number and in bytes, so that they
/// fit into one message. If a bound is exceeded or the heap is full, the user is told instead that
/// any object may be gone.
///
/// Threading: any thread; its monitor holds no other lock.
public final class RemovedKeys {
    /// Keys that are kept at most.
    public static final int MOST = 1 << 16;

    private static final long MOST_BYTES = 12L << 20;
    private static final int KEY_OVERHEAD = 4;
    private static final int LONGEST_CHARACTER = 3;

    private ArrayList<String> keys = new ArrayList<>();
    private long bytes;
    private boolean all;

    /// An object went.
    public synchronized void add(String key) {
        long more = KEY_OVERHEAD + (long) LONGEST_CHARACTER * key.length();
        if (all || keys.size() == MOST || bytes + more > MOST_BYTES) {
            addAll();
        } else {
            add(key, more);
        }
    }

    private void add(String key, long more) {
        try {
            keys.add(key);
            bytes += more;
        } catch (OutOfMemoryError _) {
            addAll();
        }
    }

    /// Any object may be gone.
    public synchronized void addAll() { // takes no memory of the heap
        all = true;
        keys.clear();
        keys.trimToSize();
        bytes = 0;
    }

    /// What went since the last call.
    public synchronized Removals drain() {
        if (keys.isEmpty() && !all) {
            return Removals.NONE;
        }
        var drained = new Removals(all, keys);
        var next = new ArrayList<String>();
        keys = next;
        bytes = 0;
        all = false;
        return drained;
    }
}
