// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.files;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;

/// Folders and files that only their user can read and write.
///
/// On file systems without POSIX owners and modes folders are made as the platform makes them, and
/// nothing is checked.
///
/// Threading: any thread.
public final class PrivateFolder {
    private static final FileAttribute<Set<PosixFilePermission>> FOLDER_MODE =
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));
    private static final FileAttribute<Set<PosixFilePermission>> FILE_MODE =
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

    private PrivateFolder() {}

    /// Makes a folder and its missing parents with mode 0700; leaves what is there as it is.
    public static void make(Path folder) throws IOException {
        if (hasModes(folder)) {
            Files.createDirectories(folder, FOLDER_MODE);
        } else {
            Files.createDirectories(folder);
        }
    }

    /// Makes a new file with mode 0600.
    public static void makeFile(Path file) throws IOException {
        if (hasModes(file)) {
            Files.createFile(file, FILE_MODE);
        } else {
            Files.createFile(file);
        }
    }

    /// Refuses a folder into which another user could put files: one that somebody else owns, or
    /// whose group or everybody may write to it.
    ///
    /// @param own a file that this process made; its owner is who the process is
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] with the owner or mode found
    public static void check(Path folder, Path own) throws IOException {
        if (!hasModes(folder)) {
            return;
        }
        var attributes =
                Files.readAttributes(folder, PosixFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
        var permissions = attributes.permissions();
        if (permissions.contains(PosixFilePermission.GROUP_WRITE)
                || permissions.contains(PosixFilePermission.OTHERS_WRITE)) {
            throw refused(
                    folder,
                    "is writable by other users (mode "
                            + PosixFilePermissions.toString(permissions)
                            + "); run chmod go-w on it");
        }
        var user = Files.getOwner(own, LinkOption.NOFOLLOW_LINKS);
        if (!attributes.owner().equals(user)) {
            throw refused(
                    folder,
                    "belongs to user "
                            + attributes.owner().getName()
                            + ", this process runs as "
                            + user.getName()
                            + "; run chown on it");
        }
    }

    private static KvFerryException refused(Path folder, String why) {
        return new KvFerryException(
                ErrorCode.BAD_CONFIG,
                "folder "
                        + folder
                        + " "
                        + why
                        + ", choose another folder, or switch the check off where all its writers are trusted");
    }

    private static boolean hasModes(Path path) {
        return path.getFileSystem().supportedFileAttributeViews().contains("posix");
    }
}
