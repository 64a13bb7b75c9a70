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
import java.nio.file.attribute.UserPrincipal;
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

    private static final int STICKY_BIT = 01000;

    private PrivateFolder() {}

    /// Makes a folder and its missing parents with mode 0700; leaves what is there as it is.
    ///
    /// @return the folder with its symbolic links resolved: who works with that path does not go
    ///   elsewhere when a link is changed
    public static Path make(Path folder) throws IOException {
        if (hasModes(folder)) {
            Files.createDirectories(folder, FOLDER_MODE);
        } else {
            Files.createDirectories(folder);
        }
        return folder.toRealPath();
    }

    /// Makes a new file with mode 0600.
    public static void makeFile(Path file) throws IOException {
        if (hasModes(file)) {
            Files.createFile(file, FILE_MODE);
        } else {
            Files.createFile(file);
        }
    }

    /// Refuses a folder into which another user could put files, or which another user could
    /// replace. The folder itself has to belong to this user, and nobody else may write to it; each
    /// folder above it has to belong to this user or root, and others may write to it only if its
    /// sticky bit keeps them from renaming what is not theirs, as that of `/tmp` does. Symbolic
    /// links are followed first.
    ///
    /// @param own a file that this process made; its owner is who the process is
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] with the owner or mode found
    public static void check(Path folder, Path own) throws IOException {
        if (!hasModes(folder)) {
            return;
        }
        var user = Files.getOwner(own, LinkOption.NOFOLLOW_LINKS);
        Path real = folder.toRealPath();
        checkItself(real, user);
        for (Path each = real.getParent(); each != null; each = each.getParent()) {
            checkAbove(each, real, user);
        }
    }

    private static void checkItself(Path folder, UserPrincipal user) throws IOException {
        var attributes = Files.readAttributes(folder, PosixFileAttributes.class);
        if (othersMayWrite(attributes)) {
            throw refused(
                    "folder " + folder + " is writable by other users" + mode(attributes),
                    "run chmod go-w on it");
        }
        if (!attributes.owner().equals(user)) {
            throw refused(
                    "folder " + folder + " belongs to" + owner(attributes, user),
                    "run chown on it");
        }
    }

    private static void checkAbove(Path above, Path folder, UserPrincipal user) throws IOException {
        var attributes = Files.readAttributes(above, PosixFileAttributes.class);
        var what = "other users may replace folder " + folder + ": " + above + ", above it, ";
        if (othersMayWrite(attributes) && !isSticky(above)) {
            throw refused(
                    what + "is writable by them" + mode(attributes),
                    "run chmod go-w or chmod +t on " + above);
        }
        if (!attributes.owner().equals(user) && !isOfRoot(above)) {
            throw refused(what + "belongs to" + owner(attributes, user), "run chown on " + above);
        }
    }

    /// Whether everybody may write to a folder above this one, with or without a sticky bit:
    /// anybody may then take the name of a folder that is not there yet.
    public static boolean isBelowPublicFolder(Path folder) throws IOException {
        Path there = folder.toAbsolutePath().normalize().getParent();
        while (there != null && !Files.exists(there)) {
            there = there.getParent();
        }
        if (there == null || !hasModes(folder)) {
            return false;
        }
        for (Path each = there.toRealPath(); each != null; each = each.getParent()) {
            if (Files.getPosixFilePermissions(each).contains(PosixFilePermission.OTHERS_WRITE)) {
                return true;
            }
        }
        return false;
    }

    private static boolean othersMayWrite(PosixFileAttributes attributes) {
        var permissions = attributes.permissions();
        return permissions.contains(PosixFilePermission.GROUP_WRITE)
                || permissions.contains(PosixFilePermission.OTHERS_WRITE);
    }

    private static boolean isSticky(Path folder) throws IOException {
        return hasNumbers(folder)
                && ((int) Files.getAttribute(folder, "unix:mode") & STICKY_BIT) != 0;
    }

    private static boolean isOfRoot(Path folder) throws IOException {
        return hasNumbers(folder) && (int) Files.getAttribute(folder, "unix:uid") == 0;
    }

    private static String mode(PosixFileAttributes attributes) {
        return " (mode " + PosixFilePermissions.toString(attributes.permissions()) + ")";
    }

    private static String owner(PosixFileAttributes attributes, UserPrincipal user) {
        return " user " + attributes.owner().getName() + ", this process runs as " + user.getName();
    }

    private static KvFerryException refused(String why, String mend) {
        return new KvFerryException(
                ErrorCode.BAD_CONFIG,
                why
                        + "; "
                        + mend
                        + ", choose another folder, or switch the check off where all its writers are trusted");
    }

    /// Whether modes and owners can be had as numbers, which the JDK's other views do not tell.
    private static boolean hasNumbers(Path path) {
        return path.getFileSystem().supportedFileAttributeViews().contains("unix");
    }

    private static boolean hasModes(Path path) {
        return path.getFileSystem().supportedFileAttributeViews().contains("posix");
    }
}
