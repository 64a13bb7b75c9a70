// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.files;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.io.EOFException;
import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ClosedChannelException;
import java.nio.charset.CharacterCodingException;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.util.Objects;

/// Says in words what a failed file call means and how to mend it; the JDK's own messages are often
/// a bare path, and their meaning is in the name of the class.
public final class FileTrouble {
    private FileTrouble() {}

    /// One line, e.g. `cannot read /m/config.json: there is no such file; check the path`.
    ///
    /// @param what the action and its file or folder; the file that failed is added where `what`
    ///   does not name it
    public static String describe(String what, IOException e) {
        var where =
                e instanceof FileSystemException known
                                && known.getFile() != null
                                && !what.contains(known.getFile())
                        ? known.getFile() + ": "
                        : "";
        return what + ": " + where + inWords(e);
    }

    /// As an exception, with [ErrorCode#STORAGE_IO].
    public static KvFerryException exception(String what, IOException e) {
        return new KvFerryException(ErrorCode.STORAGE_IO, describe(what, e), e);
    }

    /// Whether the file system, or its quota, has no room left.
    public static boolean isFull(IOException e) {
        var reason = reason(e);
        return reason.contains("No space left") || reason.contains("quota exceeded");
    }

    private static String inWords(IOException e) {
        return switch (e) {
            case NoSuchFileException _ -> "there is no such file or folder; check the path";
            case AccessDeniedException _ -> denied();
            case FileAlreadyExistsException _ ->
                    "something else of that name is there; remove it or choose another path";
            case NotDirectoryException _ -> "it is not a folder; name a folder";
            case DirectoryNotEmptyException _ -> "the folder is not empty; look what else uses it";
            case CharacterCodingException _ -> "it is not UTF-8 text";
            case EOFException _ -> "it ends too early; it may have been cut off, write it again";
            case ClosedByInterruptException _ -> "the thread was interrupted meanwhile";
            case ClosedChannelException _ -> "it was closed meanwhile";
            default -> inWords(e, reason(e));
        };
    }

    /// The reasons are strerror's; the JDK has no types for them.
    private static String inWords(IOException e, String reason) {
        if (isFull(e)) {
            return "the file system is full; free some space or name a folder elsewhere";
        }
        return switch (reason) {
            case "Permission denied", "Operation not permitted" -> denied();
            case "Read-only file system" ->
                    "the file system is read-only; mount it writable or name a folder elsewhere";
            case "Is a directory" -> "it is a folder; name a file";
            case "Not a directory" -> "a part of the path is a file where a folder should be";
            case "Too many open files", "Too many open files in system" ->
                    "too many files are open; raise the limit (ulimit -n)";
            case "Input/output error" ->
                    "the device reports an I/O error; look into the system's log";
            case "" -> "the system gives no reason";
            default -> reason;
        };
    }

    private static String denied() {
        return "user "
                + System.getProperty("user.name")
                + " has no permission; change its owner or mode";
    }

    private static String reason(IOException e) {
        return e instanceof FileSystemException known
                ? Objects.requireNonNullElse(known.getReason(), "")
                : Objects.requireNonNullElse(e.getMessage(), "");
    }
}
