// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.block.GatherWriter;
import io.kvferry.backend.disk.block.RecordFormat;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.FileStatus;
import io.kvferry.toolkit.disk.space.KeyDigest;
import io.kvferry.toolkit.disk.space.SpaceCatalog;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/// Saves of one I/O thread: room, temporary file, bytes, and the name.
final class BlockWriter {
    /// More evictions than this between two looks at one block indicate a fault.
    private static final int MOST_ATTEMPTS = 3;

    /// Deletions for one block on a full file system: another process may take what the first one
    /// has freed.
    private static final int MOST_DELETIONS = 2;

    /// Files of at least this size are preallocated. Without preallocation, ext4 with direct I/O
    /// rounds the allocation of a large write up to a power of two and holds the rest until the
    /// file is closed: files of 4 MiB and a header would lie 8 MiB apart, some in two extents. With
    /// buffered I/O, ext4 would reserve each 4 KiB page separately, which takes up to a fifth of
    /// the write time (files of 256 KiB gain nothing). Smaller files are packed.
    private static final long LEAST_ALLOCATED = 128 << 10;

    private final StoreCore core;
    private final SpaceCatalog catalog;
    private final AlignedStaging staging;
    private final StoreFolder.Names names;
    private final RecordFormat format;
    private final @Nullable GatherWriter gatherer;
    private final FileStatus status = new FileStatus();
    private final DirectMode mode;

    /// Whether the file in progress bypasses the page cache.
    private boolean direct;

    private boolean timeByName;
    private int lastErrno;

    /// Whether the last attempt found the file system full where deleting files may help.
    private boolean full;

    /// @param arena lives as long as the thread
    BlockWriter(
            StoreCore core,
            AlignedStaging staging,
            StoreFolder.Names names,
            Arena arena,
            DirectMode mode) {
        this.core = core;
        this.catalog = core.catalog();
        this.staging = staging;
        this.names = names;
        this.mode = mode;
        this.format = new RecordFormat(core.folder().contentDigest(), core.config().key());
        this.gatherer =
                mode != DirectMode.ALWAYS
                                && !format.seals()
                                && core.calls().gatherLimit() >= GatherWriter.LEAST_RANGES
                        ? new GatherWriter(core.calls(), format, staging, arena)
                        : null;
    }

    BlockResult save(BlockTask task) {
        BlockKey key = task.key();
        task.enterIo();
        lastErrno = Errno.EEXIST;
        int deletions = 0;
        for (int i = 0; i < MOST_ATTEMPTS; i++) {
            full = false;
            var result = attempt(task, key);
            if (result != null) {
                return result;
            }
            if (full && deletions == MOST_DELETIONS) {
                core.freeSpace().deletingDidNotHelp(System.nanoTime());
            }
            if (full && (deletions == MOST_DELETIONS || !makeRoomOnDisk(task, key))) {
                return failed("write", lastErrno, key);
            }
            deletions += full ? 1 : 0;
        }
        return failed("publication", lastErrno, key);
    }

    /// Deletes as much as the block needs, for a file system that was full although it has room.
    private boolean makeRoomOnDisk(BlockTask task, BlockKey key) {
        long bytes = RecordFormat.fileBytes(key, task.payloadBytes());
        if (core.freeSpace().shortage(bytes, System.nanoTime()) > 0) {
            return true; // it shows no room any more: the next attempt deletes
        }
        return core.evictor().free(bytes, task.deadlineNanos());
    }

    /// Returns null when a retry may succeed: the block existed but was evicted before the next
    /// check, or the temporary file was deleted, by a process whose clock is ahead or together with
    /// its folder, or the file system is full where deleting files may help.
    private @Nullable BlockResult attempt(BlockTask task, BlockKey key) {
        long bytes = RecordFormat.fileBytes(key, task.payloadBytes());
        if (isThere(key)) {
            return present(key);
        }
        MemorySegment temp = names.nextTemp();
        Evictor.Room room = makeRoom(bytes, temp, task.deadlineNanos());
        if (room == Evictor.Room.NONE) {
            return noRoom(bytes, task.deadlineNanos());
        }
        boolean committed = false;
        boolean toReuse = room == Evictor.Room.WITH_FILE;
        try {
            direct = mode.now(core);
            boolean gathers = !direct && gatherer != null && GatherWriter.takes(task.segments());
            if (!gathers) {
                if (!task.leaveIo()) {
                    return BlockResult.Done.PRESENT; // discarded: the caller already got TIMEOUT
                }
                format.encode(key, task.segments(), staging);
                task.enterIo();
            }
            long stamp = core.recency().stampNow(key.depth());
            long time = core.recency().persistent(stamp);
            int rc = write(task, temp, room == Evictor.Room.WITH_FILE, gathers, bytes, time);
            toReuse = false;
            if (rc == 0) {
                catalog.commit(key.digest(), bytes, System.nanoTime(), stamp);
                committed = true;
                core.freeSpace().written();
                return named(key, time);
            }
            if (rc == -Errno.ENOENT) {
                lastErrno = Errno.ENOENT;
                core.restoreFolder(task.deadlineNanos());
                return null;
            }
            if (Errno.isFull(-rc) && core.freeSpace().deletingMayHelp(System.nanoTime())) {
                lastErrno = -rc;
                full = true;
                return null;
            }
            return rc == -Errno.EEXIST ? existing(key) : failed("write", -rc, key);
        } finally {
            if (toReuse) {
                core.calls().unlink(temp);
            }
            if (!committed) {
                catalog.release(bytes);
            }
            core.wrote(committed ? bytes : 0);
        }
    }

    /// NO_SPACE when nothing could be evicted, TIMEOUT when the deadline passed first.
    private BlockResult noRoom(long bytes, long deadlineNanos) {
        if (deadlineNanos - System.nanoTime() <= 0) {
            return BlockResult.Failed.of(
                    ErrorCode.TIMEOUT, "no eviction made room for " + bytes + " bytes in time");
        }
        return BlockResult.Failed.of(
                ErrorCode.NO_SPACE,
                "no room for "
                        + bytes
                        + " bytes within the quota of "
                        + core.config().space().quotaBytes()
                        + " and above the reserve of "
                        + core.config().space().reserveBytes());
    }

    /// Always asks the file system, which costs about a microsecond: if a save were skipped because
    /// of a stale catalog entry, the block would be lost.
    private boolean isThere(BlockKey key) {
        KeyDigest digest = key.digest();
        long look = catalog.lookBegins();
        int rc = core.calls().status(names.file(digest), status);
        if (rc == -Errno.NOT_REGULAR) {
            core.calls().unlink(names.file(digest));
        } else if (Errno.isMedium(-rc)) {
            core.setAside(names, digest);
            lastErrno = -rc; // reported if publication then fails because the file remains
        }
        if (rc < 0) {
            return false;
        }
        if (catalog.unreadable(digest)) {
            core.calls().unlink(names.file(digest)); // if this fails, publication fails too
            return false;
        }
        return catalog.sighted(
                digest, status.bytes(), System.nanoTime(), status.modifiedNanos(), look);
    }

    /// The block exists: touches it and makes it as durable as a new save. Null when it was evicted
    /// meanwhile by any process. Fails while the block is suppressed: after PRESENT the scheduler
    /// would offer it again.
    private @Nullable BlockResult present(BlockKey key) {
        KeyDigest digest = key.digest();
        if (catalog.presence(digest, System.nanoTime()) == SpaceCatalog.Presence.SUPPRESSED) {
            return BlockResult.Failed.of(
                    ErrorCode.STORAGE_IO,
                    core.folder().file(digest)
                            + " is there, but could not be read lately; it is not replaced");
        }
        long persistent = catalog.touch(digest, core.recency().stampNow(key.depth()));
        if (persistent != 0) {
            core.calls().setModified(names.file(digest), persistent);
            catalog.persisted(digest, persistent);
        }
        // Every time: another process may have evicted the synced file and saved the block again
        // without syncing it.
        int rc = core.publisher().ensureDurable(names.file(digest));
        rc = rc < 0 ? rc : core.syncName(names, digest, status);
        if (rc < 0) {
            return rc == -Errno.ENOENT ? null : failed("sync", -rc, key);
        }
        return BlockResult.Done.PRESENT;
    }

    /// The target name exists: another writer was first, or something else has the name.
    private @Nullable BlockResult existing(BlockKey key) {
        return isThere(key) ? present(key) : null;
    }

    /// The block has its final name; in strict mode the name is synced too.
    private BlockResult named(BlockKey key, long time) {
        if (timeByName) {
            core.calls().setModified(names.file(key.digest()), time);
        }
        int rc = core.syncName(names, key.digest(), status);
        if (rc < 0) {
            return failed("sync of the folder", -rc, key);
        }
        return BlockResult.Done.STORED;
    }

    /// Reserves quota and checks free space. Evicts only as many least recently used blocks as this
    /// block needs; space used by other programs is not compensated for.
    private Evictor.Room makeRoom(long bytes, MemorySegment temp, long deadlineNanos) {
        if (bytes > core.config().space().quotaBytes()) {
            return Evictor.Room.NONE;
        }
        var room = core.evictor().reserve(bytes, temp, deadlineNanos);
        if (room != Evictor.Room.MADE) {
            return room; // overwriting a file needs no new space
        }
        boolean free = false;
        try {
            free = isFree(bytes, deadlineNanos);
        } finally { // also when a listener throws
            if (!free) {
                catalog.release(bytes);
            }
        }
        return free ? room : Evictor.Room.NONE;
    }

    private boolean isFree(long bytes, long deadlineNanos) {
        long shortage = core.freeSpace().shortage(bytes, System.nanoTime());
        if (shortage <= 0) {
            return true;
        }
        core.freeSpace().invalidate();
        return core.evictor().free(Math.min(shortage, bytes), deadlineNanos);
    }

    /// @param over whether `temp` is a file of just so many bytes to write over
    /// @param time of its use, which the file is to carry
    private int write(
            BlockTask task,
            MemorySegment temp,
            boolean over,
            boolean gathers,
            long bytes,
            long time) {
        int handle = over ? core.calls().openOver(temp, direct) : -Errno.ENOENT;
        boolean fresh = handle < 0;
        if (fresh) {
            if (over) { // such as the file of another user
                core.calls().unlink(temp);
            }
            handle = core.calls().createNew(temp, direct);
        }
        if (handle < 0) {
            return handle;
        }
        boolean named = false;
        try {
            boolean allocates = fresh && bytes >= LEAST_ALLOCATED;
            int rc = writeAndClose(task, handle, allocates, gathers, bytes, time);
            rc = rc == 0 ? name(task, temp) : rc;
            named = rc == 0;
            return rc;
        } finally {
            if (!named) {
                core.calls().unlink(temp);
            }
        }
    }

    private int writeAndClose(
            BlockTask task, int handle, boolean allocates, boolean gathers, long bytes, long time) {
        boolean open = true;
        try {
            if (allocates) {
                // Without enough room the write fails. In the page cache the file gets no length
                // before its bytes, so that a power cut leaves fewer that look complete.
                core.calls().allocate(handle, bytes, !direct);
            }
            int rc =
                    gathers && gatherer != null
                            ? gatherer.write(task, task.key(), task.segments(), handle)
                            : writeStaging(handle, bytes);
            // If this fails, the block is only evicted earlier.
            timeByName = core.calls().setModified(handle, time) == -Errno.ENOSYS;
            open = false;
            return core.publisher().complete(handle, rc);
        } finally { // such as no memory for a larger header
            if (open) {
                core.calls().close(handle);
            }
        }
    }

    private int name(BlockTask task, MemorySegment temp) {
        KeyDigest digest = task.key().digest();
        return task.abandoned()
                ? -Errno.ECANCELED
                : core.publisher()
                        .publish(
                                temp,
                                names.file(digest),
                                names.folder(digest.a()),
                                names.blocksFolder());
    }

    private int writeStaging(int handle, long bytes) {
        FileCalls calls = core.calls();
        long done = 0;
        while (done < bytes) {
            long n = calls.write(handle, staging.memory(), done, bytes - done, done);
            if (n == -Errno.EINTR) {
                continue;
            }
            if (n <= 0) {
                return n == 0 ? -Errno.EIO : (int) n;
            }
            // Direct writing goes on at an aligned place only; the bytes behind it are written
            // again.
            done += direct && done + n < bytes ? n & -AlignedStaging.ALIGNMENT : n;
            if (direct && n < AlignedStaging.ALIGNMENT && done < bytes) {
                return -Errno.EIO;
            }
        }
        return 0;
    }

    private BlockResult failed(String what, int errno, BlockKey key) {
        if (Errno.isFull(errno)) {
            core.freeSpace().invalidate();
            return BlockResult.Failed.of(
                    ErrorCode.NO_SPACE,
                    "file system is full: "
                            + what
                            + " of "
                            + core.folder().file(key.digest())
                            + " got "
                            + Errno.text(errno));
        }
        return BlockResult.Failed.of(
                ErrorCode.STORAGE_IO,
                what + " of " + core.folder().file(key.digest()) + " failed: " + Errno.text(errno));
    }
}
