// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.LastingLoop;
import io.kvferry.toolkit.bounded.Uninterrupted;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.FilePublisher;
import io.kvferry.toolkit.disk.FileStatus;
import io.kvferry.toolkit.disk.space.EvictionLock;
import io.kvferry.toolkit.disk.space.FolderUsers;
import io.kvferry.toolkit.disk.space.FreeSpace;
import io.kvferry.toolkit.disk.space.KeyDigest;
import io.kvferry.toolkit.disk.space.Recency;
import io.kvferry.toolkit.disk.space.SpaceCatalog;
import io.kvferry.toolkit.disk.space.Victim;
import io.kvferry.toolkit.recovery.OpeningParts;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.function.BooleanSupplier;

/// What the stores of one process on one folder share: the catalog, the scans of the folder, and
/// eviction. Ranks and the scheduler half then look at the folder once, and each knows what the
/// others saved.
///
/// Threading: any thread.
final class StoreCore {
    private static final Logger LOG = LoggerFactory.getLogger(StoreCore.class);

    /// Least time between two attempts to make a deleted folder again.
    private static final long RESTORE_NANOS = TimeUnit.SECONDS.toNanos(1);

    /// The shared cores. A list, because removing from it does not allocate.
    private static final List<Slot> OPEN = new ArrayList<>();

    /// What stores must agree on to share a core.
    private record Shared(
            Path root,
            boolean checkFolder,
            KeyDigest namespace,
            StoreConfig.Space space,
            StoreConfig.Times times,
            Durability durability) {}

    /// A shared core. Its monitor is held while its folder is opened, which may hang.
    private static final class Slot {
        /// Null where nothing is shared.
        private final @Nullable Shared key;

        private @Nullable StoreCore core;

        /// Stores that have it or wait for it; guarded by [#OPEN].
        private int users = 1;

        Slot(@Nullable Shared key) {
            this.key = key;
        }
    }

    private final StoreConfig config;
    private final FileCalls calls;
    private final StoreFolder folder;
    private final Recency recency;
    private final SpaceCatalog catalog;
    private final FreeSpace freeSpace;
    private final FilePublisher publisher;
    private final StoreCounters counters = new StoreCounters();
    private volatile StoreListener[] listeners = {};
    private final EvictionLock lock;
    private final FolderUsers folderUsers;
    private final OtherProcesses otherProcesses;
    private final Evictor evictor;
    private final FolderScan scan;
    private final Janitor janitor;
    private final Thread janitorThread;
    private final AtomicIntegerArray durableFolders = new AtomicIntegerArray(StoreFolder.FOLDERS);
    private final Object restoring = new Object();
    private boolean failed;
    private long failedAt;
    private final Slot slot;
    private @Nullable BlockStore reporter;
    private FolderCounts reported = FolderCounts.NONE;
    private FolderCounts reportedByOthers = FolderCounts.NONE;

    private StoreCore(StoreConfig config, FileCalls calls, Recency recency, Slot slot) {
        this.slot = slot;
        this.config = config;
        this.calls = calls;
        this.folder = StoreFolder.open(config, calls);
        var space = config.space();
        this.recency = recency;
        this.catalog =
                new SpaceCatalog(
                        space.quotaBytes(),
                        (long) (space.quotaBytes() * space.lowWatermark()),
                        (long) (space.quotaBytes() * space.highWatermark()),
                        config.times().verifyAfter().toNanos(),
                        config.times().suppression().toNanos(),
                        recency);
        this.freeSpace = new FreeSpace(folder.folder(), space.reserveBytes());
        this.publisher = new FilePublisher(calls, config.durability());
        try (var parts = new OpeningParts()) { // an engine tries again and again
            this.lock = parts.add(new EvictionLock(calls, folder.lockFile()), EvictionLock::close);
            this.folderUsers =
                    parts.add(new FolderUsers(calls, folder.usersFile()), FolderUsers::close);
            this.otherProcesses = new OtherProcesses(folderUsers, folder.folder());
            this.evictor = new Evictor(this, lock);
            this.scan = new FolderScan(this);
            look(System.nanoTime());
            scan.reapTemps();
            this.janitor = new Janitor(this, scan);
            this.janitorThread =
                    Thread.ofPlatform()
                            .name("disk-janitor")
                            .daemon(true)
                            .start(new LastingLoop(janitor));
            parts.keep();
        }
    }

    /// The core of the folder, shared with the stores of this process that have the same settings.
    ///
    /// @throws KvFerryException as [BlockStore#open]
    static StoreCore shared(StoreConfig config, FileCalls calls) {
        var key =
                new Shared(
                        config.root().toAbsolutePath().normalize(),
                        config.checkFolder(),
                        StoreFolder.digest(config),
                        config.space(),
                        config.times(),
                        config.durability());
        Slot slot = enter(key);
        try {
            synchronized (slot) {
                StoreCore core = slot.core;
                if (core == null) {
                    core = new StoreCore(config, calls, recency(config), slot);
                    slot.core = core;
                }
                return core;
            }
        } catch (RuntimeException | Error e) {
            leave(slot);
            throw e;
        }
    }

    private static Slot enter(Shared key) {
        synchronized (OPEN) {
            for (Slot slot : OPEN) {
                if (key.equals(slot.key)) {
                    slot.users++;
                    return slot;
                }
            }
            var slot = new Slot(key);
            OPEN.add(slot);
            return slot;
        }
    }

    /// One user of a slot less; whether it was the last, who may ask again.
    private static boolean leave(Slot slot) {
        synchronized (OPEN) {
            if (slot.users > 1) {
                slot.users--;
                return false;
            }
            slot.users = 0;
            OPEN.remove(slot);
            return true;
        }
    }

    /// Whether several stores have it, or are about to.
    boolean isShared() {
        synchronized (OPEN) {
            return slot.users > 1;
        }
    }

    private static Recency recency(StoreConfig config) {
        return new Recency(config.times().recency().toMillis());
    }

    /// A core for one store.
    static StoreCore of(StoreConfig config, FileCalls calls) {
        return of(config, calls, recency(config));
    }

    static StoreCore of(StoreConfig config, FileCalls calls, Recency recency) {
        return new StoreCore(config, calls, recency, new Slot(null));
    }

    /// One store less; the last one ends the janitor. Called again where it threw.
    void release() {
        if (!leave(slot)) {
            return;
        }
        janitor.stop();
        try {
            Uninterrupted.join(janitorThread, Janitor.patience());
        } finally { // also where there is no memory to wait
            lock.close();
            folderUsers.close();
        }
    }

    StoreConfig config() {
        return config;
    }

    FileCalls calls() {
        return calls;
    }

    StoreFolder folder() {
        return folder;
    }

    SpaceCatalog catalog() {
        return catalog;
    }

    Recency recency() {
        return recency;
    }

    FreeSpace freeSpace() {
        return freeSpace;
    }

    FilePublisher publisher() {
        return publisher;
    }

    /// Who else has the folder open.
    FolderUsers users() {
        return folderUsers;
    }

    OtherProcesses otherProcesses() {
        return otherProcesses;
    }

    Evictor evictor() {
        return evictor;
    }

    /// Counts what belongs to no single store, such as evictions.
    StoreCounters counters() {
        return counters;
    }

    /// Folder-wide counts for the statistics of one store, so that the sum over all stores counts
    /// them once: the first store that asks becomes the reporter, and others get nothing. When it
    /// is closed, the next store that asks takes over with what has not been reported.
    ///
    /// @return empty for a store that is not the reporter, or when nothing is new
    synchronized Optional<FolderCounts> countsFor(BlockStore store) {
        BlockStore former = reporter;
        if (former == null || (former.isClosed() && !store.isClosed())) {
            reporter = store;
            reportedByOthers = reported;
        } else if (former != store) {
            return Optional.empty();
        }
        reported = FolderCounts.of(counters);
        return Optional.of(reported.minus(reportedByOthers));
    }

    synchronized void listen(StoreListener listener) {
        if (listener == StoreListener.NONE) {
            return; // each eviction makes an object for its listeners
        }
        var more = Arrays.copyOf(listeners, listeners.length + 1);
        more[listeners.length] = listener;
        listeners = more;
    }

    synchronized void unlisten(StoreListener listener) {
        listeners =
                Arrays.stream(listeners)
                        .filter(each -> each != listener)
                        .toArray(StoreListener[]::new);
    }

    void removed(KeyDigest digest) {
        for (StoreListener listener : listeners) {
            listener.removed(digest);
        }
    }

    /// Must not allocate: a lost removal would never be reported to the listeners.
    void removed(List<KeyDigest> digests) {
        for (int i = 0; i < digests.size(); i++) {
            removed(digests.get(i));
        }
    }

    /// What listeners are told of a victim once it is gone; null where there are none.
    @Nullable KeyDigest toTell(Victim victim) {
        return listeners.length > 0 ? victim.digest() : null;
    }

    /// The file of a block is gone.
    void forget(KeyDigest digest) {
        if (catalog.invalidate(digest)) {
            removed(digest);
        }
    }

    /// Renames a file with a media error, so that the block can be saved again. The bad sectors
    /// stay in use until a later such file takes its name (there are sixteen) or all blocks are
    /// deleted. If the rename fails, the block is a miss until it is overwritten; for a while only
    /// if the medium failed the rename too, as a device does that is away for a moment.
    void setAside(StoreFolder.Names names, KeyDigest digest) {
        int rc = calls.rename(names.file(digest), names.bad(digest));
        if (Errno.isGone(-rc)) { // the file is gone, or that folder
            if (!folder.makeBad(publisher)) {
                catalog.markUnreadable(digest);
                return;
            }
            rc = calls.rename(names.file(digest), names.bad(digest));
        }
        if (rc == 0 || Errno.isGone(-rc)) { // another reader was first
            forget(digest);
        } else if (Errno.isMedium(-rc)) {
            long now = System.nanoTime();
            catalog.suppress(digest, now, now);
        } else {
            catalog.markUnreadable(digest);
        }
    }

    /// If the store is strict, syncs the folder of a block, and the folders above it, which any
    /// process may have made, once per process. A folder that was deleted and made again lacks the
    /// mark of that; then they are synced once more.
    ///
    /// @param scratch of the calling thread
    /// @return 0 or a negated error number
    int syncName(StoreFolder.Names names, KeyDigest digest, FileStatus scratch) {
        int rc = publisher.syncNames(names.folder(digest.a()));
        if (rc < 0 || config.durability() != Durability.STRICT) {
            return rc;
        }
        int number = StoreFolder.subfolder(digest);
        MemorySegment mark = names.durableMark(digest.a());
        if (durableFolders.get(number) != 0 && calls.status(mark, scratch) == 0) {
            return 0;
        }
        durableFolders.set(number, 0);
        // Made before the folders are synced, and named afterwards: a folder that takes the place
        // of this one meanwhile lacks both. Without the mark the next save syncs them once more.
        MemorySegment fresh = names.freshMark(digest.a());
        int handle = calls.createNew(fresh, false);
        if (handle >= 0) {
            calls.close(handle);
        }
        rc = folder.syncAbove(publisher);
        if (rc == 0 && calls.rename(fresh, mark) == 0) {
            durableFolders.set(number, 1);
        } else {
            calls.unlink(fresh);
        }
        return rc;
    }

    /// Makes the folders again if they were deleted, as opening the store does.
    ///
    /// @param deadlineNanos of the wait for threads that use the lock files
    void restoreFolder(long deadlineNanos) {
        synchronized (restoring) {
            long now = System.nanoTime();
            if (folder.isThere() || (failed && now - failedAt < RESTORE_NANOS)) {
                return;
            }
            failed = true;
            failedAt = now;
            try {
                folder.make(config, publisher);
                for (int i = 0; i < durableFolders.length(); i++) {
                    durableFolders.set(i, 0);
                }
                reopenLocks(deadlineNanos);
                scan.run();
                failed = false;
                LOG.warn(
                        "folders of block store {} were deleted; they were made again",
                        folder.folder());
            } catch (KvFerryException e) {
                LOG.warn(
                        "folders of block store {} were deleted and cannot be made again",
                        folder.folder(),
                        e);
            }
        }
    }

    /// Reopens the lock files if the folder was deleted and another process has made it again, so
    /// that all processes use the same ones.
    void reopenLocks(long deadlineNanos) {
        lock.reopen(deadlineNanos);
        folderUsers.reopen(deadlineNanos);
    }

    /// A block was written: room may be needed, or a look at what others wrote.
    void wrote(long bytes) {
        janitor.wrote(bytes);
    }

    /// For tests of what it costs.
    Thread janitorThread() {
        return janitorThread;
    }

    /// Looks at the folder now.
    void scan() {
        scan.run();
    }

    /// For tests of what a scan costs.
    int foldersListed() {
        return scan.foldersListed();
    }

    /// For tests of how often the folder is looked at.
    int scans() {
        return scan.scans();
    }

    /// Looks at the folder now, so that what others evicted is known.
    void look(long deadlineNanos) {
        lock.look(scan::run, deadlineNanos);
    }

    /// Asks the janitor for a scan when another process evicted.
    void noteOthers(boolean evicted) {
        if (evicted) {
            janitor.wantScan();
        }
    }

    /// Deletes every block.
    ///
    /// @param closed whether the store that asked is closed
    long clear(BooleanSupplier closed) {
        boolean whole = false;
        try {
            long deleted = scan.clear(closed);
            whole = true;
            return deleted;
        } finally {
            if (!whole) {
                janitor.wantScan(); // finds what is left
            }
        }
    }
}
