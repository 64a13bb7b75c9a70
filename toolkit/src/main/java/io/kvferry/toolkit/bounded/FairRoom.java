// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import io.kvferry.spi.Deadline;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/// A budget of slots and bytes shared by peers. A peer that already holds some gets more only while
/// it holds no more of either than is free: a single peer gets at most half of the budget, two
/// peers at most a third each, and so on, so that some is left for the next peer.
///
/// Threading: any thread; [#take] never blocks.
public final class FairRoom {
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition given = lock.newCondition();
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
    public FairRoom(int places, long bytes) {
        this.freePlaces = places;
        this.freeBytes = bytes;
    }

    /// Room for bytes alone, at most `most` and at most the given part of the heap.
    public static FairRoom ofHeap(long most, int part) {
        return new FairRoom(
                Integer.MAX_VALUE, Math.min(most, Runtime.getRuntime().maxMemory() / part));
    }

    /// Reserves a slot and some bytes.
    ///
    /// @return whether they fit; if so, the caller must [#give] them back, even if zero
    public boolean take(String peer, long bytes) {
        return take(peer, 1, bytes);
    }

    /// As [#take(String, long)], for several places or none.
    public boolean take(String peer, int places, long bytes) {
        lock.lock();
        try {
            var share = shares.get(peer);
            boolean fits = places <= freePlaces && bytes <= freeBytes;
            boolean fair =
                    share == null
                            || share.places + places <= freePlaces - places
                                    && share.bytes + bytes <= freeBytes - bytes;
            if (!fits || !fair) {
                return false;
            }
            if (places == 0 && bytes == 0) {
                return true; // a peer that holds nothing has no share, and need not give it back
            }
            if (share == null) {
                share = new Share();
                shares.put(peer, share);
            }
            change(share, places, bytes);
            return true;
        } finally {
            lock.unlock();
        }
    }

    /// As [#take(String, int, long)], but waits until there is room.
    ///
    /// @return false when there was none in time, or the thread was interrupted
    public boolean await(String peer, int places, long bytes, Deadline deadline) {
        lock.lock();
        try {
            while (!take(peer, places, bytes)) {
                if (deadline.passed()) {
                    return false;
                }
                var _ = given.awaitNanos(deadline.remainingNanos());
            }
            return true;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        } finally {
            lock.unlock();
        }
    }

    /// @param bytes as in [#take]
    public void give(String peer, long bytes) {
        give(peer, 1, bytes);
    }

    /// @param places of those that were taken
    /// @param bytes of those that were taken
    public void give(String peer, int places, long bytes) {
        if (places == 0 && bytes == 0) {
            return;
        }
        lock.lock();
        try {
            var share = shares.get(peer);
            if (share == null) {
                throw new IllegalStateException(peer + " holds nothing");
            }
            change(share, -places, -bytes);
            if (share.places == 0 && share.bytes == 0) {
                shares.remove(peer);
            }
            given.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /// Those that hold something.
    int peers() {
        lock.lock();
        try {
            return shares.size();
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
