// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.block.CachedReader;
import io.kvferry.backend.disk.block.PieceReader;
import io.kvferry.backend.disk.block.RecordFormat;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.FileStatus;
import io.kvferry.toolkit.disk.space.KeyDigest;
import io.kvferry.toolkit.disk.space.Recency;
import io.kvferry.toolkit.disk.space.SpaceCatalog;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;

/// Loads and lookups of one I/O thread.
final class BlockReader implements BlockSearch.Finder {
    private static final BlockResult MISS =
            BlockResult.Failed.of(
                    ErrorCode.MISS, "no such block; it was never saved or has been evicted");

    private final StoreCore core;
    private final SpaceCatalog catalog;
    private final AlignedStaging staging;
    private final StoreFolder.Names names;
    private final RecordFormat format;
    private final CachedReader cached;
    private final PieceReader pieces;
    private final FileStatus status = new FileStatus();
    private final DirectMode mode;
    private @Nullable BlockTask current;
    private long useMillis;

    /// @param arena lives as long as the thread
    BlockReader(
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
        this.cached = new CachedReader(core.calls(), format, staging, arena);
        this.pieces = new PieceReader(core.calls(), format, staging);
    }

    /// Opens, reads, closes, checks, and copies to the caller's segments. If the check fails, the
    /// file may have been evicted and overwritten during the read, so it is read again with
    /// evictions paused. A block that fails again is corrupt and its file is deleted. MISS if
    /// evictions cannot be paused before the deadline.
    BlockResult load(BlockTask task) {
        BlockResult result = attempt(task);
        if (!damaged(result, task)) {
            return result;
        }
        task.enterIo();
        if (!core.evictor().pause(task.deadlineNanos())) {
            return MISS;
        }
        try {
            if (!task.leaveIo()) {
                return MISS; // discarded: the caller already got TIMEOUT
            }
            result = attempt(task);
            if (!damaged(result, task)) {
                return result;
            }
            task.enterIo();
            return discard(task.key(), result);
        } finally {
            core.evictor().resume();
        }
    }

    private static boolean damaged(BlockResult result, BlockTask task) {
        return result.failedWith(ErrorCode.CORRUPT) && !task.abandoned();
    }

    private BlockResult attempt(BlockTask task) {
        BlockKey key = task.key();
        long expected = RecordFormat.fileBytes(key, task.payloadBytes());
        task.enterIo();
        boolean direct = mode.now(core);
        boolean inPieces = !direct && !format.seals() && PieceReader.takes(expected);
        if (!inPieces) {
            staging.ensure(expected);
        }
        long began = System.nanoTime();
        boolean loaded = false;
        long got = core.calls().openRead(names.file(key.digest()), direct);
        if (got >= 0) {
            int handle = (int) got;
            try {
                loaded = inPieces && cached.load(task, key, task.segments(), handle);
                if (!loaded) {
                    got =
                            inPieces
                                    ? pieces.read(task, key, task.segments(), handle)
                                    : readFile(handle, expected, direct);
                }
            } finally { // such as when the caller's memory is gone
                core.calls().close(handle);
            }
        }
        if (!task.leaveIo()) {
            if (got < 0 && Errno.isMedium((int) -got)) { // devices retry for long
                catalog.readFailed(key.digest(), System.nanoTime());
                unreadable((int) -got, key.digest());
            }
            return MISS; // discarded: the caller already got TIMEOUT
        }
        if (got < 0 && got != -Errno.NOT_REGULAR) {
            task.enterIo();
            return Errno.isGone((int) -got) ? missing(key, began) : ioFailure((int) -got, key);
        }
        if (got < 0) {
            return notRegular(key);
        }
        BlockResult verdict = BlockResult.Done.LOADED;
        if (!loaded) {
            verdict =
                    inPieces ? pieces.verdict() : format.decode(staging, got, key, task.segments());
        }
        if (verdict == BlockResult.Done.LOADED) {
            long millis = core.recency().nowMillis();
            boolean known = catalog.read(key.digest(), expected, System.nanoTime());
            task.enterIo(); // the file system may hang here too
            if (known || look(key.digest())) {
                touch(key, millis);
            }
        } else if (verdict.failedWith(ErrorCode.INCOMPATIBLE)) {
            catalog.readFailed(key.digest(), System.nanoTime());
            catalog.markUnreadable(key.digest());
        }
        return verdict;
    }

    /// Runs the search of a lookup.
    BlockResult locate(BlockTask task) {
        task.enterIo();
        current = task;
        useMillis = core.recency().nowMillis();
        return new BlockResult.Located(task.search().search(this));
    }

    /// Touches all keys, deepest first, because later touches are evicted later.
    BlockResult touch(BlockTask task) {
        task.enterIo();
        long millis = core.recency().nowMillis();
        for (int i = task.keys().size() - 1; i >= 0; i--) {
            touch(task.keys().get(i), millis);
        }
        return new BlockResult.Located(0);
    }

    /// Records a use in the catalog and, once per interval, in the file's modification time, unless
    /// another process has already done so.
    private void touch(BlockKey key, long millis) {
        long persistent = catalog.touch(key.digest(), Recency.stamp(millis, key.depth()));
        if (persistent != 0 && look(key.digest()) && status.modifiedNanos() < persistent) {
            core.calls().setModified(names.file(key.digest()), persistent);
            catalog.persisted(key.digest(), persistent);
        }
    }

    @Override
    public boolean isThere(BlockKey key) {
        if (isAbandoned()) {
            return false;
        }
        return switch (catalog.presence(key.digest(), System.nanoTime())) {
            case FRESH -> true;
            case SUPPRESSED -> false;
            case ABSENT, STALE -> look(key.digest());
        };
    }

    @Override
    public boolean isStillThere(BlockKey key) {
        return switch (catalog.presence(key.digest(), System.nanoTime())) {
            case FRESH -> true;
            case ABSENT, SUPPRESSED -> false;
            case STALE -> !isAbandoned() && look(key.digest());
        };
    }

    @Override
    public boolean use(BlockKey key) {
        if (!isAbandoned()) {
            touch(key, useMillis);
        }
        return catalog.contains(key.digest());
    }

    private boolean isAbandoned() {
        return current != null && current.abandoned();
    }

    private boolean look(KeyDigest digest) {
        long look = catalog.lookBegins();
        long began = System.nanoTime();
        int rc = core.calls().status(names.file(digest), status);
        if (rc == 0) {
            return catalog.sighted(
                    digest, status.bytes(), System.nanoTime(), status.modifiedNanos(), look);
        }
        if (Errno.isGone(-rc) || rc == -Errno.NOT_REGULAR) {
            missing(digest, began);
        } else if (catalog.contains(digest)) { // else it may never have been there
            unreadable(-rc, digest);
        }
        return false;
    }

    /// Bytes read, or a negated error number.
    private long readFile(int handle, long expected, boolean direct) {
        FileCalls calls = core.calls();
        long got = 0;
        while (got < expected) {
            long n = calls.read(handle, staging.memory(), got, expected - got, got);
            if (n == -Errno.EINTR) {
                continue;
            }
            if (n < 0) {
                return n;
            }
            if (n == 0 || (direct && n % AlignedStaging.ALIGNMENT != 0)) {
                got += n; // the end of the file
                break;
            }
            got += n;
        }
        return got;
    }

    private BlockResult missing(BlockKey key, long began) {
        missing(key.digest(), began);
        return MISS;
    }

    private void missing(KeyDigest digest, long began) {
        if (catalog.missing(digest, began)) {
            core.removed(digest);
        }
    }

    /// Deletes a corrupt file, so that the block can be saved again. If it cannot be deleted, for
    /// example in a read-only folder, it is a miss until it is saved again. A file that is already
    /// gone was evicted during the read.
    private BlockResult discard(BlockKey key, BlockResult verdict) {
        long began = System.nanoTime();
        int rc = core.calls().unlink(names.file(key.digest()));
        if (Errno.isGone(-rc)) {
            return missing(key, began);
        }
        if (rc == 0) {
            core.forget(key.digest());
        } else {
            catalog.readFailed(key.digest(), System.nanoTime());
            catalog.markUnreadable(key.digest());
        }
        return verdict;
    }

    private BlockResult notRegular(BlockKey key) {
        return BlockResult.Failed.of(
                ErrorCode.CORRUPT, core.folder().file(key.digest()) + " is not a regular file");
    }

    private BlockResult ioFailure(int errno, BlockKey key) {
        catalog.readFailed(key.digest(), System.nanoTime());
        unreadable(errno, key.digest());
        return BlockResult.Failed.of(
                ErrorCode.STORAGE_IO,
                "read of " + core.folder().file(key.digest()) + " failed: " + Errno.text(errno));
    }

    /// Sets the file aside on a media error; other errors may be transient.
    private void unreadable(int errno, KeyDigest digest) {
        if (Errno.isMedium(errno)) {
            core.setAside(names, digest);
        } else {
            long now = System.nanoTime();
            catalog.suppress(digest, now, now);
        }
    }
}
