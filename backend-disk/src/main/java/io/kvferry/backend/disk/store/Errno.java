// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

/// The error numbers of Linux that the store tells apart (asm-generic/errno-base.h and errno.h).
final class Errno {
    static final int ENOENT = 2;
    static final int EINTR = 4;
    static final int EIO = 5;
    static final int ENOMEM = 12;
    static final int EACCES = 13;
    static final int EFAULT = 14;
    static final int EEXIST = 17;
    static final int EINVAL = 22;
    static final int ENOSPC = 28;
    static final int ENOSYS = 38;
    static final int EDQUOT = 122;
    static final int ECANCELED = 125;
    static final int ENODATA = 61;
    static final int EBADMSG = 74;
    static final int EUCLEAN = 117;
    static final int EREMOTEIO = 121;

    /// Not the system's: the path names something that is not a regular file.
    static final int NOT_REGULAR = 4096;

    private Errno() {}

    /// Whether the medium or a file system quota is full.
    static boolean isFull(int errno) {
        return errno == ENOSPC || errno == EDQUOT;
    }

    /// Whether the medium, rather than the request or the machine's load, is the cause.
    static boolean isMedium(int errno) {
        return switch (errno) {
            case EIO, ENODATA, EBADMSG, EUCLEAN, EREMOTEIO -> true;
            default -> false;
        };
    }

    static String text(int errno) {
        return switch (errno) {
            case ENOENT -> "ENOENT";
            case EINTR -> "EINTR";
            case EIO -> "EIO";
            case ENOMEM -> "ENOMEM";
            case EACCES -> "EACCES";
            case EFAULT -> "EFAULT";
            case EEXIST -> "EEXIST";
            case EINVAL -> "EINVAL";
            case ENOSPC -> "ENOSPC";
            case ENOSYS -> "ENOSYS";
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
