// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.RecordFormat;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.DirectProbe;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.space.Recency;
import io.kvferry.toolkit.disk.space.SpaceCatalog;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.slf4j.event.Level;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;

/// Blocks of bytes in a folder, by key. A block is one or more memory segments, saved and loaded as
/// one.
///
/// Life cycle: [#open] makes or adopts the folder and rebuilds what it knows from the files; then
/// any number of [#save], [#load] and [#locate] calls; [#close] refuses new ones, lets those in
/// flight end, and stops the threads.
///
/// What holds:
/// - A block is readable as a whole or not at all, in every process, also if a process is killed.
/// - The first writer of a key wins; later ones learn that it was there.
/// - Every byte handed out was checked against CRC32C, key, namespace and length, and against the
///   fleet's key where there is one; a damaged file is deleted.
/// - No request outlives its deadline for its caller, even if a system call hangs; the memory of
///   the request is free from then on. The one exception is a load that the system copies out of
///   the page cache, if the cache loses a page meanwhile and the medium takes no requests.
/// - If the blocks of a prefix were used together, the deepest are evicted first, by every process
///   and also after a restart.
/// - Steady state makes no garbage: requests, buffers, paths and the catalog are reused. An
///   eviction makes an object where a listener hears of it, a sealed file the array of its seal.
///
/// Threading: all methods may be called from any thread. Callbacks come from I/O threads or the
/// deadline thread.
public final class BlockStore implements AutoCloseable {
    /// Most segments of a block, which bounds what a thread of the caller walks through.
    public static final int MOST_SEGMENTS = 16_384;

    private static final Logger LOG = LoggerFactory.getLogger(BlockStore.class);

    private final StoreConfig config;
    private final StoreCore core;
    private final StoreCounters counters = new StoreCounters();
    private final StoreListener listener;
    private final DirectMode direct;
    private final IoThreads threads;
    private volatile boolean closed;

    /// Whether a [#close] has done all of it.
    private boolean ended;

    private volatile FolderCounts folderCounts = FolderCounts.NONE;

    /// Opens a store. Stores of one process with the same settings share what they know of the
    /// folder.
    ///
    /// @throws KvFerryException [ErrorCode#STORAGE_IO] when the folder cannot be used,
    ///   [ErrorCode#UNAVAILABLE] when direct I/O is demanded and not possible,
    ///   [ErrorCode#INCOMPATIBLE] when the folder is another namespace's, [ErrorCode#BAD_CONFIG]
    ///   when other users may write to it
    public static BlockStore open(StoreConfig config, StoreListener listener) {
        var core = StoreCore.shared(config, FileCalls.ofPlatform());
        return open(config, listener, core, Level.INFO);
    }

    /// A store that shares nothing with others and is of no interest to an operator.
    public static BlockStore openScratch(StoreConfig config, StoreListener listener) {
        var core = StoreCore.of(config, FileCalls.ofPlatform());
        return open(config, listener, core, Level.DEBUG);
    }

    /// A store that shares nothing with others of this process, on file calls that tests can
    /// replace.
    public static BlockStore open(StoreConfig config, StoreListener listener, FileCalls calls) {
        return open(config, listener, StoreCore.of(config, calls), Level.INFO);
    }

    /// The same, with a clock that tests can set.
    static BlockStore open(StoreConfig config, FileCalls calls, Recency recency) {
        var core = StoreCore.of(config, calls, recency);
        return open(config, StoreListener.NONE, core, Level.INFO);
    }

    /// Releases the core where the store cannot be opened, for lack of memory too.
    private static BlockStore open(
            StoreConfig config, StoreListener listener, StoreCore core, Level level) {
        BlockStore store = null;
        boolean open = false;
        try {
            store = new BlockStore(config, listener, core);
            store.logOpened(level);
            core.listen(listener);
            open = true;
            return store;
        } finally {
            if (!open) {
                if (store != null) {
                    store.threads.stop();
                }
                core.release();
            }
        }
    }

    private BlockStore(StoreConfig config, StoreListener listener, StoreCore core) {
        this.config = config;
        this.core = core;
        this.listener = listener;
        this.direct = directMode();
        this.threads = new IoThreads(core, counters, config.pools(), direct);
    }

    private void logOpened(Level level) {
        LOG.atLevel(level)
                .log(
                        "block store {} opened: {} blocks, {} bytes of {}, {} I/O (direct: {}), durability {}",
                        core.folder().folder(),
                        core.catalog().files(),
                        core.catalog().usedBytes(),
                        config.space().quotaBytes(),
                        direct.now(core) ? "direct" : "buffered",
                        config.directIo(),
                        config.durability());
    }

    private DirectMode directMode() {
        if (config.directIo() == DirectIo.OFF) {
            return DirectMode.NEVER;
        }
        int rc;
        try (Arena arena = Arena.ofConfined()) {
            rc = DirectProbe.probe(core.calls(), core.folder().names(arena).nextTemp());
        }
        if (rc < 0 && config.directIo() == DirectIo.ON) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    core.folder().folder()
                            + " does not take O_DIRECT ("
                            + Errno.text(-rc)
                            + "); choose direct io 'auto' or 'off', or another file system");
        }
        if (rc < 0) {
            return DirectMode.NEVER;
        }
        return config.directIo() == DirectIo.ON ? DirectMode.ALWAYS : DirectMode.ALONE;
    }

    /// Answers from the catalog alone.
    private final BlockSearch.Finder known =
            new BlockSearch.Finder() {
                @Override
                public boolean isThere(BlockKey key) {
                    return isStillThere(key);
                }

                @Override
                public boolean isStillThere(BlockKey key) {
                    return core().catalog().presence(key.digest(), System.nanoTime())
                            == SpaceCatalog.Presence.FRESH;
                }

                @Override
                public boolean use(BlockKey key) {
                    return true;
                }
            };

    /// Starts to save a block from `segments`, whose memory must stay, and not change, until
    /// `callback` is called.
    ///
    /// Ends with [BlockResult.Done#STORED], [BlockResult.Done#PRESENT] or a failure; never blocks.
    ///
    /// @return false when too many saves wait or the store is closed; nothing was started and
    ///   `callback` is not called
    /// @throws KvFerryException [ErrorCode#INVALID_REQUEST] when the block is larger than the store
    ///   was told to expect
    public boolean save(
            BlockKey key,
            List<MemorySegment> segments,
            Deadline deadline,
            BlockCallback callback,
            long tag) {
        return offer(BlockTask.Kind.SAVE, key, segments, deadline, callback, tag);
    }

    /// Starts to load a block into `segments`, whose bytes together must be as many as were saved;
    /// they may be divided otherwise. A read-only segment stands for a part that is not wanted: its
    /// length counts, it is not written. The memory of the others must stay until `callback` is
    /// called.
    ///
    /// Ends with [BlockResult.Done#LOADED] or a failure, after which the segments hold nothing of
    /// use; nothing is written to them once the callback was called.
    ///
    /// @return false when too many reads wait or the store is closed; nothing was started and
    ///   `callback` is not called
    /// @throws KvFerryException [ErrorCode#INVALID_REQUEST] when the block is larger than the store
    ///   was told to expect
    public boolean load(
            BlockKey key,
            List<MemorySegment> segments,
            Deadline deadline,
            BlockCallback callback,
            long tag) {
        return offer(BlockTask.Kind.LOAD, key, segments, deadline, callback, tag);
    }

    /// Starts to count how many of `keys`, from the front, are there; ends with
    /// [BlockResult.Located]. Those are noted as in use.
    ///
    /// @return as [#load]
    public boolean locate(
            List<BlockKey> keys, Deadline deadline, BlockCallback callback, long tag) {
        return locate(new KeySearch(keys), deadline, callback, tag);
    }

    /// Starts a lookup; ends with [BlockResult.Located] and what the search answers.
    ///
    /// @return as [#load]
    public boolean locate(BlockSearch search, Deadline deadline, BlockCallback callback, long tag) {
        BlockTask task = claim(BlockTask.Kind.LOCATE);
        if (task == null) {
            return false;
        }
        task.prepare(search, limit(deadline), callback, tag);
        threads.submit(task);
        return true;
    }

    /// What a lookup finds among the blocks that were seen on disk within the last moments; no file
    /// system call, nothing is noted as in use.
    public int known(BlockSearch search) {
        return search.search(known);
    }

    /// Notes that the blocks are in use now, the first of a prefix first in the list. Never blocks;
    /// when too much waits to be read, the file keeps its old time, and other processes do not see
    /// this use.
    public void touch(List<BlockKey> keys) {
        if (keys.isEmpty()) {
            return;
        }
        BlockTask task = claim(BlockTask.Kind.TOUCH);
        if (task != null) {
            task.prepare(keys, latest()); // allocates nothing, or the claim could be lost
            threads.submit(task);
            return;
        }
        long millis = core.recency().nowMillis();
        for (int i = keys.size() - 1; i >= 0; i--) {
            BlockKey key = keys.get(i);
            core.catalog().touch(key.digest(), Recency.stamp(millis, key.depth()));
        }
    }

    /// Whether other stores of this process share what this one knows of the folder.
    public boolean isShared() {
        return core.isShared();
    }

    /// Whether the block was there when this process last saw it, however long ago; no file system
    /// call.
    public boolean mayContain(BlockKey key) {
        return core.catalog().mayContain(key.digest(), System.nanoTime());
    }

    /// Takes note that another store on the folder, of this process or another, has just saved the
    /// block.
    public void expect(BlockKey key) {
        long stamp = core.recency().stampNow(key.depth());
        core.catalog().confirm(key.digest(), 0, System.nanoTime(), stamp);
    }

    /// Makes lookups of the block miss for a while: a read of it failed, here or in another
    /// process. For [StoreConfig.Times#suppression], and each time that it fails again for twice as
    /// long, up to an hour.
    ///
    /// @param began when the load began or before, as [System#nanoTime]: what was suppressed since
    ///   was so for the same failure
    public void suppress(BlockKey key, long began) {
        long now = System.nanoTime();
        core.catalog().readFailed(key.digest(), now);
        core.catalog().suppress(key.digest(), began, now);
    }

    /// Takes note that another store on the folder, of this process or another, has just loaded the
    /// block: earlier failures no longer count.
    public void loadedElsewhere(BlockKey key) {
        core.catalog().readElsewhere(key.digest());
    }

    /// Takes note that a load, here or in another process, did not find the block: the next lookup
    /// asks the file system, unless the block was seen since, or is suppressed.
    ///
    /// @param began when the load began or before, as [System#nanoTime]
    public void missedElsewhere(BlockKey key, long began) {
        core.catalog().missedElsewhere(key.digest(), began, System.nanoTime());
    }

    /// Compares what is known with the folder now, as the background does by itself. Blocks the
    /// caller while it works.
    ///
    /// @throws KvFerryException [ErrorCode#STORAGE_IO] when the folder cannot be read
    public void scan() {
        core.scan();
    }

    /// Deletes every block of the namespace, those of other processes and of other fleet keys too,
    /// and files that were set aside, if they can be deleted. Blocks the caller while it works.
    ///
    /// @return blocks deleted
    /// @throws KvFerryException [ErrorCode#STORAGE_IO] when a folder cannot be read, or a file not
    ///   be deleted; [ErrorCode#CLOSED] when the store is closed meanwhile. Some are deleted then
    public long clear() {
        return core.clear(this::isClosed);
    }

    public StoreStats stats() {
        core.countsFor(this).ifPresent(counts -> folderCounts = counts);
        return StoreStats.of(
                counters,
                folderCounts,
                core.catalog(),
                threads.stalled(),
                config.space().quotaBytes());
    }

    public StoreConfig config() {
        return config;
    }

    boolean isClosed() {
        return closed;
    }

    /// For tests of what the janitor does by itself.
    StoreCore core() {
        return core;
    }

    /// Requests in flight end well or by their deadline; then the threads go. A thread that hangs
    /// in the file system is left behind as a daemon with its own memory. Idempotent; a second
    /// close waits for the first, and goes on where that one lacked memory or threw TIMEOUT.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when a load may still write to its segments
    @Override
    public synchronized void close() {
        closed = true;
        if (ended) {
            return;
        }
        threads.close(config.times().io());
        core.unlisten(listener);
        core.release();
        ended = true;
    }

    private boolean offer(
            BlockTask.Kind kind,
            BlockKey key,
            List<MemorySegment> segments,
            Deadline deadline,
            BlockCallback callback,
            long tag) {
        long bytes = checkedBytes(segments);
        BlockTask task = claim(kind);
        if (task == null) {
            return false;
        }
        task.prepare(kind, key, segments, bytes, limit(deadline), callback, tag);
        threads.submit(task);
        return true;
    }

    private @Nullable BlockTask claim(BlockTask.Kind kind) {
        BlockTask task = threads.claim(kind);
        if (task == null) {
            counters.refused.increment();
        }
        return task;
    }

    private long limit(Deadline deadline) {
        long latest = latest();
        return deadline.nanoTime() - latest < 0 ? deadline.nanoTime() : latest;
    }

    private long latest() {
        return System.nanoTime() + config.times().io().toNanos();
    }

    private long checkedBytes(List<MemorySegment> segments) {
        if (segments.size() > MOST_SEGMENTS) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "a block takes at most " + MOST_SEGMENTS + " segments, not " + segments.size());
        }
        long bytes = RecordFormat.payloadBytes(segments);
        if (bytes > config.maxBlockBytes()) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "block of "
                            + bytes
                            + " bytes; this store was opened for at most "
                            + config.maxBlockBytes());
        }
        return bytes;
    }
}
