// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import io.kvferry.toolkit.disk.Errno;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.IntSupplier;

/// What a restart would find again although it was removed: copies whose removal is not yet noted
/// on disk, and buckets whose meta file must be deleted or may exist by mistake. A removal is
/// answered once everything that was pending when it was requested is done.
///
/// Threading: any thread; the monitor holds no other lock.
final class Leftovers {
    private static final Logger LOG = LoggerFactory.getLogger(Leftovers.class);

    private final BucketFolder folder;
    private final DiskReads threads;
    private final long limit;
    private final long retryAfter;

    /// Per bucket the indexes of the copies. The copies themselves are not kept: while a disk takes
    /// no notes these may become many.
    private final Map<Bucket, BitSet> copies = new LinkedHashMap<>();

    /// Buckets that have to go; a writer that hangs may still make their files.
    private final Map<Long, @Nullable BucketWriter> buckets = new LinkedHashMap<>();

    /// Buckets of earlier that cannot be read: what is in them is not known.
    private final List<Long> unread = new ArrayList<>();

    /// Held while the disk is asked.
    private final ReentrantLock settling = new ReentrantLock();

    private boolean failed;
    private long failedAt;

    Leftovers(BucketFolder folder, DiskReads threads, TierConfig config) {
        this.folder = folder;
        this.threads = threads;
        this.limit = config.ioLimit().toNanos();
        this.retryAfter = config.retryAfter().toNanos();
    }

    synchronized void add(DiskObject copy) {
        copies.computeIfAbsent(copy.bucket(), _ -> new BitSet()).set(copy.index());
    }

    /// @param by whose call hangs, where one does
    synchronized void add(long bucket, @Nullable BucketWriter by) {
        buckets.put(bucket, by);
    }

    synchronized void addUnread(Collection<Long> ids) {
        unread.addAll(ids);
    }

    /// An object that is removed may be in a bucket that could not be read, which then has to go.
    synchronized void giveUpUnread() {
        for (long id : unread) {
            LOG.warn("{}: bucket {}, which cannot be read, is deleted", folder.path(), id);
            buckets.put(id, null);
        }
        unread.clear();
    }

    private synchronized boolean isEmpty() {
        return copies.isEmpty() && buckets.isEmpty();
    }

    /// As [#settle], unless that has just failed.
    int settleInTime() {
        synchronized (this) {
            if (failed && System.nanoTime() - failedAt < retryAfter) {
                return 0;
            }
        }
        return settle();
    }

    /// Brings all that is here now to the disk.
    ///
    /// @return 0, or a negated [Errno] or [BucketWriter#STALLED]: then what is left is tried again
    ///   with the next call
    int settle() {
        if (isEmpty()) {
            return 0;
        }
        try {
            if (!settling.tryLock(limit, TimeUnit.NANOSECONDS)) {
                return -BucketWriter.STALLED;
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            return -Errno.ECANCELED;
        }
        try {
            int rc = settleNow();
            synchronized (this) {
                failed = rc != 0;
                failedAt = System.nanoTime();
            }
            return rc;
        } finally {
            settling.unlock();
        }
    }

    private int settleNow() {
        Map<Bucket, BitSet> noted = new LinkedHashMap<>();
        Map<Bucket, BitSet> notes = new LinkedHashMap<>();
        Map<Long, @Nullable BucketWriter> files;
        synchronized (this) {
            copies.forEach((bucket, objects) -> notes.put(bucket, (BitSet) objects.clone()));
            files = new LinkedHashMap<>(buckets);
        }
        int failure = 0;
        for (var entry : files.entrySet()) {
            long id = entry.getKey();
            BucketWriter by = entry.getValue();
            int rc =
                    by == null || by.isOver()
                            ? run(() -> folder.withdraw(id))
                            : -BucketWriter.STALLED;
            if (rc == 0) {
                synchronized (this) {
                    buckets.remove(id);
                }
                rc = run(() -> folder.deleteWithdrawn(id));
            }
            if (rc != 0) {
                warn(id, rc);
                failure = rc;
            }
        }
        for (var entry : notes.entrySet()) {
            if (failure == -BucketWriter.STALLED) {
                return failure; // it is not asked for one after the other
            }
            int rc = run(() -> note(entry.getKey(), entry.getValue()));
            if (rc == 0) {
                noted.put(entry.getKey(), entry.getValue());
            } else {
                warn(entry.getKey().id(), rc);
                failure = rc;
            }
        }
        int rc = noted.isEmpty() ? 0 : run(folder::syncNames);
        if (rc != 0) {
            LOG.warn("{}: removals are not noted: {}", folder.path(), DiskTier.text(rc));
            return rc;
        }
        synchronized (this) {
            noted.forEach((bucket, gone) ->
                    copies.computeIfPresent(
                            bucket,
                            (_, left) -> {
                                left.andNot(gone);
                                return left.isEmpty() ? null : left;
                            }));
        }
        return failure;
    }

    /// Notes removals on disk. If the bucket is empty or the note cannot be written, its meta file
    /// is deleted, which works even on a full disk. Other copies in the bucket stay readable until
    /// the next restart.
    private int note(Bucket bucket, BitSet gone) {
        int rc = bucket.isEmpty() ? 0 : folder.addGone(bucket, gone.stream().toArray());
        return rc == 0 && !bucket.isEmpty() ? 0 : folder.deleteMeta(bucket.id());
    }

    private void warn(long bucket, int rc) {
        LOG.warn(
                "{}: what has gone from bucket {} is not noted: {}; until it is, removals fail",
                folder.path(),
                bucket,
                DiskTier.text(rc));
    }

    private int run(IntSupplier call) {
        var rc = new int[] {-BucketWriter.STALLED};
        return threads.run(() -> rc[0] = call.getAsInt()) ? rc[0] : -BucketWriter.STALLED;
    }
}
