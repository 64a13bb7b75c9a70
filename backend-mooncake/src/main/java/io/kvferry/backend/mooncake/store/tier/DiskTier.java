// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.files.FileTrouble;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.IntPredicate;
import java.util.function.UnaryOperator;

/// Buckets of objects on disk.
///
/// Threading: reads and removals from any thread; writing and deleting from one at a time.
public final class DiskTier implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(DiskTier.class);
    private static final double PART_OF_DISK = 0.9;
    private static final int LEAST_BUCKETS = 10;

    private final TierConfig config;
    private final BucketFolder folder;
    private final ThreadFactory writers;
    private final StagedReads reads;
    private final Leftovers leftovers;
    private final long capacity;
    private final TierCounters counters = new TierCounters();
    private final BucketTable buckets;

    /// Held while writing; the writer is closed under it.
    private final ReentrantLock writing = new ReentrantLock();

    private @Nullable BucketWriter writer;
    private @Nullable BucketWriter hanging;
    private final AtomicBoolean closed = new AtomicBoolean();

    /// The open tier, and each write that is under way. The last one to end closes the folder,
    /// whose lock keeps other stores out until then.
    private final AtomicInteger folderUsers = new AtomicInteger(1);

    private DiskTier(
            TierConfig config,
            BucketFolder folder,
            SegmentMemory stagingMemory,
            long capacity,
            ThreadFactory writers) {
        this.config = config;
        this.writers = writers;
        this.folder = folder;
        this.capacity = capacity;
        this.buckets = new BucketTable(config, capacity);
        var disk = new DiskReads(folder, config.ioLimit(), config.readThreads(), buckets.uses());
        this.leftovers = new Leftovers(folder, disk, config);
        this.reads = new StagedReads(config, folder.path(), disk, stagingMemory, counters);
    }

    /// Opens the folder; nothing is read yet.
    ///
    /// @param stagingMemory where the memory comes from that objects are read through
    /// @throws KvFerryException as of the folder: [io.kvferry.spi.ErrorCode#BAD_CONFIG],
    ///   [io.kvferry.spi.ErrorCode#STORAGE_IO]
    public static DiskTier open(TierConfig config, SegmentMemory stagingMemory, FileCalls calls) {
        return open(
                config,
                stagingMemory,
                calls,
                Thread.ofPlatform().daemon().name("kvferry-store-disk-write-", 0).factory());
    }

    static DiskTier open(
            TierConfig config,
            SegmentMemory stagingMemory,
            FileCalls calls,
            ThreadFactory writers) {
        BucketFolder folder = BucketFolder.open(calls, config);
        boolean done = false;
        try {
            long capacity = config.totalBytes();
            if (capacity == 0) {
                capacity =
                        (long) (PART_OF_DISK * Files.getFileStore(folder.path()).getTotalSpace());
            }
            var tier = new DiskTier(config, folder, stagingMemory, capacity, writers);
            LOG.info(
                    "disk tier of {} bytes in {}, {} I/O",
                    capacity,
                    folder.path(),
                    folder.direct() ? "direct" : "buffered");
            done = true;
            return tier;
        } catch (IOException e) {
            throw FileTrouble.exception("cannot ask for the size of " + folder.path(), e);
        } finally {
            if (!done) {
                folder.close();
            }
        }
    }

    public TierConfig config() {
        return config;
    }

    public TierCounters counters() {
        return counters;
    }

    /// What the folder holds from earlier. Of several copies of an object the one that was written
    /// last counts. Called once, before anything else.
    ///
    /// @param intern the one object that the store has for an identity
    public List<DiskObject> recover(UnaryOperator<StoreIdentity> intern) {
        record Name(StoreIdentity identity, String key) {}
        var found = new LinkedHashMap<Name, DiskObject>();
        var left = new ArrayList<Long>();
        List<Bucket> whole = folder.scan(intern, left);
        leftovers.addUnread(left);
        left.forEach(buckets::know);
        for (Bucket bucket : whole) {
            buckets.add(bucket);
            for (DiskObject object : bucket.objects()) {
                DiskObject older = found.put(new Name(object.identity(), object.key()), object);
                if (older != null) {
                    removed(older);
                }
            }
        }
        leftovers.settleInTime(); // what cannot be noted now is noted before the next removal ends
        return List.copyOf(found.values());
    }

    /// Bytes of one bucket at most.
    public long bucketBytes() {
        return Math.max(4096, Math.min(config.bucketBytes(), capacity / LEAST_BUCKETS));
    }

    /// Writes objects as a bucket.
    ///
    /// @param wanted asked once per source, just before a restart may find the bucket: whether the
    ///   object is to be in it. A removal after that must wait for the end of the write
    /// @param objects receives the copy of each source; null if it is not wanted or its checksum
    ///   does not match
    /// @return 0 or a negated [Errno], ENOMEM when no thread can be created; then nothing was
    ///   written
    public int write(
            List<BucketSource> sources, IntPredicate wanted, List<@Nullable DiskObject> objects) {
        if (folderUsers.getAndUpdate(users -> users == 0 ? 0 : users + 1) == 0) {
            return -Errno.ECANCELED;
        }
        try {
            writing.lock();
            try {
                return closed.get() ? -Errno.ECANCELED : writeNow(sources, wanted, objects);
            } finally {
                writing.unlock();
                if (closed.get()) {
                    closeWriter(); // who closed the tier may have found it in use
                }
            }
        } finally {
            leaveFolder();
        }
    }

    private void leaveFolder() {
        if (folderUsers.decrementAndGet() == 0) {
            folder.close();
        }
    }

    private int writeNow(
            List<BucketSource> sources, IntPredicate wanted, List<@Nullable DiskObject> objects) {
        if (hanging != null) {
            if (!hanging.isOver()) {
                return -BucketWriter.STALLED;
            }
            hanging = null;
        }
        var bucket = buckets.next();
        int rc;
        try {
            if (writer == null) {
                writer = new BucketWriter(folder, config.ioLimit(), writers);
            }
            rc = writer.write(bucket, sources, wanted, objects);
        } catch (OutOfMemoryError _) {
            rc = -Errno.ENOMEM;
        }
        BucketWriter last = writer;
        if (last != null && last.isUncertain()) {
            leftovers.add(bucket.id(), last.isStuck() ? last : null);
        }
        if (last != null && last.isStuck()) {
            last.abandon(bucket);
            hanging = last;
            writer = null;
        }
        if (rc == 0) {
            buckets.add(bucket);
            counters.buckets.increment();
        } else {
            counters.failedBuckets.increment();
        }
        return rc;
    }

    /// Why a write failed, for messages.
    public static String text(int rc) {
        return rc == -BucketWriter.STALLED ? "the disk does not answer" : Errno.text(-rc);
    }

    /// Whether another bucket of so many bytes would lift the tier above its high watermark.
    public boolean isCrowded(long bytes) {
        return buckets.isCrowded(bytes);
    }

    /// Whether it would leave it above its low watermark.
    public boolean isAboveLow(long bytes) {
        return buckets.isAboveLow(bytes);
    }

    /// Whether it would not fit.
    public boolean isFull(long bytes) {
        return buckets.isFull(bytes);
    }

    /// The buckets in the order in which they are deleted; none where they are not.
    public List<Bucket> victims() {
        return buckets.victims();
    }

    /// Buckets in which nothing is of use any more.
    public List<Bucket> empty() {
        return buckets.empty();
    }

    /// Deletes a bucket whose objects are no longer looked up.
    ///
    /// @return false if the disk did not answer. The bucket is dropped in that case too, and its
    ///   deletion is retried
    public boolean delete(Bucket bucket) {
        leftovers.add(bucket.id(), null);
        int rc = leftovers.settle();
        buckets.remove(bucket);
        counters.deletedBuckets.increment();
        return rc != -BucketWriter.STALLED;
    }

    /// A bucket is about to be deleted. Called before its objects are given up, so that a user who
    /// no longer finds an object does not yet take it for removed for good.
    public void withdraw(Bucket bucket) {
        leftovers.add(bucket.id(), null);
    }

    /// A copy is obsolete. Called before its object can no longer be found, so that every
    /// [#confirmRemovals] waits for it. Does no I/O.
    public void removed(DiskObject copy) {
        if (copy.bucket().holds(copy.index())) {
            leftovers.add(copy); // first: a removal that is not here is never noted on disk
            copy.bucket().drop(copy.index());
        }
    }

    /// Waits until no restart can find again what has been removed so far.
    ///
    /// @return 0, or a negated [Errno] when that is not certain
    public int confirmRemovals() {
        leftovers.giveUpUnread();
        return leftovers.settle();
    }

    /// Persists removals that no caller waits for.
    ///
    /// @return whether the disk answered
    public boolean settle() {
        return leftovers.settleInTime() != -BucketWriter.STALLED;
    }

    /// Staging bytes that are lent at a time, at most.
    public long stagingBudget() {
        return reads.budget();
    }

    /// Staging bytes that an object takes.
    public static long stagingBytes(long size) {
        return StagingPool.bytesFor(size);
    }

    /// Starts to read an object.
    ///
    /// @param wait whether to wait for staging memory, no longer than one read may take
    /// @return null when there is none
    public @Nullable StagedRead read(DiskObject object, boolean wait) {
        return reads.read(object, wait);
    }

    /// Starts to read several objects, all or none.
    ///
    /// @return empty when there is no staging memory for them
    public List<StagedRead> readAll(List<DiskObject> objects) {
        return reads.readAll(objects);
    }

    /// Counts how a read ended.
    ///
    /// @return 0, or the code for who asked
    public int result(DiskObject object, int rc) {
        return reads.result(object, rc);
    }

    /// Counts a failed allocation of staging memory.
    ///
    /// @return the code for the caller
    public int noStaging() {
        counters.noStaging.increment();
        return StoreCode.BUFFER_OVERFLOW.number();
    }

    /// Whether a failed read means that the copy itself is lost.
    public static boolean isLost(int rc) {
        return rc == -Errno.ENOENT || rc == -Errno.EBADMSG || Errno.isMedium(-rc);
    }

    /// Bytes of all files.
    public long usedBytes() {
        return buckets.usedBytes();
    }

    public long capacity() {
        return capacity;
    }

    public int bucketCount() {
        return buckets.size();
    }

    /// Staging bytes that are lent now.
    public long stagingInUse() {
        return reads.lentBytes();
    }

    /// By the names of Mooncake's metrics.
    public Map<String, Long> counterValues() {
        return counters.values();
    }

    /// Counts that offloading stopped for a while.
    public void paused() {
        counters.pauses.increment();
    }

    /// The folder, for messages.
    public String name() {
        return folder.path().toString();
    }

    /// Ends reads and writes. Where the disk hangs, its threads are left to themselves. A bucket
    /// that is being written is written to its end; no other store can open the folder before.
    @Override
    public void close() {
        if (closed.getAndSet(true)) {
            return;
        }
        try {
            reads.endReading();
            closeWriter();
            reads.close();
        } finally {
            leaveFolder();
        }
    }

    /// Closes the writer, unless a write is under way, which closes it at its end.
    private void closeWriter() {
        if (writing.tryLock()) {
            try {
                BucketWriter last = writer;
                if (last != null) {
                    last.close();
                    writer = null;
                }
            } finally {
                writing.unlock();
            }
        }
    }
}
