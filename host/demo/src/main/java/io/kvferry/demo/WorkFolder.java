// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.concurrent.locks.ReentrantLock;

/// The temporary folder of a run. Once deletion has started nothing is created in it, so that a
/// signal during the start leaves no folder behind.
///
/// Threading: any thread.
final class WorkFolder {
    private static final Logger LOG = LoggerFactory.getLogger(WorkFolder.class);

    private final Path path;
    private final ReentrantLock lock = new ReentrantLock();
    private boolean closed;

    private WorkFolder(Path path) {
        this.path = path;
    }

    /// @throws KvFerryException IO
    static WorkFolder create(String prefix) {
        try {
            return new WorkFolder(Files.createTempDirectory(prefix));
        } catch (IOException e) {
            throw FileTrouble.exception("cannot make a temporary folder", e);
        }
    }

    /// What makes files in the folder, or lets others make them.
    @FunctionalInterface
    interface Maker {
        void make(Path folder) throws IOException;
    }

    /// Lets `maker` make files.
    ///
    /// @throws KvFerryException CLOSED after [#close]
    void make(Maker maker) throws IOException {
        lock.lock();
        try {
            if (closed) {
                throw new KvFerryException(ErrorCode.CLOSED, "interrupted");
            }
            maker.make(path);
        } finally {
            lock.unlock();
        }
    }

    /// Waits for a [#make] under way, and refuses later ones.
    ///
    /// @return whether this was the first call
    boolean close() {
        lock.lock();
        try {
            boolean first = !closed;
            closed = true;
            return first;
        } finally {
            lock.unlock();
        }
    }

    /// Deletes the folder with its contents. Call it once no process writes there any more.
    void delete() {
        try {
            Files.walkFileTree(path, new Deletion());
        } catch (IOException e) {
            LOG.warn("cannot delete {}: {}", path, e.toString());
        }
    }

    @Override
    public String toString() {
        return path.toString();
    }

    private static final class Deletion extends SimpleFileVisitor<Path> {
        @Override
        public FileVisitResult visitFile(Path file, BasicFileAttributes attributes)
                throws IOException {
            Files.deleteIfExists(file);
            return FileVisitResult.CONTINUE;
        }

        /// Deleted meanwhile by a child that was closing.
        @Override
        public FileVisitResult visitFileFailed(Path file, IOException failure) {
            return FileVisitResult.CONTINUE;
        }

        @Override
        public FileVisitResult postVisitDirectory(Path folder, IOException failure)
                throws IOException {
            Files.deleteIfExists(folder);
            return FileVisitResult.CONTINUE;
        }
    }
}
