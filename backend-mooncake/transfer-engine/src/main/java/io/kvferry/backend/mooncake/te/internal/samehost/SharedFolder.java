// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal.samehost;

import io.kvferry.toolkit.bounded.UncountedMemory;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/// File names of one incarnation in the shared-memory folder, readable by the same user only:
/// `.own` is locked by the living owner, `.use` by its users, `.ctl` is the control page, and
/// numbered `.mem` files are regions.
record SharedFolder(Path folder, String incarnation) {
    private static final Logger LOG = LoggerFactory.getLogger(SharedFolder.class);
    private static final Pattern NAME =
            Pattern.compile("kvferry-([0-9a-f]{32})(\\.own|\\.use|\\.ctl|-\\d+\\.mem)");

    /// Belongs to the user of this process.
    private static final Path OWN = Path.of("/proc/self/stat");

    private static final Duration GRACE = Duration.ofSeconds(10);
    private static final int FILL = 1 << 20;

    Path owner() {
        return file(".own");
    }

    Path users() {
        return file(".use");
    }

    Path control() {
        return file(".ctl");
    }

    Path region(long number) {
        return file("-" + number + ".mem");
    }

    private Path file(String suffix) {
        return folder.resolve("kvferry-" + incarnation + suffix);
    }

    static FileChannel create(Path path) throws IOException {
        return FileChannel.open(
                path,
                Set.of(
                        StandardOpenOption.CREATE_NEW,
                        StandardOpenOption.READ,
                        StandardOpenOption.WRITE),
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
    }

    /// Writes a new file full of zeros, so that the folder has room for each of its pages.
    ///
    /// @throws IOException when it has none
    static void occupy(FileChannel file, long bytes) throws IOException {
        int most = (int) Math.min(FILL, bytes);
        ByteBuffer zeros = UncountedMemory.allocate(most).fill((byte) 0).asByteBuffer();
        for (long left = bytes; left > 0; ) {
            zeros.clear().limit((int) Math.min(left, most));
            left -= file.write(zeros);
        }
    }

    /// Opens what a peer created.
    ///
    /// @throws AccessDeniedException when it belongs to another user, who could have put anything
    ///   there
    static FileChannel open(Path path) throws IOException {
        FileChannel file =
                FileChannel.open(
                        path,
                        StandardOpenOption.READ,
                        StandardOpenOption.WRITE,
                        LinkOption.NOFOLLOW_LINKS);
        // Checked after opening: if the file belongs to this user, no other user can have replaced
        // it.
        if (!owner(path).equals(owner(OWN))) {
            file.close();
            throw new AccessDeniedException(path.toString(), null, "belongs to another user");
        }
        return file;
    }

    private static Object owner(Path path) throws IOException {
        return Files.getAttribute(path, "unix:uid", LinkOption.NOFOLLOW_LINKS);
    }

    /// Deletes what killed processes left behind.
    static void sweep(Path folder) {
        try (DirectoryStream<Path> owners = Files.newDirectoryStream(folder, "kvferry-*.own")) {
            for (Path owner : owners) {
                Matcher name = NAME.matcher(owner.getFileName().toString());
                if (name.matches()
                        && !SharedLocks.isOpen(owner)
                        && isOld(owner)
                        && Files.isWritable(owner)
                        && isDead(owner)) {
                    new SharedFolder(folder, name.group(1)).delete();
                }
            }
        } catch (IOException e) {
            LOG.debug("looking for left-over files in {} failed: {}", folder, e.toString());
        }
    }

    /// A new file may not be locked yet.
    private static boolean isOld(Path owner) throws IOException {
        return Files.getLastModifiedTime(owner).toInstant().isBefore(Instant.now().minus(GRACE));
    }

    private static boolean isDead(Path owner) throws IOException {
        try (SharedLocks locks = SharedLocks.open(owner)) {
            Optional<FileLock> lock = locks.take(0);
            if (lock.isPresent()) {
                lock.get().release();
            }
            return lock.isPresent();
        }
    }

    void delete() {
        try (DirectoryStream<Path> files =
                Files.newDirectoryStream(folder, "kvferry-" + incarnation + "*")) {
            for (Path file : files) {
                if (NAME.matcher(file.getFileName().toString()).matches()) {
                    Files.deleteIfExists(file);
                }
            }
        } catch (IOException e) {
            LOG.warn(
                    "shared memory files of {} in {} stay behind: {}",
                    incarnation,
                    folder,
                    e.toString());
        }
    }
}
