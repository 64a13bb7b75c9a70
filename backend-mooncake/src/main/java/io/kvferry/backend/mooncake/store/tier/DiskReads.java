// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.NativeCrc;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/// Reads objects from bucket files into staging memory on its own threads, so that a disk that
/// hangs blocks no caller for longer than the limit.
///
/// Threading: any thread.
final class DiskReads implements AutoCloseable {
    private static final int MOST_WAITING = 4096;
    private static final long PAGE = AlignedStaging.ALIGNMENT;
    private static final long CRC_BYTES = 256 << 10;

    private final BucketFolder folder;
    private final long limitNanos;
    private final AtomicLong uses;
    private final ThreadPoolExecutor threads;
    private final ThreadLocal<NativeCrc> crcs = ThreadLocal.withInitial(NativeCrc::new);

    /// @param uses what buckets are stamped with when they are used
    DiskReads(BucketFolder folder, Duration limit, int count, AtomicLong uses) {
        this(
                folder,
                limit,
                count,
                uses,
                Thread.ofPlatform().daemon().name("kvferry-store-disk-read-", 0).factory());
    }

    DiskReads(
            BucketFolder folder,
            Duration limit,
            int count,
            AtomicLong uses,
            ThreadFactory factory) {
        this.uses = uses;
        this.folder = folder;
        this.limitNanos = limit.toNanos();
        this.threads =
                new ThreadPoolExecutor(
                        count,
                        count,
                        30,
                        TimeUnit.SECONDS,
                        new ArrayBlockingQueue<>(MOST_WAITING),
                        factory);
        threads.allowCoreThreadTimeOut(true);
    }

    /// A read under way. Its memory goes back when it is closed, or, where the disk hangs, when the
    /// disk has answered.
    final class Read implements StagedRead {
        private final DiskObject object;
        private final StagingPool.Buffer buffer;
        private final long begun = System.nanoTime();
        private final CountDownLatch done = new CountDownLatch(1);
        private int code;
        private boolean ended;
        private boolean closed;

        private Read(DiskObject object, StagingPool.Buffer buffer) {
            this.object = object;
            this.buffer = buffer;
        }

        private void run() {
            int rc = -Errno.EIO;
            try {
                if (!isClosed()) {
                    rc = read(object, buffer.memory());
                }
            } finally {
                end(rc);
            }
        }

        private synchronized boolean isClosed() {
            return closed;
        }

        private void end(int rc) {
            synchronized (this) {
                code = rc;
                ended = true;
                if (closed) {
                    buffer.close();
                }
            }
            done.countDown();
        }

        @Override
        public int await() {
            try {
                long left = limitNanos - (System.nanoTime() - begun);
                if (!done.await(left, TimeUnit.NANOSECONDS)) {
                    return -BucketWriter.STALLED;
                }
                synchronized (this) {
                    return code;
                }
            } catch (InterruptedException _) {
                Thread.currentThread().interrupt();
                return -Errno.ECANCELED;
            }
        }

        @Override
        public MemorySegment value() {
            return buffer.memory().asSlice(object.offset() % PAGE, object.size());
        }

        @Override
        public synchronized void close() {
            if (!closed) {
                closed = true;
                if (ended) {
                    buffer.close();
                }
            }
        }
    }

    /// Starts to read; the buffer is the read's from here on.
    StagedRead start(DiskObject object, StagingPool.Buffer buffer) {
        var read = new Read(object, buffer);
        try {
            threads.execute(read::run);
        } catch (RejectedExecutionException | OutOfMemoryError _) { // no thread can be had
            read.end(-Errno.EAGAIN);
        }
        return read;
    }

    private int read(DiskObject object, MemorySegment into) {
        object.bucket().use(uses.incrementAndGet());
        long from = object.offset() & -PAGE;
        long least = object.offset() - from + object.size();
        int handle = folder.openData(object.bucket().id());
        if (handle < 0) {
            return handle;
        }
        long got;
        try {
            got = folder.readFully(handle, into, least, from, AlignedStaging.align(least));
        } finally {
            folder.close(handle);
        }
        if (got < least) {
            return got < 0 ? (int) got : -Errno.EBADMSG;
        }
        NativeCrc crc = crcs.get();
        crc.reset();
        long address = into.address() + object.offset() - from;
        for (long at = 0; at < object.size(); at += CRC_BYTES) {
            crc.update(address + at, Math.min(CRC_BYTES, object.size() - at));
        }
        return crc.value() == object.checksum() ? 0 : -Errno.EBADMSG;
    }

    /// Does something with the files on one of the threads.
    ///
    /// @return whether it was done in time
    boolean run(Runnable task) {
        var done = new CountDownLatch(1);
        try {
            threads.execute(() -> {
                task.run();
                done.countDown();
            });
            return done.await(limitNanos, TimeUnit.NANOSECONDS);
        } catch (RejectedExecutionException | OutOfMemoryError _) {
            return false;
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    /// Waits for what is under way, for as long as one read may take.
    @Override
    public void close() {
        threads.shutdown();
        try {
            threads.awaitTermination(limitNanos, TimeUnit.NANOSECONDS);
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
        }
    }
}
