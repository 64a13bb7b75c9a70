// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/// Places and bytes in a queue that peers share. A peer that holds some already gets more only
/// while it has no more of either than is free: one peer alone takes half of the room at most, two
/// take a third each, and so on, so that there is room for whoever comes next.
///
/// Threading: any thread; never blocks.
final class FairRoom {
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<String, Share> shares = new HashMap<>();
    private int freePlaces;
    private long freeBytes;

    /// What one peer holds.
    private static final class Share {
        private int places;
        private long bytes;
    }

    /// @param places in all
    /// @param bytes in all
    FairRoom(int places, long bytes) {
        this.freePlaces = places;
        this.freeBytes = bytes;
    }

    /// Takes a place and some bytes.
    ///
    /// @return whether there was room; then [#give] is due
    boolean take(String peer, long bytes) {
        lock.lock();
        try {
            var share = shares.get(peer);
            boolean fits = freePlaces > 0 && bytes <= freeBytes;
            boolean fair =
                    share == null
                            || share.places < freePlaces
                                    && share.bytes + bytes <= freeBytes - bytes;
            if (!fits || !fair) {
                return false;
            }
            if (share == null) {
                share = new Share();
                shares.put(peer, share);
            }
            change(share, 1, bytes);
            return true;
        } finally {
            lock.unlock();
        }
    }

    /// @param bytes as in [#take]
    void give(String peer, long bytes) {
        lock.lock();
        try {
            var share = shares.get(peer);
            if (share == null) {
                throw new IllegalStateException(peer + " holds nothing");
            }
            change(share, -1, -bytes);
            if (share.places == 0) {
                shares.remove(peer);
            }
        } finally {
            lock.unlock();
        }
    }

    private void change(Share share, int places, long bytes) {
        share.places += places;
        share.bytes += bytes;
        freePlaces -= places;
        freeBytes -= bytes;
    }
}
