// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

/// The error numbers of Linux that stores on disk tell apart (asm-generic/errno-base.h and
/// errno.h).
public final class Errno {
    public static final int EPERM = 1;
    public static final int ENOENT = 2;
    public static final int EINTR = 4;
    public static final int EIO = 5;
    public static final int EAGAIN = 11;
    public static final int ENOMEM = 12;
    public static final int EACCES = 13;
    public static final int EFAULT = 14;
    public static final int EEXIST = 17;
    public static final int ENOTDIR = 20;
    public static final int EINVAL = 22;
    public static final int ENOSPC = 28;
    public static final int EROFS = 30;
    public static final int ENAMETOOLONG = 36;
    public static final int ENOSYS = 38;
    public static final int ELOOP = 40;
    public static final int EOPNOTSUPP = 95;
    public static final int ESTALE = 116;
    public static final int EDQUOT = 122;
    public static final int ECANCELED = 125;
    public static final int ENODATA = 61;
    public static final int EBADMSG = 74;
    public static final int EUCLEAN = 117;
    public static final int EREMOTEIO = 121;

    /// Not the system's: the path names something that is not a regular file.
    public static final int NOT_REGULAR = 4096;

    private Errno() {}

    /// Whether the medium or a file system quota is full.
    public static boolean isFull(int errno) {
        return errno == ENOSPC || errno == EDQUOT;
    }

    /// Whether the medium, rather than the request or the machine's load, is the cause.
    public static boolean isMedium(int errno) {
        return switch (errno) {
            case EIO, ENODATA, EBADMSG, EUCLEAN, EREMOTEIO -> true;
            default -> false;
        };
    }

    /// Whether the file is gone: a network file system says so of one that another host deleted.
    public static boolean isGone(int errno) {
        return errno == ENOENT || errno == ESTALE;
    }

    public static String text(int errno) {
        return switch (errno) {
            case EPERM -> "EPERM";
            case ENOENT -> "ENOENT";
            case EINTR -> "EINTR";
            case EIO -> "EIO";
            case EAGAIN -> "EAGAIN";
            case ENOMEM -> "ENOMEM";
            case EACCES -> "EACCES";
            case EFAULT -> "EFAULT";
            case EEXIST -> "EEXIST";
            case ENOTDIR -> "ENOTDIR";
            case EINVAL -> "EINVAL";
            case ENOSPC -> "ENOSPC";
            case EROFS -> "EROFS";
            case ENAMETOOLONG -> "ENAMETOOLONG";
            case ENOSYS -> "ENOSYS";
            case ELOOP -> "ELOOP";
            case EOPNOTSUPP -> "EOPNOTSUPP";
            case ESTALE -> "ESTALE";
            case EDQUOT -> "EDQUOT";
            case ECANCELED -> "ECANCELED";
            case ENODATA -> "ENODATA";
            case EBADMSG -> "EBADMSG";
            case EUCLEAN -> "EUCLEAN";
            case EREMOTEIO -> "EREMOTEIO";
            case NOT_REGULAR -> "not a regular file";
            default -> "errno " + errno;
        };
    }
}
