// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded.offload;

import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.embedded.objects.StoredObject;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.toolkit.bounded.GrowSafeQueue;

import org.jspecify.annotations.Nullable;

import java.util.Map;
import java.util.concurrent.TimeUnit;

/// Objects that wait to be written to disk. Objects whose put has ended wait until they fill a
/// bucket or have waited long enough. Objects that are being evicted come first.
///
/// The queue does not pin an object whose put has ended, so a slow disk holds no memory back. It
/// pins objects that are being evicted.
///
/// Threading: any thread. The monitor is taken inside of shard locks; no lock is taken under it.
final class OffloadQueue {
    /// Mooncake's limit of objects that wait.
    private static final int MOST_WAITING = 50_000;

    /// Part of the budget of all objects that those that wait may cost on the heap: they do so when
    /// they have been removed as well.
    private static final int PART_OF_HEAP = 8;

    private final DiskTier disk;
    private final OffloadPause pause;
    private final long mostHeap;
    private final GrowSafeQueue<StoredObject> evicting = new GrowSafeQueue<>();
    private final GrowSafeQueue<StoredObject> waiting = new GrowSafeQueue<>();
    private long waitingBytes;
    private long waitingSince;
    private long waitingHeap;
    private boolean stopped;
    private volatile long evictingBytes;

    /// An object that was taken out to be written.
    ///
    /// @param evicted whether it is pinned, and its memory goes when it is on disk
    record Taken(StoredObject object, boolean evicted) {}

    OffloadQueue(DiskTier disk, OffloadPause pause, StoreConfig config) {
        this.disk = disk;
        this.pause = pause;
        this.mostHeap = config.heapBytes() / PART_OF_HEAP;
    }

    /// Adds an object whose put has ended, where there is room. Under the lock of its shard.
    synchronized void add(StoredObject object) {
        if (stopped
                || waiting.size() >= MOST_WAITING
                || waitingHeap > mostHeap
                || !OffloadBatch.fits(disk, object)) {
            disk.counters().offloadSkippedKeys.increment();
            return;
        }
        if (waiting.isEmpty()) {
            waitingSince = System.nanoTime();
        }
        waiting.add(object);
        waitingBytes += object.size;
        waitingHeap += object.heapBytes();
        if (waitingBytes >= disk.bucketBytes()) {
            notifyAll();
        }
    }

    /// Adds an object that is being evicted, and pins it. Under the lock of its shard.
    ///
    /// @return false when it is not to be written
    boolean addEvicted(StoredObject object) {
        if (!OffloadBatch.fits(disk, object)) {
            return false;
        }
        synchronized (this) {
            if (stopped || pause.isOn()) {
                disk.counters().offloadSkippedKeys.increment();
                return false;
            }
            evicting.add(object); // first: memory of the heap may be short
            object.pins++;
            evictingBytes += object.size;
            notifyAll();
            return true;
        }
    }

    /// Bytes of memory that go as soon as their objects are on disk.
    long evictingBytes() {
        return evictingBytes;
    }

    /// An object that is being evicted is pinned for its write now, or is not to be written: its
    /// bytes count as being evicted no longer.
    synchronized void uncountEvicting(StoredObject object) {
        evictingBytes -= object.size;
    }

    /// Takes the next object of a bucket.
    ///
    /// @param bytes what the bucket has so far
    /// @param due whether not to wait for more, as if a bucket were full
    /// @return null when there is none, or it is to wait, or the bucket has no room for it
    synchronized @Nullable Taken take(long bytes, boolean due) {
        boolean evicted = !evicting.isEmpty();
        StoredObject next = evicted ? evicting.peek() : waiting.peek();
        long most = disk.bucketBytes();
        if (next == null
                || !(due || evicted || isWaitOver(most))
                || (bytes > 0 && bytes + next.size > most)) {
            return null;
        }
        var taken = new Taken(next, evicted); // before the queue changes: memory may be short
        if (evicted) {
            evicting.remove();
        } else {
            waiting.remove();
            waitingBytes -= next.size;
            waitingHeap -= next.heapBytes();
            waitingSince = System.nanoTime();
        }
        return taken;
    }

    /// Under the monitor.
    private boolean isWaitOver(long most) {
        return waitingBytes >= most
                || waiting.size() >= disk.config().bucketKeys()
                || System.nanoTime() - waitingSince > disk.config().interval().toNanos();
    }

    /// Removes the next object that is being evicted; it stays pinned. Allocates nothing.
    synchronized @Nullable StoredObject pollEvicted() {
        StoredObject next = evicting.poll();
        evictingBytes -= next == null ? 0 : next.size;
        return next;
    }

    /// Waits a while for something to write.
    synchronized void await() throws InterruptedException {
        if (!stopped && (evicting.isEmpty() || pause.isOn())) {
            long millis = Math.max(1, disk.config().interval().toMillis() / 4);
            TimeUnit.MILLISECONDS.timedWait(this, millis);
        }
    }

    /// From now on nothing is added.
    synchronized void stop() {
        stopped = true;
        notifyAll();
    }

    synchronized boolean isStopped() {
        return stopped;
    }

    synchronized void addGauges(Map<String, Long> gauges) {
        gauges.put("kvferry_disk_offload_waiting_keys", (long) waiting.size());
        gauges.put("kvferry_disk_offload_waiting_bytes", waitingBytes);
        gauges.put("kvferry_disk_offload_evicting_bytes", evictingBytes);
    }
}
