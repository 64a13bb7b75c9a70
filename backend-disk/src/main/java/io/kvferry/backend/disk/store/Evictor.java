// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

/// Deletes least recently used blocks, on behalf of one thread.
///
/// The catalog forgets a block before its file is deleted: a reader that opened the file keeps
/// reading it, one that comes later misses.
final class Evictor {
    private final StoreContext store;
    private final StoreFolder.Names names;
    private final long[] victim = new long[4];

    Evictor(StoreContext store, StoreFolder.Names names) {
        this.store = store;
        this.names = names;
    }

    /// Deletes one block; false when every block is pinned.
    boolean evictOne() {
        return store.catalog().evictOldest(victim) && unlinkVictim();
    }

    /// Deletes one block if more than the low watermark is taken; false when there is nothing to
    /// do.
    boolean evictAboveLowWatermark() {
        return store.catalog().evictAboveLowWatermark(victim) && unlinkVictim();
    }

    private boolean unlinkVictim() {
        int rc = store.calls().unlink(names.file(victim[0], victim[1], victim[2], victim[3]));
        store.catalog().evicted();
        // Another process may have been faster; any other failure leaves a file that the next scan
        // counts again.
        if (rc == 0 || rc == -Errno.ENOENT) {
            store.counters().evicted.increment();
        }
        if (!store.listener().equals(StoreListener.NONE)) {
            store.listener().removed(new BlockDigest(victim[0], victim[1], victim[2], victim[3]));
        }
        return true;
    }
}
