// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.NativeCrc;
import io.kvferry.toolkit.recovery.OpeningParts;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.IntPredicate;

/// Writes one bucket after the other, in large pieces: while one piece is being written by a thread
/// of its own, the next is filled.
///
/// A write that takes too long is given up. Its thread and its memory are left to it, and the next
/// bucket gets a writer of its own; see [#isStuck].
///
/// Threading: one thread at a time.
final class BucketWriter implements AutoCloseable {
    /// A code of our own, no errno: the disk did not answer in time.
    static final int STALLED = 4097;

    private static final long PIECE_BYTES = 8L << 20;
    private static final long CRC_BYTES = 64 << 10;

    /// How much longer than a write it may take to bring a bucket to the medium.
    private static final int SYNC_FACTOR = 6;

    private final BucketFolder folder;
    private final Duration limit;
    private final ThreadPoolExecutor thread;
    private final SegmentMemory.Taken[] pieces = new SegmentMemory.Taken[2];
    private final NativeCrc crc = new NativeCrc();
    private int filling;
    private long filled;
    private long written;

    /// Handle of the data file, -1 for none; used by the writing thread alone.
    private int open = -1;

    private int failure;
    private @Nullable Future<Integer> pending;
    private boolean stuck;
    private boolean uncertain;

    /// Starts its thread here. If the thread could only be refused in the middle of a bucket, a
    /// partial bucket and its memory would be left.
    ///
    /// @throws OutOfMemoryError when memory or the thread cannot be allocated
    BucketWriter(BucketFolder folder, Duration limit, ThreadFactory threads) {
        this.folder = folder;
        this.limit = limit;
        this.thread =
                new ThreadPoolExecutor(
                        1, 1, 0, TimeUnit.NANOSECONDS, new LinkedBlockingQueue<>(), threads);
        try (var parts = new OpeningParts()) {
            for (int i = 0; i < pieces.length; i++) {
                pieces[i] =
                        parts.add(
                                SegmentMemory.PRIVATE.take(PIECE_BYTES),
                                piece -> piece.free().run());
            }
            thread.prestartCoreThread();
            parts.keep();
        }
    }

    /// Writes a bucket. The meta file omits objects whose bytes fail their checksum, and objects
    /// that are no longer wanted when it is begun.
    ///
    /// @param wanted asked once per source, when the bytes of all sources are on the medium
    /// @param objects receives the copy of each source, or null
    /// @return 0, or a negated [Errno] or [#STALLED]; then the bucket does not count
    int write(
            Bucket bucket,
            List<BucketSource> sources,
            IntPredicate wanted,
            List<@Nullable DiskObject> objects) {
        uncertain = false;
        pending = null; // of a write that threw
        filled = 0;
        written = 0;
        failure = 0;
        int created =
                run(
                        () -> {
                            open = folder.createData(bucket.id());
                            return Math.min(0, open);
                        },
                        1);
        if (created != 0) {
            return created;
        }
        boolean ended = false;
        try {
            int rc = writeSources(bucket, sources, wanted, objects);
            ended = true;
            return rc;
        } finally {
            if (!ended && !stuck) { // an exception, such as an OutOfMemoryError
                uncertain = true;
                uncertain = run(() -> cleanUp(bucket), 1) != 0;
            }
        }
    }

    private int writeSources(
            Bucket bucket,
            List<BucketSource> sources,
            IntPredicate wanted,
            List<@Nullable DiskObject> objects) {
        var drafts = new ArrayList<@Nullable DiskObject>(sources.size());
        for (BucketSource source : sources) {
            byte[] key = source.key().getBytes(StandardCharsets.UTF_8);
            add(MemorySegment.ofArray(key), false);
            long offset = written + filled;
            crc.reset();
            add(source.memory(), true);
            if (failure != 0) {
                break;
            }
            int checksum = crc.value();
            if (source.checked() && checksum != source.checksum()) {
                drafts.add(null);
                continue;
            }
            drafts.add(
                    new DiskObject(
                            bucket,
                            drafts.size(),
                            source.identity(),
                            source.key(),
                            source.group(),
                            source.hardPinned(),
                            offset,
                            source.memory().byteSize(),
                            checksum));
        }
        int rc = endData(bucket);
        return rc == 0 ? publish(bucket, drafts, wanted, objects) : rc;
    }

    private int endData(Bucket bucket) {
        if (failure == 0 && filled > 0) {
            MemorySegment piece = pieces[filling].memory();
            long length = AlignedStaging.align(filled);
            piece.asSlice(filled, length - filled).fill((byte) 0);
            filled = length;
            flush();
        }
        awaitPending();
        if (stuck) {
            return failure; // the thread that hangs closes and deletes
        }
        int rc = failure;
        if (rc == 0) {
            rc =
                    run(
                            () -> {
                                int data = open;
                                open = -1;
                                return folder.completeData(data);
                            },
                            SYNC_FACTOR);
        }
        if (rc != 0 && !stuck) {
            run(() -> cleanUp(bucket), 1);
        }
        return rc;
    }

    /// Writes the meta file: from here on a restart may find the bucket.
    private int publish(
            Bucket bucket,
            List<@Nullable DiskObject> drafts,
            IntPredicate wanted,
            List<@Nullable DiskObject> objects) {
        var good = new ArrayList<DiskObject>(drafts.size());
        for (int i = 0; i < drafts.size(); i++) {
            DiskObject object = drafts.get(i);
            if (!wanted.test(i)) {
                object = null;
            }
            if (object != null) {
                object = object.at(good.size());
                good.add(object);
            }
            objects.add(object);
        }
        byte[] meta = BucketMeta.encode(bucket.id(), written, good);
        uncertain = true;
        int rc = run(() -> folder.writeMeta(bucket.id(), meta), SYNC_FACTOR);
        if (rc == 0) {
            uncertain = false;
            bucket.complete(good, BucketFolder.fileBytes(written, meta.length));
        } else if (!stuck) {
            uncertain = run(() -> cleanUp(bucket), 1) != 0;
        }
        return rc;
    }

    /// Whether a restart may find the bucket although its write failed.
    boolean isUncertain() {
        return uncertain;
    }

    private void add(MemorySegment from, boolean value) {
        long at = 0;
        while (at < from.byteSize() && failure == 0) {
            long room = PIECE_BYTES - filled;
            long length = Math.min(from.byteSize() - at, Math.min(room, CRC_BYTES));
            MemorySegment piece = pieces[filling].memory();
            MemorySegment.copy(from, at, piece, filled, length);
            if (value) {
                crc.update(piece.address() + filled, length);
            }
            at += length;
            filled += length;
            if (filled == PIECE_BYTES) {
                flush();
            }
        }
    }

    /// Hands the filled piece over, once the one before is written.
    private void flush() {
        awaitPending();
        if (failure != 0) {
            return;
        }
        MemorySegment piece = pieces[filling].memory();
        long length = filled;
        long offset = written;
        pending = thread.submit(() -> folder.write(open, piece, length, offset));
        written += length;
        filled = 0;
        filling = 1 - filling;
    }

    private void awaitPending() {
        Future<Integer> last = pending;
        pending = null;
        if (last != null) {
            int rc = await(last, 1);
            failure = failure == 0 ? rc : failure;
        }
    }

    private int run(Callable<Integer> call, int factor) {
        return await(thread.submit(call), factor);
    }

    private int await(Future<Integer> call, int factor) {
        try {
            return call.get(limit.toNanos() * factor, TimeUnit.NANOSECONDS);
        } catch (TimeoutException _) {
            stuck = true;
            return -STALLED;
        } catch (ExecutionException e) {
            if (e.getCause() instanceof OutOfMemoryError full) {
                throw full;
            }
            throw new IllegalStateException("a file call threw", e.getCause());
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            stuck = true;
            return -Errno.ECANCELED;
        }
    }

    /// Whether a call hangs; then this writer can only be closed.
    boolean isStuck() {
        return stuck;
    }

    /// Whether the call that hung has ended after all, and all memory is back.
    boolean isOver() {
        return thread.isTerminated();
    }

    /// Where a call hangs, what is left of the bucket is deleted after it.
    void abandon(Bucket bucket) {
        thread.execute(() -> cleanUp(bucket));
        close();
    }

    private int cleanUp(Bucket bucket) {
        if (open >= 0) {
            folder.close(open);
            open = -1;
        }
        return folder.delete(bucket.id());
    }

    /// Frees the memory, after what is under way.
    @Override
    public void close() {
        if (!thread.isShutdown()) {
            thread.execute(() -> {
                for (SegmentMemory.Taken piece : pieces) {
                    piece.free().run();
                }
            });
            thread.shutdown();
        }
    }
}
