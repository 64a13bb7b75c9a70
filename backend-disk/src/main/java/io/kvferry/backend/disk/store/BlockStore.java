// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// Blocks of bytes in a folder, by key. A block is one or more memory segments, saved and loaded as
/// one.
///
/// Life cycle: [#open] makes or adopts the folder and rebuilds what it knows from the files; then
/// any number of [#save], [#load] and [#locate] calls; [#close] refuses new ones, lets those in
/// flight end, and stops the threads.
///
/// What holds:
/// - A block is readable whole or not at all, in every process, whatever is killed when.
/// - The first writer of a key wins; later ones learn that it was there.
/// - Every byte handed out was checked against CRC32C, key, namespace and lengths; a damaged file
///   is deleted.
/// - No request outlives its deadline for its caller, even if a system call hangs; the memory of
///   the request is free from then on.
/// - Steady state makes no garbage: requests, buffers, paths and the catalog are reused.
///
/// Threading: all methods may be called from any thread. Callbacks come from I/O threads or the
/// deadline thread.
public final class BlockStore implements AutoCloseable {
    /// How long a block is a miss after reading it failed without telling whether it is good.
    static final long DISTRUST_NANOS = TimeUnit.SECONDS.toNanos(5);

    private static final Logger LOG = LoggerFactory.getLogger(BlockStore.class);
    private static final List<MemorySegment> NO_SEGMENTS = List.of();
    private static final List<BlockKey> NO_KEYS = List.of();

    private final StoreContext store;
    private final IoQueue queue;
    private final DeadlineWatch watch;
    private final Thread watchThread;
    private final Janitor janitor;
    private final Thread janitorThread;
    private final List<Thread> workers = new ArrayList<>();
    private volatile boolean closed;

    /// Opens a store.
    ///
    /// @throws KvFerryException [ErrorCode#STORAGE_IO] when the folder cannot be used,
    ///   [ErrorCode#UNAVAILABLE] when direct I/O is demanded and not possible,
    ///   [ErrorCode#INCOMPATIBLE] when the folder is another namespace's, [ErrorCode#BAD_CONFIG]
    ///   when other users may write to it
    public static BlockStore open(StoreConfig config, StoreListener listener) {
        return open(config, listener, Platform.fileCalls());
    }

    /// The same on file calls that tests can bend.
    static BlockStore open(StoreConfig config, StoreListener listener, FileCalls calls) {
        StoreFolder folder =
                StoreFolder.open(config.root(), config.namespace(), config.checkFolder());
        boolean direct = DirectProbe.direct(config.directIo(), folder, calls);
        return new BlockStore(config, listener, calls, folder, direct);
    }

    private BlockStore(
            StoreConfig config,
            StoreListener listener,
            FileCalls calls,
            StoreFolder folder,
            boolean direct) {
        var wish = new EvictionWish();
        this.store =
                new StoreContext(
                        config,
                        folder,
                        calls,
                        direct,
                        new Catalog(config),
                        new FreeSpace(folder.folder(), config.space().reserveBytes()),
                        new StoreCounters(),
                        listener,
                        wish);
        this.janitor = new Janitor(store);
        wish.janitor = janitor;
        janitor.scanBlocks();
        janitor.reapTemps();
        int threads = config.pools().readThreads() + config.pools().writeThreads();
        this.queue = new IoQueue(config.pools().queueDepth(), threads);
        this.watch = new DeadlineWatch(queue, store.counters());
        for (int i = 0; i < threads; i++) {
            boolean reads = i < config.pools().readThreads();
            IoQueue.Role role =
                    reads
                            ? IoQueue.Role.READER
                            : i == config.pools().readThreads()
                                    ? IoQueue.Role.WRITER
                                    : IoQueue.Role.HELPER;
            workers.add(
                    start(
                            "disk-" + (reads ? "read-" : "write-") + i,
                            new IoWorker(store, queue, role, i)));
        }
        this.watchThread = start("disk-deadlines", watch);
        this.janitorThread = start("disk-janitor", janitor);
        if (store.catalog().aboveHighWatermark()) {
            janitor.wake();
        }
        LOG.info(
                "block store {} opened: {} blocks, {} bytes{}, {} I/O, durability {}",
                folder.folder(),
                store.catalog().blocks(),
                store.catalog().usedBytes(),
                config.space().quotaBytes() == StoreConfig.NO_QUOTA
                        ? ""
                        : " of " + config.space().quotaBytes(),
                direct ? "direct" : "buffered",
                config.durability());
    }

    /// Breaks the circle between the context, which asks for eviction, and the janitor, which uses
    /// the context.
    private static final class EvictionWish implements Runnable {
        private volatile @Nullable Janitor janitor;

        @Override
        public void run() {
            Janitor target = janitor;
            if (target != null) {
                target.wake();
            }
        }
    }

    private static Thread start(String name, Runnable loop) {
        return Thread.ofPlatform().name(name).daemon(true).start(loop);
    }

    /// Starts to save a block from `segments`, which must not change until `callback` is called.
    ///
    /// Ends with [BlockResult.Done#STORED], [BlockResult.Done#PRESENT] or a failure; never blocks.
    ///
    /// @return false when too many saves wait or the store is closed; nothing was started and
    ///   `callback` stays silent
    /// @throws KvFerryException [ErrorCode#INVALID_REQUEST] when the block is larger than the store
    ///   was told to expect
    public boolean save(
            BlockKey key,
            List<MemorySegment> segments,
            Deadline deadline,
            BlockCallback callback,
            long tag) {
        check(segments);
        return offer(IoRequest.Kind.SAVE, key, segments, NO_KEYS, deadline, callback, tag);
    }

    /// Starts to load a block into `segments`, whose lengths must be those that were saved.
    ///
    /// Ends with [BlockResult.Done#LOADED] or a failure; the segments are touched in the first case
    /// only.
    ///
    /// @return false when too many reads wait or the store is closed; nothing was started and
    ///   `callback` stays silent
    /// @throws KvFerryException [ErrorCode#INVALID_REQUEST] when the block is larger than the store
    ///   was told to expect
    public boolean load(
            BlockKey key,
            List<MemorySegment> segments,
            Deadline deadline,
            BlockCallback callback,
            long tag) {
        check(segments);
        return offer(IoRequest.Kind.LOAD, key, segments, NO_KEYS, deadline, callback, tag);
    }

    /// Starts to count how many of `keys`, from the front, are there; ends with
    /// [BlockResult.Located].
    ///
    /// @return as [#load]
    public boolean locate(
            List<BlockKey> keys, Deadline deadline, BlockCallback callback, long tag) {
        return offer(IoRequest.Kind.LOCATE, null, NO_SEGMENTS, keys, deadline, callback, tag);
    }

    /// How many of `keys`, from the front, were seen on disk within the last moments; no file
    /// system call.
    public int knownPrefix(List<BlockKey> keys) {
        long now = System.nanoTime();
        int count = 0;
        while (count < keys.size()
                && store.catalog().presence(keys.get(count).digest(), now)
                        == Catalog.Presence.FRESH) {
            count++;
        }
        return count;
    }

    /// Whether the block was there when it was last heard of, however long ago; no file system
    /// call.
    public boolean believes(BlockKey key) {
        return store.catalog().believes(key.digest(), System.nanoTime());
    }

    /// Takes note that another store on the folder, of this process or another, has just saved the
    /// block.
    public void expect(BlockKey key, long payloadBytes) {
        store.catalog().confirm(key.digest(), payloadBytes, System.nanoTime());
    }

    /// Keeps a known block from eviction by this process until [#unpin]; false when it is not
    /// known.
    public boolean pin(BlockKey key) {
        return store.catalog().pin(key.digest());
    }

    public void unpin(BlockKey key) {
        store.catalog().unpin(key.digest());
    }

    /// Makes lookups of the block miss for a few seconds: a read of it failed, here or in another
    /// process.
    public void distrust(BlockKey key) {
        store.catalog().distrust(key.digest(), System.nanoTime() + DISTRUST_NANOS);
    }

    /// Forgets what is believed about the block, so that the next lookup asks the file system.
    public void forget(BlockKey key) {
        store.catalog().forget(key.digest());
    }

    /// Deletes every block of the namespace, those of other processes too. Blocks the caller while
    /// it works.
    ///
    /// @return blocks deleted
    public long clear() {
        return janitor.clear();
    }

    public StoreStats stats() {
        return StoreStats.of(
                store.counters(),
                store.catalog(),
                queue.stalled(),
                store.config().space().quotaBytes(),
                store.direct());
    }

    public StoreConfig config() {
        return store.config();
    }

    /// Requests in flight end well or by their deadline; then the threads go. A thread that hangs
    /// in the file system is left behind as a daemon with its own memory. Idempotent.
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        queue.close();
        janitor.stop();
        boolean interrupted = false;
        try {
            boolean idle =
                    queue.awaitIdle(
                            store.config().times().io().toNanos() + Janitor.patience().toNanos());
            watch.stop(watchThread);
            if (idle) {
                for (Thread worker : workers) {
                    worker.join(Janitor.patience());
                }
            } else {
                LOG.warn(
                        "{} I/O threads hang in {} and are left behind",
                        queue.stalled(),
                        store.folder().folder());
            }
            janitorThread.join(Janitor.patience());
            watchThread.join(Janitor.patience());
        } catch (InterruptedException _) {
            interrupted = true;
        }
        watch.stop(watchThread);
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private boolean offer(
            IoRequest.Kind kind,
            @Nullable BlockKey key,
            List<MemorySegment> segments,
            List<BlockKey> keys,
            Deadline deadline,
            BlockCallback callback,
            long tag) {
        long latest = System.nanoTime() + store.config().times().io().toNanos();
        long nanos = deadline.nanoTime() - latest < 0 ? deadline.nanoTime() : latest;
        boolean accepted = queue.offer(kind, key, segments, keys, nanos, callback, tag);
        if (!accepted) {
            store.counters().refused.increment();
        }
        return accepted;
    }

    private void check(List<MemorySegment> segments) {
        if (segments.size() > RecordFormat.MAX_SEGMENTS) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "a block takes at most "
                            + RecordFormat.MAX_SEGMENTS
                            + " segments, not "
                            + segments.size());
        }
        long bytes = RecordFormat.payloadBytes(segments);
        if (bytes > store.config().maxBlockBytes()) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST,
                    "block of "
                            + bytes
                            + " bytes; this store was opened for at most "
                            + store.config().maxBlockBytes());
        }
    }
}
