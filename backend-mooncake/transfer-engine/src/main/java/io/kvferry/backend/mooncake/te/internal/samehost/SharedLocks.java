// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.locks.ReentrantLock;

/// Byte-range locks on a file, by which processes see whether another one lives: the system
/// releases the locks of a process that ends, however it ends.
///
/// A process loses all its locks on a file when it closes any descriptor of it. So there is one
/// open channel per file in a JVM, counted, and closed by its last user.
final class SharedLocks implements AutoCloseable {
    private static final ReentrantLock LOCK = new ReentrantLock();
    private static final Map<Path, SharedLocks> OPEN = new HashMap<>();

    private final Path path;
    private final FileChannel channel;
    private int users = 1;

    private SharedLocks(Path path, FileChannel channel) {
        this.path = path;
        this.channel = channel;
    }

    static SharedLocks open(Path path) throws IOException {
        LOCK.lock();
        try {
            SharedLocks known = OPEN.get(path);
            if (known != null) {
                known.users++;
                return known;
            }
            var file =
                    FileChannel.open(
                            path,
                            StandardOpenOption.READ,
                            StandardOpenOption.WRITE,
                            LinkOption.NOFOLLOW_LINKS);
            boolean done = false;
            try {
                var opened = new SharedLocks(path, file);
                OPEN.put(path, opened);
                done = true;
                return opened;
            } finally {
                if (!done) { // after an OutOfMemoryError, also of the map
                    OPEN.remove(path);
                    file.close();
                }
            }
        } finally {
            LOCK.unlock();
        }
    }

    /// Whether this JVM has the file open already, as owner or as user.
    static boolean isOpen(Path path) {
        LOCK.lock();
        try {
            return OPEN.containsKey(path);
        } finally {
            LOCK.unlock();
        }
    }

    /// Takes the lock on one byte; empty when anybody holds it, this JVM included.
    Optional<FileLock> take(long index) throws IOException {
        try {
            return Optional.ofNullable(channel.tryLock(index, 1, false));
        } catch (OverlappingFileLockException e) {
            return Optional.empty();
        }
    }

    @Override
    public void close() throws IOException {
        LOCK.lock();
        try {
            if (--users == 0) {
                OPEN.remove(path);
                channel.close();
            }
        } finally {
            LOCK.unlock();
        }
    }
}
