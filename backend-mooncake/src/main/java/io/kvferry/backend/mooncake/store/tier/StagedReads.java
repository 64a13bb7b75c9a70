// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.toolkit.disk.Errno;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/// Reads of objects into staging memory, and the pause after one of them has hung, in which all
/// others fail at once.
///
/// Threading: any thread.
final class StagedReads implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(StagedReads.class);

    private final TierConfig config;
    private final Path folder;
    private final DiskReads disk;
    private final StagingPool staging;
    private final TierCounters counters;
    private volatile long failUntil;

    /// Whether no read has succeeded since one hung.
    private volatile boolean stalled;

    /// @param folder for messages
    /// @param memory where the staging memory comes from
    StagedReads(
            TierConfig config,
            Path folder,
            DiskReads disk,
            SegmentMemory memory,
            TierCounters counters) {
        this.config = config;
        this.folder = folder;
        this.disk = disk;
        this.staging = new StagingPool(memory, config.stagingBytes());
        this.counters = counters;
    }

    /// Staging bytes that are lent at a time, at most.
    long budget() {
        return staging.budget();
    }

    /// Staging bytes that are lent now.
    long lentBytes() {
        return staging.lentBytes();
    }

    /// As [DiskTier#read].
    @Nullable StagedRead read(DiskObject object, boolean wait) {
        if (isStalled()) { // reads that hang may have all staging memory
            return FailedRead.STALLED;
        }
        try {
            StagingPool.Buffer buffer =
                    staging.take(object.size(), wait ? config.ioLimit().toNanos() : 0);
            if (buffer == null) {
                return wait && hasStuck(StagingPool.bytesFor(object.size()))
                        ? FailedRead.STALLED
                        : null;
            }
            return start(object, buffer);
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            return null;
        }
    }

    /// As [DiskTier#readAll].
    List<StagedRead> readAll(List<DiskObject> objects) {
        if (isStalled()) {
            return Collections.nCopies(objects.size(), FailedRead.STALLED);
        }
        long bytes = 0;
        for (DiskObject object : objects) {
            bytes += StagingPool.bytesFor(object.size());
        }
        var started = new ArrayList<StagedRead>(objects.size());
        try {
            if (!staging.reserve(bytes, config.ioLimit().toNanos())) {
                return hasStuck(bytes)
                        ? Collections.nCopies(objects.size(), FailedRead.STALLED)
                        : List.of();
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            return List.of();
        }
        int next = 0;
        try {
            for (; next < objects.size(); next++) {
                DiskObject object = objects.get(next);
                StagingPool.Buffer buffer = staging.allocate(StagingPool.bytesFor(object.size()));
                if (buffer == null) {
                    return List.of();
                }
                started.add(start(object, buffer));
            }
            return started;
        } finally {
            if (next < objects.size()) {
                giveUp(started, objects, next);
            }
        }
    }

    /// Closes the reads that were started, and returns the reservations of those after the failed
    /// one.
    private void giveUp(List<StagedRead> started, List<DiskObject> objects, int failed) {
        for (int i = failed + 1; i < objects.size(); i++) {
            staging.giveBack(StagingPool.bytesFor(objects.get(i).size()));
        }
        for (int i = 0; i < started.size(); i++) {
            started.get(i).close();
        }
    }

    /// Whether a read has just hung, so that the disk is not asked for now.
    private boolean isStalled() {
        return stalled && System.nanoTime() - failUntil < 0;
    }

    /// Whether the missing staging memory is held by reads that still hang: no read has succeeded
    /// since the disk hung.
    private boolean hasStuck(long bytes) {
        return stalled && bytes <= staging.budget();
    }

    private StagedRead start(DiskObject object, StagingPool.Buffer buffer) {
        boolean started = false;
        try {
            if (isStalled()) {
                return FailedRead.STALLED;
            }
            StagedRead read = disk.start(object, buffer);
            started = true;
            return read;
        } finally {
            if (!started) {
                buffer.close();
            }
        }
    }

    /// After a read has hung, others fail at once until the pause is over.
    private enum FailedRead implements StagedRead {
        STALLED;

        @Override
        public int await() {
            return -BucketWriter.STALLED;
        }

        @Override
        public MemorySegment value() {
            throw new IllegalStateException("the read failed");
        }

        @Override
        public void close() {}
    }

    /// Counts how a read ended.
    ///
    /// @return 0, or the code for who asked
    int result(DiskObject object, int rc) {
        if (rc == 0) {
            stalled = false;
            return 0;
        }
        if (rc == -Errno.ENOENT) {
            return StoreCode.OBJECT_NOT_FOUND.number();
        }
        if (rc == -Errno.EBADMSG) {
            counters.damagedReads.increment();
            LOG.warn(
                    "{}: other bytes than were written under {} in bucket {}; the copy is dropped",
                    folder,
                    object.key(),
                    object.bucket().id());
            return StoreCode.CHECKSUM_MISMATCH.number();
        }
        counters.failedReads.increment();
        if (rc == -BucketWriter.STALLED) {
            if (!isStalled()) { // a read that was not even tried makes the pause no longer
                LOG.warn("{}: a read takes longer than {}", folder, config.ioLimit());
                failUntil = System.nanoTime() + config.retryAfter().toNanos();
                stalled = true;
            }
        } else {
            LOG.warn("{}: {} cannot be read: {}", folder, object.key(), DiskTier.text(rc));
        }
        return StoreCode.FILE_READ_FAIL.number();
    }

    /// Accepts no more reads. Reads in progress end; those that hang in the disk are abandoned.
    void endReading() {
        disk.close();
    }

    /// After [#endReading].
    @Override
    public void close() {
        staging.close();
    }
}
