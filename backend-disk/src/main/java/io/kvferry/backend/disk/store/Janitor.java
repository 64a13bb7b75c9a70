// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/// Background order: evicts between the watermarks, compares the catalog with the folder, deletes
/// what dead writers left behind.
final class Janitor implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger(Janitor.class);

    private record Found(BlockDigest digest, long bytes, long modifiedMillis) {}

    private final StoreContext store;
    private boolean evict;
    private boolean stopped;
    private int scan;

    Janitor(StoreContext store) {
        this.store = store;
    }

    @Override
    public void run() {
        try (Arena arena = Arena.ofConfined()) {
            var evictor = new Evictor(store, store.folder().names(arena, -1));
            while (awaitWork()) {
                while (evictor.evictAboveLowWatermark()) {
                    // one file at a time, so that the catalog is never held
                }
            }
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt(); // nobody but a host that is tearing down does this
        }
    }

    /// Asks for eviction; cheap, from any thread.
    synchronized void wake() {
        if (!evict) {
            evict = true;
            notifyAll();
        }
    }

    synchronized void stop() {
        stopped = true;
        notifyAll();
    }

    /// Waits for a wish to evict, scanning when the interval is over; false when stopped.
    private boolean awaitWork() throws InterruptedException {
        long nextScan = System.nanoTime() + store.config().times().scanInterval().toNanos();
        while (true) {
            synchronized (this) {
                long left = nextScan - System.nanoTime();
                while (!evict && !stopped && left > 0) {
                    TimeUnit.NANOSECONDS.timedWait(this, left);
                    left = nextScan - System.nanoTime();
                }
                if (stopped) {
                    return false;
                }
                if (evict) {
                    evict = false;
                    return true;
                }
            }
            tidy();
            if (store.catalog().aboveHighWatermark()) {
                return true;
            }
            nextScan = System.nanoTime() + store.config().times().scanInterval().toNanos();
        }
    }

    private void tidy() {
        try {
            scanBlocks();
            reapTemps();
        } catch (KvFerryException e) {
            LOG.warn("disk store is not tidied this time: {}", e.getMessage());
        }
    }

    /// Adopts blocks of other processes and earlier lives, oldest first, and forgets what is gone.
    ///
    /// @throws KvFerryException [ErrorCode#STORAGE_IO] when the folder cannot be read
    void scanBlocks() {
        long startedAt = System.nanoTime();
        List<Found> found = listBlocks();
        found.sort(Comparator.comparingLong(Found::modifiedMillis));
        scan++;
        for (Found file : found) {
            store.catalog().scanned(file.digest(), file.bytes(), startedAt, scan);
        }
        for (BlockDigest gone : store.catalog().sweep(scan, startedAt)) {
            store.listener().removed(gone);
        }
    }

    /// Deletes unfinished files that nobody has written to for long.
    void reapTemps() {
        long oldestAllowed =
                System.currentTimeMillis() - store.config().times().tempMaxAge().toMillis();
        walk(
                store.folder().temps(),
                (file, attributes) -> {
                    if (attributes.lastModifiedTime().toMillis() <= oldestAllowed
                            && Files.deleteIfExists(file)) {
                        store.counters().reapedTemps.increment();
                    }
                });
    }

    /// Deletes every block; answers how many.
    long clear() {
        var deleted = new AtomicLong();
        walk(
                store.folder().blocks(),
                (file, _) -> {
                    if (Files.deleteIfExists(file)) {
                        deleted.incrementAndGet();
                    }
                });
        for (BlockDigest gone : store.catalog().clear()) {
            store.listener().removed(gone);
        }
        return deleted.get();
    }

    private List<Found> listBlocks() {
        var found = new ArrayList<Found>();
        walk(
                store.folder().blocks(),
                (file, attributes) -> {
                    String name = file.getFileName().toString();
                    if (name.length() != BlockDigest.HEX_CHARS + StoreFolder.SUFFIX.length()
                            || !name.endsWith(StoreFolder.SUFFIX)) {
                        return;
                    }
                    // No whole block is empty or unaligned; such a file can only cost readers a
                    // try.
                    if (attributes.size() == 0 || attributes.size() % Staging.ALIGNMENT != 0) {
                        Files.deleteIfExists(file);
                        store.counters().corrupt.increment();
                        return;
                    }
                    BlockDigest digest =
                            BlockDigest.ofHex(name.substring(0, BlockDigest.HEX_CHARS));
                    found.add(
                            new Found(
                                    digest,
                                    attributes.size(),
                                    attributes.lastModifiedTime().toMillis()));
                });
        return found;
    }

    @FunctionalInterface
    private interface Visit {
        void file(Path file, BasicFileAttributes attributes) throws IOException;
    }

    private static void walk(Path folder, Visit visit) {
        try {
            Files.walkFileTree(
                    folder,
                    new SimpleFileVisitor<>() {
                        @Override
                        public FileVisitResult visitFile(Path file, BasicFileAttributes attributes)
                                throws IOException {
                            visit.file(file, attributes);
                            return FileVisitResult.CONTINUE;
                        }

                        @Override
                        public FileVisitResult visitFileFailed(Path file, IOException e) {
                            return FileVisitResult.CONTINUE; // another process deleted it meanwhile
                        }
                    });
        } catch (IOException e) {
            throw FileTrouble.exception("cannot look through " + folder, e);
        }
    }

    /// How long a stop may take at most, beside a scan in progress.
    static Duration patience() {
        return Duration.ofSeconds(5);
    }
}
