// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.embedded.StoredObject.State;
import io.kvferry.backend.mooncake.store.tier.Bucket;
import io.kvferry.backend.mooncake.store.tier.BucketSource;
import io.kvferry.backend.mooncake.store.tier.DiskObject;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.toolkit.disk.Errno;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/// Brings objects to the disk tier: when their put ends, or when they are evicted from memory, and
/// then their memory goes once they are on disk. Without a tier it does nothing.
///
/// An object that waits until a bucket is full is not pinned, so a slow disk keeps no memory. One
/// that is being evicted is, so puts wait for a slow disk; a disk that is full, broken or hangs
/// stops offloading for a while, and evictions free memory at once again.
///
/// Threading: any thread. The monitor is taken inside of shard locks and holds no other lock.
final class Offloads implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Offloads.class);

    /// Mooncake's limit of objects that wait.
    private static final int MOST_WAITING = 50_000;

    /// Part of the budget of all objects that those that wait may cost on the heap: they do so when
    /// they have been removed as well.
    private static final int PART_OF_HEAP = 8;

    /// Of a bucket's meta file, per object, beside its key.
    private static final long META_BYTES = 64;

    private static final long PAGES = 2 * 4096;

    /// How long a store that is closed goes on writing.
    private static final long CLOSE_NANOS = TimeUnit.SECONDS.toNanos(10);

    private final EmbeddedStore store;
    private final @Nullable DiskTier tier;
    private final ArrayDeque<StoredObject> evicting = new ArrayDeque<>();
    private final ArrayDeque<StoredObject> waiting = new ArrayDeque<>();
    private long waitingBytes;
    private long waitingSince;
    private long waitingHeap;
    private boolean stopped;

    /// Objects that were removed while a bucket was being written in which a restart may find them.
    private int removedSealed;

    private volatile long evictingBytes;
    private volatile boolean paused;
    private volatile long pausedUntil;
    private volatile boolean heapWanted;
    private @Nullable Thread thread;

    Offloads(EmbeddedStore store, @Nullable DiskTier tier) {
        this.store = store;
        this.tier = tier;
    }

    /// Starts the thread that writes; without it [#step] does.
    void start() {
        if (tier != null) {
            thread = Thread.ofPlatform().daemon().name("kvferry-store-offload").start(this::work);
        }
    }

    /// What the tier holds from earlier. Called before the store has users.
    void recover() {
        if (tier == null) {
            return;
        }
        long now = store.time.now();
        List<DiskObject> found = tier.recover(store::intern);
        for (DiskObject copy : found) {
            StoredObject object = store.puts.recovered(copy, now);
            ObjectShard shard = store.objects.shardOf(object.hash);
            shard.lock();
            try {
                store.objects.add(object);
            } finally {
                shard.unlock();
            }
        }
        if (!found.isEmpty()) {
            LOG.info("{}: {} objects found", tier.name(), found.size());
        }
    }

    /// A lookup found an object. Under the lock of its shard.
    void looked(StoredObject object) {
        if (tier != null && !object.hasMemory()) {
            tier.counters().hits.increment();
        }
    }

    /// A put has ended. Under the lock of the object's shard.
    void ended(StoredObject object) {
        if (tier == null || tier.config().onEvict()) {
            return;
        }
        synchronized (this) {
            if (stopped
                    || waiting.size() >= MOST_WAITING
                    || waitingHeap > store.config.heapBytes() / PART_OF_HEAP
                    || !fits(tier, object)) {
                tier.counters().offloadSkippedKeys.increment();
                return;
            }
            if (waiting.isEmpty()) {
                waitingSince = System.nanoTime();
            }
            waiting.add(object);
            waitingBytes += object.size;
            waitingHeap += object.heapBytes();
            if (waitingBytes >= tier.bucketBytes()) {
                notifyAll();
            }
        }
    }

    /// An eviction has chosen an object without a copy on disk. Under the lock of its shard.
    ///
    /// @return whether its memory goes when it is on disk; else it goes now, and the object with it
    boolean evict(StoredObject object) {
        if (tier == null || !fits(tier, object)) {
            return false;
        }
        synchronized (this) {
            if (stopped || isPaused()) {
                tier.counters().offloadSkippedKeys.increment();
                return false;
            }
            object.pins++;
            evicting.add(object);
            evictingBytes += object.size;
            notifyAll();
            return true;
        }
    }

    /// Whether the tier can hold an object at all; otherwise every other bucket would be deleted
    /// for nothing.
    private static boolean fits(DiskTier disk, StoredObject object) {
        return diskBytes(object) + PAGES <= disk.capacity();
    }

    private static long diskBytes(StoredObject object) {
        return object.size + object.key.length() * 6L + META_BYTES;
    }

    /// Bytes of memory that go as soon as their objects are on disk.
    long evictingBytes() {
        return evictingBytes;
    }

    private boolean isPaused() {
        return paused && store.time.now() < pausedUntil;
    }

    /// An object is about to be removed. Under the lock of its shard.
    void removed(StoredObject object) {
        if (tier != null && object.disk != null) {
            tier.removed(object.disk);
        } else if (object.sealed) {
            synchronized (this) {
                removedSealed++;
            }
        }
    }

    /// Waits until no restart finds again what was removed before this call. Outside of all locks.
    ///
    /// @return 0 or a code: then it is not certain, and whoever asked has to ask again
    int confirmRemovals() {
        DiskTier disk = tier;
        if (disk == null) {
            return 0;
        }
        int code = 0;
        if (!awaitSealed(disk.config().ioLimit().toNanos()) || disk.confirmRemovals() != 0) {
            code = StoreCode.FILE_WRITE_FAIL.number();
        }
        // A store that is closed forgets what its disk goes on to have.
        return store.isClosed() ? StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number() : code;
    }

    private synchronized boolean awaitSealed(long nanos) {
        long end = System.nanoTime() + nanos;
        try {
            for (long left = nanos; removedSealed > 0; left = end - System.nanoTime()) {
                if (left <= 0) {
                    return false;
                }
                TimeUnit.NANOSECONDS.timedWait(this, left);
            }
            return true;
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    /// The bucket that was being written is whole or has failed, and what was removed meanwhile is
    /// with the tier.
    private synchronized void writeEnded() {
        removedSealed = 0;
        notifyAll();
    }

    private void work() {
        while (!isStopped()) {
            try {
                if (!step(false)) {
                    rest();
                }
            } catch (InterruptedException _) {
                return;
            } catch (RuntimeException | Error e) {
                report(e);
            }
        }
        long end = System.nanoTime() + CLOSE_NANOS;
        try {
            while (System.nanoTime() - end < 0 && !paused && step(true)) {
                // what waits is written, so that the next life of the store finds it
            }
        } finally {
            letGo(drain());
        }
    }

    private static void report(Throwable failure) {
        try {
            LOG.error("offloading failed; it goes on", failure);
        } catch (RuntimeException | Error _) {
            // The next one that fails says so.
        }
    }

    private synchronized boolean isStopped() {
        return stopped;
    }

    private synchronized void rest() throws InterruptedException {
        if (!stopped && tier != null && (evicting.isEmpty() || isPaused())) {
            long pause = Math.max(1, tier.config().interval().toMillis() / 4);
            TimeUnit.MILLISECONDS.timedWait(this, pause);
        }
    }

    /// Writes one bucket, if there is enough for one, or something has waited long enough.
    ///
    /// @param flush whether not to wait for more
    /// @return whether there was something to write
    boolean step(boolean flush) {
        DiskTier disk = tier;
        if (disk == null) {
            return false;
        }
        for (Bucket bucket : disk.empty()) {
            if (isPaused()) { // a disk that hangs is not asked for one bucket after the other
                break;
            }
            delete(disk, bucket);
        }
        if (!isPaused() && !disk.settle()) {
            pause(disk, "the disk does not answer");
        }
        if (isPaused()) {
            letGo(drain());
            return false;
        }
        makeHeap(disk);
        var batch = new Batch();
        try {
            take(disk, batch, flush);
            if (batch.isEmpty()) {
                return false;
            }
            write(disk, batch);
            return true;
        } finally {
            letGo(batch.claimed.subList(batch.settled, batch.claimed.size()));
            writeEnded();
        }
    }

    private void delete(DiskTier disk, Bucket bucket) {
        if (!disk.delete(bucket)) {
            pause(disk, "the disk does not answer");
        }
    }

    /// Objects of one bucket.
    private static final class Batch {
        final List<StoredObject> claimed = new ArrayList<>();
        final List<Boolean> evicted = new ArrayList<>();
        long bytes;
        boolean any;

        /// How many of the first ones are no longer pinned for the write.
        int settled;

        boolean isEmpty() {
            return !any;
        }
    }

    private void take(DiskTier disk, Batch batch, boolean flush) {
        long most = disk.bucketBytes();
        int keys = disk.config().bucketKeys();
        while (batch.claimed.size() < keys) {
            StoredObject next;
            boolean evicted;
            synchronized (this) {
                evicted = !evicting.isEmpty();
                next = evicted ? evicting.peek() : waiting.peek();
                boolean due =
                        flush
                                || evicted
                                || batch.any
                                || waitingBytes >= most
                                || waiting.size() >= keys
                                || System.nanoTime() - waitingSince
                                        > disk.config().interval().toNanos();
                if (next == null || !due || (batch.bytes > 0 && batch.bytes + next.size > most)) {
                    return;
                }
                if (evicted) {
                    evicting.remove();
                } else {
                    waiting.remove();
                    waitingBytes -= next.size;
                    waitingHeap -= next.heapBytes();
                    waitingSince = System.nanoTime();
                }
            }
            batch.any = true;
            if (claim(next, evicted)) {
                batch.claimed.add(next);
                batch.evicted.add(evicted);
                batch.bytes += diskBytes(next);
            }
        }
    }

    /// Pins an object for the time of the write.
    private boolean claim(StoredObject object, boolean evicted) {
        ObjectShard shard = store.objects.shardOf(object.hash);
        shard.lock();
        try {
            boolean wanted =
                    object.state == State.COMPLETE
                            && object.hasMemory()
                            && object.disk == null
                            && !object.writing;
            if (wanted) {
                object.writing = true;
                object.pins += evicted ? 0 : 1;
            } else if (evicted) {
                object.unpin();
                dropEvicted(object);
            }
            if (evicted) {
                evictingDone(object);
            }
            return wanted;
        } finally {
            shard.unlock();
        }
    }

    private synchronized void evictingDone(StoredObject object) {
        evictingBytes -= object.size;
    }

    private void write(DiskTier disk, Batch batch) {
        if (batch.claimed.isEmpty()) {
            return;
        }
        long bytes = batch.bytes + PAGES;
        if (!makeRoom(disk, bytes)) {
            if (!isPaused()) {
                pause(disk, "it is full");
            }
            return;
        }
        var sources = new ArrayList<BucketSource>(batch.claimed.size());
        for (StoredObject object : batch.claimed) {
            sources.add(
                    new BucketSource(
                            object.identity,
                            object.key,
                            object.group == null ? null : object.group.name.group(),
                            object.hardPinned,
                            object.place().memory().asSlice(object.offset, object.size),
                            store.config.checksums(),
                            object.checksum));
        }
        var copies = new ArrayList<@Nullable DiskObject>(sources.size());
        int rc = disk.write(sources, i -> seal(batch.claimed.get(i)), copies);
        if (rc != 0) {
            if (Errno.isFull(-rc)) { // others use the disk as well
                evictOne(disk);
            }
            pause(disk, DiskTier.text(rc));
            return;
        }
        if (paused) {
            paused = false;
            LOG.info("{}: offloading goes on", disk.name());
        }
        attach(disk, batch, copies);
    }

    /// From here on a restart may find the object in the bucket that is being written.
    ///
    /// @return false when it was removed before that
    private boolean seal(StoredObject object) {
        ObjectShard shard = store.objects.shardOf(object.hash);
        shard.lock();
        try {
            object.sealed = object.state == State.COMPLETE;
            return object.sealed;
        } finally {
            shard.unlock();
        }
    }

    private void attach(DiskTier disk, Batch batch, List<@Nullable DiskObject> copies) {
        for (int i = 0; i < copies.size(); i++) {
            StoredObject object = batch.claimed.get(i);
            DiskObject copy = copies.get(i);
            ObjectShard shard = store.objects.shardOf(object.hash);
            shard.lock();
            try {
                batch.settled = i + 1;
                object.writing = false;
                object.sealed = false;
                try {
                    if (object.state != State.COMPLETE) {
                        if (copy != null) {
                            disk.removed(copy);
                        }
                    } else if (copy == null) {
                        dropDamaged(object);
                    } else {
                        object.disk = copy;
                        disk.counters().offloadedKeys.increment();
                        disk.counters().offloadedBytes.add(object.size);
                    }
                } finally {
                    object.unpin();
                }
                if (batch.evicted.get(i)) {
                    dropEvicted(object);
                }
            } finally {
                shard.unlock();
            }
        }
    }

    private void dropDamaged(StoredObject object) {
        store.counters.checksumFailures.increment();
        LOG.warn("other bytes than were put under {}; the object is dropped", object.key);
        store.objects.erase(object);
        object.freeMemory();
    }

    /// What was chosen for eviction and is on disk now, unless it was used meanwhile.
    private void dropEvicted(StoredObject object) {
        if (object.disk != null && object.isEvictable() && !object.isLeased(store.time.now())) {
            object.dropMemory();
            store.counters.evictedKeys.increment();
            store.counters.evictedBytes.add(object.size);
        }
    }

    /// Those of a batch that did not get to disk.
    private void letGo(List<StoredObject> claimed) {
        for (StoredObject object : claimed) {
            ObjectShard shard = store.objects.shardOf(object.hash);
            shard.lock();
            try {
                object.writing = false;
                object.sealed = false;
                object.unpin();
            } finally {
                shard.unlock();
            }
        }
        claimed.clear();
    }

    /// Takes out what waits for the end of its eviction.
    private synchronized List<StoredObject> drain() {
        var all = new ArrayList<>(evicting);
        evicting.clear();
        all.forEach(object -> evictingBytes -= object.size);
        return all;
    }

    private void pause(DiskTier disk, String why) {
        if (!paused) {
            LOG.warn(
                    "{}: objects are not written to disk for now: {}; tried again every {} s",
                    disk.name(),
                    why,
                    disk.config().retryAfter().toMillis() / 1e3);
        }
        disk.paused();
        pausedUntil = store.time.now() + StoreTime.nanos(disk.config().retryAfter());
        paused = true;
    }

    private boolean makeRoom(DiskTier disk, long bytes) {
        if (disk.isCrowded(bytes)) {
            for (Bucket victim : disk.victims()) {
                if (isPaused() || !disk.isAboveLow(bytes)) {
                    break;
                }
                evict(disk, victim, false);
            }
        }
        return !isPaused() && !disk.isFull(bytes);
    }

    /// A put found that the objects cost too much of the heap.
    void wantHeap() {
        heapWanted = tier != null;
    }

    /// Deletes buckets, and their objects with them, as long as the objects cost too much of the
    /// heap.
    private void makeHeap(DiskTier disk) {
        boolean wanted = heapWanted;
        heapWanted = false;
        if (!wanted && store.heapShare() <= store.config.highWatermark()) {
            return;
        }
        for (Bucket victim : disk.victims()) {
            if (isPaused() || (!wanted && store.heapShare() <= store.config.highWatermark())) {
                return;
            }
            wanted &= !evict(disk, victim, true);
        }
    }

    private void evictOne(DiskTier disk) {
        for (Bucket victim : disk.victims()) {
            if (evict(disk, victim, false)) {
                return;
            }
        }
    }

    /// Deletes a bucket, unless it has the only copy of an object that is leased, being read or
    /// hard-pinned.
    ///
    /// @param whole whether objects go that have memory as well
    private boolean evict(DiskTier disk, Bucket victim, boolean whole) {
        for (DiskObject copy : victim.objects()) {
            if (!visit(copy, false, whole)) {
                return false;
            }
        }
        disk.withdraw(victim);
        for (DiskObject copy : victim.objects()) {
            visit(copy, true, whole);
        }
        delete(disk, victim);
        return true;
    }

    /// @param drop whether the object gives its copy up; else it is only looked at
    /// @return whether the copy can be spared
    private boolean visit(DiskObject copy, boolean drop, boolean whole) {
        int hash = ObjectTable.hash(copy.identity().hashCode(), copy.key());
        ObjectShard shard = store.objects.shardOf(hash);
        shard.lock();
        try {
            StoredObject object = shard.find(copy.identity(), copy.key(), hash);
            if (object == null || object.disk != copy) {
                return true;
            }
            if (!drop) {
                return object.hasMemory()
                        || (object.pins == 0
                                && !object.hardPinned
                                && !object.isLeased(store.time.now()));
            }
            giveUp(object);
            if (whole && object.isEvictable() && !object.isLeased(store.time.now())) {
                store.objects.erase(object);
                object.freeMemory();
            }
            return true;
        } finally {
            shard.unlock();
        }
    }

    /// The copy of an object is no longer there. Under the lock of its shard.
    private void giveUp(StoredObject object) {
        object.disk = null;
        if (!object.hasMemory() && object.state == State.COMPLETE) {
            store.objects.erase(object);
        }
    }

    /// A copy turned out to be lost or damaged.
    void lost(StoredObject object, DiskObject copy) {
        ObjectShard shard = store.objects.shardOf(object.hash);
        shard.lock();
        try {
            if (object.disk == copy && tier != null) {
                tier.removed(copy);
                giveUp(object);
            }
        } finally {
            shard.unlock();
        }
    }

    @Nullable DiskTier tier() {
        return tier;
    }

    /// Now, by the names of Mooncake's metrics; empty without a tier.
    Map<String, Long> gauges() {
        var gauges = new TreeMap<String, Long>();
        if (tier != null) {
            gauges.put("master_allocated_file_size_bytes", tier.usedBytes());
            gauges.put("master_total_file_capacity_bytes", tier.capacity());
            gauges.put("kvferry_disk_buckets", (long) tier.bucketCount());
            gauges.put("kvferry_disk_staging_bytes", tier.stagingInUse());
            gauges.put("kvferry_disk_offload_paused", paused ? 1L : 0L);
            synchronized (this) {
                gauges.put("kvferry_disk_offload_waiting_keys", (long) waiting.size());
                gauges.put("kvferry_disk_offload_waiting_bytes", waitingBytes);
                gauges.put("kvferry_disk_offload_evicting_bytes", evictingBytes);
            }
        }
        return gauges;
    }

    /// Writes what waits, for a while, and ends; the tier stays open.
    @Override
    public void close() {
        synchronized (this) {
            stopped = true;
            notifyAll();
        }
        Thread last = thread;
        if (last == null) {
            letGo(drain());
            return;
        }
        try {
            last.join(TimeUnit.NANOSECONDS.toMillis(2 * CLOSE_NANOS));
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
    }
}
