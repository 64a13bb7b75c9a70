// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.ErrorCode;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/// Saves of one I/O thread: temporary file, bytes, durability, and a name that only a whole file
/// ever gets.
///
/// A process killed at any step leaves either no block or the whole block, and at most a temporary
/// file.
final class BlockWriter {
    private final StoreContext store;
    private final Staging staging;
    private final StoreFolder.Names names;
    private final Evictor evictor;
    private final RecordFormat format;
    private final @Nullable GatherWriter gatherer;

    /// @param arena lives as long as the thread
    BlockWriter(StoreContext store, Staging staging, StoreFolder.Names names, Arena arena) {
        this.store = store;
        this.staging = staging;
        this.names = names;
        this.evictor = new Evictor(store, names);
        this.format = new RecordFormat(store.folder().namespaceDigest());
        this.gatherer =
                !store.direct() && store.calls().gatherLimit() >= GatherWriter.LEAST_RANGES
                        ? new GatherWriter(store.calls(), format, staging, arena)
                        : null;
    }

    BlockResult save(IoRequest request) {
        BlockKey key = request.key();
        long bytes = RecordFormat.fileBytes(key, request.segments());
        request.enterIo();
        if (isThere(key)) {
            return BlockResult.Done.PRESENT;
        }
        if (!makeRoom(bytes)) {
            return BlockResult.Failed.of(
                    ErrorCode.NO_SPACE,
                    "no room for "
                            + bytes
                            + " bytes within the quota of "
                            + store.config().space().quotaBytes()
                            + " and above the reserve of "
                            + store.config().space().reserveBytes());
        }
        boolean committed = false;
        try {
            boolean gathers = gatherer != null && GatherWriter.takes(request.segments());
            if (!gathers) {
                if (!request.leaveIo()) {
                    return BlockResult.Done.PRESENT; // told to nobody: the deadline has answered
                }
                format.encode(key, request.segments(), staging);
                request.enterIo();
            }
            BlockResult result = write(request, gathers, bytes);
            if (result == BlockResult.Done.STORED) {
                store.catalog().commit(key.digest(), bytes, System.nanoTime());
                committed = true;
                store.listener().stored(key);
            }
            return result;
        } finally {
            if (!committed) {
                store.catalog().release(bytes);
            }
            if (store.catalog().aboveHighWatermark()) {
                store.evictionWanted().run();
            }
        }
    }

    private boolean isThere(BlockKey key) {
        BlockDigest digest = key.digest();
        // Asked of the disk each time: a save skipped because of a belief would be lost, and this
        // costs a microsecond.
        long look = store.catalog().lookBegins();
        long size = store.calls().size(names.file(digest));
        if (size == -Errno.NOT_REGULAR) {
            store.calls().unlink(names.file(digest));
        }
        if (size < 0) {
            return false;
        }
        store.catalog().sighted(digest, size, System.nanoTime(), look);
        return true;
    }

    /// Reserves quota and checks real space, deleting old blocks as far as needed.
    private boolean makeRoom(long bytes) {
        if (bytes > store.config().space().quotaBytes()) {
            return false;
        }
        while (!store.catalog().reserve(bytes)) {
            if (!evictor.evictOne()) {
                return false;
            }
        }
        while (store.freeSpace().shortage(bytes, System.nanoTime()) > 0) {
            if (!evictor.evictOne()) {
                store.catalog().release(bytes);
                return false;
            }
            store.freeSpace().doubt();
        }
        return true;
    }

    private BlockResult write(IoRequest request, boolean gathers, long bytes) {
        BlockKey key = request.key();
        FileCalls calls = store.calls();
        MemorySegment temp = names.nextTemp();
        int handle = calls.createNew(temp, store.direct());
        if (handle < 0) {
            return failed("create", -handle, key);
        }
        int rc =
                gathers && gatherer != null
                        ? gatherer.write(request, handle)
                        : writeStaging(handle, bytes);
        if (rc == 0 && store.config().durability() != Durability.NONE) {
            rc = calls.syncData(handle);
        }
        int closed = calls.close(handle);
        if (rc == 0) {
            rc = closed; // network file systems report a failed write here
        }
        long look = store.catalog().lookBegins();
        if (rc == 0 && !request.abandoned()) {
            rc = publish(temp, key);
            if (rc == 0) {
                return BlockResult.Done.STORED;
            }
        }
        calls.unlink(temp);
        if (rc == -Errno.EEXIST && calls.size(names.file(key.digest())) >= 0) {
            store.catalog().sighted(key.digest(), bytes, System.nanoTime(), look);
            return BlockResult.Done.PRESENT; // another writer was first
        }
        return failed("write", -rc, key);
    }

    private int writeStaging(int handle, long bytes) {
        long done = 0;
        while (done < bytes) {
            long n = store.calls().write(handle, staging.memory(), done, bytes - done, done);
            if (n == -Errno.EINTR) {
                continue;
            }
            if (n <= 0) {
                return n == 0 ? -Errno.EIO : (int) n;
            }
            // Direct writing goes on at an aligned place only; the bytes behind it are written
            // again.
            done += store.direct() && done + n < bytes ? n & -Staging.ALIGNMENT : n;
            if (store.direct() && n < Staging.ALIGNMENT && done < bytes) {
                return -Errno.EIO;
            }
        }
        return 0;
    }

    private int publish(MemorySegment temp, BlockKey key) {
        BlockDigest digest = key.digest();
        MemorySegment file = names.file(digest);
        int rc = store.calls().publish(temp, file);
        boolean madeFolders = rc == -Errno.ENOENT;
        if (madeFolders) {
            rc = makeFolders(digest);
            rc = rc == 0 ? store.calls().publish(temp, file) : rc;
        }
        if (rc == 0 && store.config().durability() == Durability.STRICT) {
            rc = store.calls().syncFolder(names.innerFolder(digest));
        }
        return rc;
    }

    private int makeFolders(BlockDigest digest) {
        FileCalls calls = store.calls();
        int rc = calls.makeFolder(names.outerFolder(digest));
        if (rc == 0 || rc == -Errno.EEXIST) {
            rc = calls.makeFolder(names.innerFolder(digest));
        }
        rc = rc == -Errno.EEXIST ? 0 : rc;
        if (rc == 0 && store.config().durability() == Durability.STRICT) {
            rc = calls.syncFolder(names.outerFolder(digest));
            rc = rc == 0 ? calls.syncFolder(names.blocksFolder()) : rc;
        }
        return rc;
    }

    private BlockResult failed(String what, int errno, BlockKey key) {
        if (Errno.isFull(errno)) {
            store.freeSpace().doubt();
            return BlockResult.Failed.of(
                    ErrorCode.NO_SPACE,
                    "file system is full: "
                            + what
                            + " of block "
                            + key.digest()
                            + " below "
                            + store.folder().folder()
                            + " got "
                            + Errno.text(errno));
        }
        return BlockResult.Failed.of(
                ErrorCode.STORAGE_IO,
                what
                        + " of block "
                        + key.digest()
                        + " below "
                        + store.folder().folder()
                        + " failed: "
                        + Errno.text(errno));
    }
}
