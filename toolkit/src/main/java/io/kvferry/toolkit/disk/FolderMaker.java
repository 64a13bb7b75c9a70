// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.files.FileTrouble;
import io.kvferry.toolkit.files.PrivateFolder;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.List;

/// The folders of a store: for their user alone (mode 0700), and with names that are synced where
/// their files are, also if another process made the folder just now and has not synced its name.
///
/// Threading: any thread; any number of processes may make the same folders.
public final class FolderMaker {
    private static final Path PROCESS = Path.of("/proc/self");

    private final FilePublisher publisher;

    public FolderMaker(FilePublisher publisher) {
        this.publisher = publisher;
    }

    /// Makes a root with its missing parents. Parents that are there keep their modes.
    ///
    /// @param root absolute and normalised
    /// @return the root with its symbolic links resolved
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when none can be made there, because of the
    ///   path or its permissions, [ErrorCode#STORAGE_IO] when that fails
    public Path makeRoot(Path root) throws IOException {
        var missing = new ArrayDeque<Path>();
        for (Path each = root; each != null; each = each.getParent()) {
            missing.push(each);
            if (each != root && Files.exists(each)) {
                missing.pop();
                break;
            }
        }
        missing.forEach(this::make);
        syncParents(root);
        return root.toRealPath();
    }

    /// Brings the names of the folders above a root to the medium with [Durability#STRICT].
    public void syncParents(Path root) {
        try (Arena arena = Arena.ofConfined()) {
            // One that cannot be opened was not made by a store of this user.
            for (Path each = root.getParent(); each != null; each = each.getParent()) {
                publisher.syncNames(PathText.of(arena, each));
            }
        }
    }

    /// Makes a folder; with [Durability#STRICT] its name is durable afterwards.
    ///
    /// @throws KvFerryException as [#makeRoot]
    public void make(Path folder) {
        Path parent = folder.getParent();
        if (parent == null) {
            return;
        }
        try (Arena arena = Arena.ofConfined()) {
            require(
                    publisher.makeFolder(PathText.of(arena, folder), PathText.of(arena, parent)),
                    folder);
        }
    }

    /// Makes a folder whose name is made durable later, with that of the first file in it.
    ///
    /// @throws KvFerryException as [#makeRoot]
    public void makeUnsynced(Path folder) {
        try (Arena arena = Arena.ofConfined()) {
            require(publisher.makeFolder(PathText.of(arena, folder)), folder);
        }
    }

    /// Refuses folders that another user owns, may write to or could replace, as
    /// [PrivateFolder#check].
    ///
    /// @param probe a path that is not taken, for a file whose owner is who this process is; on a
    ///   full file system, in which the store may make room itself, Linux is asked instead
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] with the owner or mode found
    public static void checkAccess(List<Path> folders, Path probe) throws IOException {
        try {
            Path own = makeOwn(probe);
            for (Path each : folders) {
                PrivateFolder.check(each, own);
            }
        } finally {
            Files.deleteIfExists(probe);
        }
    }

    private static Path makeOwn(Path probe) throws IOException {
        try {
            PrivateFolder.makeFile(probe);
            return probe;
        } catch (IOException e) {
            if (FileTrouble.isFull(e) && Files.exists(PROCESS)) {
                return PROCESS.toRealPath(); // a folder of its user
            }
            throw e;
        }
    }

    private static void require(int rc, Path folder) {
        if (rc < 0) {
            throw new KvFerryException(
                    isMistake(-rc) ? ErrorCode.BAD_CONFIG : ErrorCode.STORAGE_IO,
                    "cannot make folder " + folder + " of a store: " + reason(-rc));
        }
    }

    /// Whether another folder has to be named, rather than the machine to be looked at.
    private static boolean isMistake(int errno) {
        return switch (errno) {
            case Errno.EPERM,
                    Errno.ENOENT,
                    Errno.EACCES,
                    Errno.ENOTDIR,
                    Errno.EROFS,
                    Errno.ENAMETOOLONG,
                    Errno.ELOOP ->
                    true;
            default -> false;
        };
    }

    private static String reason(int errno) {
        return switch (errno) {
            case Errno.ENOTDIR ->
                    "a part of the path is a file where a folder should be; name another folder";
            case Errno.EPERM, Errno.EACCES ->
                    "user "
                            + System.getProperty("user.name")
                            + " has no permission; name another folder or change its mode";
            case Errno.EROFS -> "the file system is read-only; name a folder elsewhere";
            case Errno.ENOENT -> "the file system takes no new folder there; name another folder";
            default -> Errno.text(errno);
        };
    }
}
