// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.FileStatus;
import io.kvferry.toolkit.disk.space.EvictionLock;
import io.kvferry.toolkit.disk.space.KeyDigest;
import io.kvferry.toolkit.disk.space.SpaceCatalog;
import io.kvferry.toolkit.disk.space.Victim;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.TimeUnit;

/// Deletes the blocks used longest ago, deepest of their prefix first, while no other process does.
///
/// Before a block is deleted, the time of its file is read: another process may have used it. The
/// catalog forgets a block before its file is deleted: a reader that opened the file keeps reading
/// it, one that comes later misses.
///
/// Threading: any thread.
final class Evictor {
    /// Files deleted before others get a chance to take the lock.
    private static final int BATCH = 64;

    /// Files that cannot be deleted, after which no other is tried.
    private static final int MOST_KEPT = 16;

    /// Files whose times are corrected, each with a look at it, before the deadline is looked at,
    /// and a save that needs quota lets others take the lock: another process may have used nearly
    /// all.
    private static final int MOST_CORRECTED = 64;

    private static final long TURN_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

    private final StoreCore core;
    private final FileCalls calls;
    private final EvictionLock lock;
    private final StoreFolder.Names names;
    private final Victim victim = new Victim();
    private final FileStatus status = new FileStatus();
    private boolean evicted;
    private boolean victimReused;
    private long victimFreed;

    Evictor(StoreCore core, EvictionLock lock) {
        this.core = core;
        this.calls = core.calls();
        this.lock = lock;
        this.names = core.folder().names(Arena.ofAuto());
    }

    /// The result of [#reserve].
    enum Room {
        NONE,
        MADE,
        /// And the name given holds a file of just that size to write over.
        WITH_FILE
    }

    /// Reserves quota for one file, evicting no more than necessary. NONE when that was not
    /// possible by the deadline.
    ///
    /// A victim of the same size is renamed to `reuse` instead of deleted: overwriting it neither
    /// allocates nor frees an inode or blocks, and file systems such as ext4 create files slowly
    /// right after many deletions.
    Room reserve(long bytes, MemorySegment reuse, long deadlineNanos) {
        boolean reserved = false;
        boolean reused = false;
        boolean made = false;
        try {
            reserved = core.catalog().reserve(bytes);
            boolean more = true;
            while (!reserved && more) {
                long turn = Math.min(deadlineNanos - System.nanoTime(), TURN_NANOS);
                if (turn <= 0) {
                    return Room.NONE;
                }
                // While another thread deletes, there may be room before this one gets the lock.
                if (lock.lock(System.nanoTime() + turn)) {
                    more = false;
                    boolean gone = false;
                    try {
                        reserved = core.catalog().reserve(bytes);
                        if (!reserved) {
                            core.noteOthers(lock.othersEvicted());
                            try {
                                more = evictOne(bytes, reused ? null : reuse);
                            } finally { // also where it threw
                                gone = evicted;
                                reserved = victim.reserved();
                                reused |= victimReused;
                            }
                        }
                    } finally {
                        lock.unlock(gone);
                    }
                }
                reserved = reserved || core.catalog().reserve(bytes);
            }
            made = reserved;
            if (!made) {
                return Room.NONE;
            }
            return reused ? Room.WITH_FILE : Room.MADE;
        } finally { // also where something threw, such as for lack of memory
            if (reserved && !made) {
                core.catalog().release(bytes);
            }
            if (reused && !made) {
                calls.unlink(reuse);
            }
        }
    }

    /// Deletes files of at least so many bytes; false when that was not possible by the deadline.
    boolean free(long bytes, long deadlineNanos) {
        if (!lock.lock(deadlineNanos)) {
            return false;
        }
        long freed = 0;
        try {
            core.noteOthers(lock.othersEvicted());
            while (freed < bytes && deadlineNanos - System.nanoTime() > 0 && evictOne(0, null)) {
                freed += victimFreed;
            }
        } finally {
            lock.unlock(freed > 0);
        }
        return freed >= bytes;
    }

    /// Evicts until usage is at or below the low watermark. Scans the folder first if another
    /// process has evicted; otherwise both would evict the same amount.
    void evictToLowWatermark() {
        boolean more = true;
        while (more && core.catalog().aboveLowWatermark()) {
            if (!lock.lock(System.nanoTime() + TimeUnit.SECONDS.toNanos(1))) {
                return; // another process is evicting; the next scan shows what is left to do
            }
            boolean some = false;
            try {
                if (lock.othersEvicted()) {
                    lock.look(core::scan);
                }
                for (int i = 0; i < BATCH && more && core.catalog().aboveLowWatermark(); i++) {
                    more = evictOne(0, null);
                    some |= evicted;
                }
            } finally {
                lock.unlock(some);
            }
        }
    }

    /// Stops all evictions, of other processes too, until [#resume]; false when that was not
    /// possible by the deadline.
    boolean pause(long deadlineNanos) {
        return lock.lock(deadlineNanos);
    }

    /// Ends a [#pause].
    void resume() {
        lock.unlock(false);
    }

    /// Evicts one file, or notices that it is gone. Returns false when there is none, or none can
    /// be deleted. The lock must be held. [#evicted] tells whether there is one file less: a call
    /// that met many files that others used evicts none, and the next one goes on.
    ///
    /// @param reuse target name for the file if it has `bytes` bytes; [#victimReused] tells whether
    ///   it was renamed, [#victimFreed] how many bytes the deletion returned to the file system
    private boolean evictOne(long bytes, @Nullable MemorySegment reuse) {
        evicted = false;
        victimReused = false;
        victimFreed = 0;
        SpaceCatalog catalog = core.catalog();
        int kept = 0;
        int corrected = 0;
        while (kept < MOST_KEPT && catalog.oldest(victim)) {
            var path = names.file(victim.word(0), victim.word(1), victim.word(2), victim.word(3));
            int rc = calls.status(path, status);
            if (rc == 0 && status.modifiedNanos() > victim.persisted()) {
                catalog.correct(victim, status.modifiedNanos(), core.recency().nowMillis());
                if (++corrected == MOST_CORRECTED) {
                    return true;
                }
                continue;
            }
            KeyDigest told = core.toTell(victim); // allocate before evicting
            if (!catalog.evict(victim, bytes)) {
                continue; // gone or used meanwhile
            }
            int unlinked;
            boolean answered = false;
            try {
                if (rc == 0 && reuse != null && status.bytes() == bytes) {
                    victimReused = calls.rename(path, reuse) == 0;
                }
                unlinked = victimReused || Errno.isGone(-rc) ? rc : calls.unlink(path);
                answered = true;
            } finally { // before this, lookups that saw the file are ignored
                catalog.evicted();
                if (!answered) { // an exception: the file may still exist
                    catalog.kept(victim, bytes, System.nanoTime(), victim.stamp());
                }
            }
            boolean file = !Errno.isGone(-rc) && rc != -Errno.NOT_REGULAR;
            if (file && unlinked < 0 && !Errno.isGone(-unlinked)) {
                kept++; // such as in a folder that is read-only: its bytes are still taken
                catalog.kept(victim, bytes, System.nanoTime(), core.recency().stampNow(0));
                continue;
            }
            evicted = true;
            if (unlinked == 0) {
                core.counters().evicted.increment();
                victimFreed = victimReused ? 0 : freed(rc);
            }
            if (told != null) {
                core.removed(told);
            }
            return true;
        }
        return false;
    }

    /// Bytes that the deletion of the victim gave back.
    ///
    /// @param looked what the look at it answered
    private long freed(int looked) {
        return switch (looked) {
            case 0 -> status.bytes();
            case -Errno.NOT_REGULAR -> 0;
            default -> victim.bytes();
        };
    }
}
