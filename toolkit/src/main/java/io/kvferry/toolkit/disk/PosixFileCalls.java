// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.Arena;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;

/// [FileCalls] straight on libc of 64-bit Linux. Unlike a FileChannel, opening a file here
/// allocates no object.
final class PosixFileCalls implements FileCalls {
    // Links libc with this class, so that [Platform] learns when that is not possible.
    private static final VarHandle ERRNO =
            Libc.STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));
    private static final ThreadLocal<MemorySegment> STATE =
            ThreadLocal.withInitial(() -> Arena.ofAuto().allocate(Libc.STATE));

    // asm-generic/fcntl.h, and arch/arm64/include/uapi/asm/fcntl.h, which swaps two of them.
    private static final boolean ARM = arch().equals("aarch64");
    private static final int O_WRONLY = 1;
    private static final int O_RDWR = 2;
    private static final int O_CREAT = 0x40;
    private static final int O_EXCL = 0x80;
    private static final int O_CLOEXEC = 0x80000;
    private static final int O_DIRECT = ARM ? 0x10000 : 0x4000;
    private static final int O_DIRECTORY = ARM ? 0x4000 : 0x10000;
    private static final int O_NONBLOCK = 0x800;
    private static final int O_NOFOLLOW = ARM ? 0x8000 : 0x20000;
    private static final int FILE_MODE = 0600;
    private static final int FOLDER_MODE = 0700;
    private static final int LOCK_SH = 1;
    private static final int LOCK_EX = 2;
    private static final int LOCK_NB = 4;
    private static final int LOCK_UN = 8;
    private static final long UTIME_OMIT = 0x3ffffffe;
    private static final long NANOS_PER_SECOND = 1_000_000_000;
    private static final int AT_FDCWD = -100;
    private static final int FALLOC_FL_KEEP_SIZE = 1;
    private static final int EISDIR = 21;
    private static final int ESPIPE = 29;
    private static final long SYS_GETDENTS64 = ARM ? 61 : 217; // asm/unistd.h
    private static final long SYS_CACHESTAT = 451; // on every architecture, since Linux 6.5
    private static final long PAGE_BYTES = 4096; // at least
    private static final int RENAME_NOREPLACE = 1;
    private static final int IOV_MAX = 1024; // linux/uio.h, UIO_MAXIOV
    private static final int RWF_NOWAIT = 8; // linux/fs.h
    // linux/stat.h: struct statx is the same on every architecture.
    private static final int STATX_WANTED = 0x241; // type, modification time, size
    private static final long STX_MTIME_AT = 112;
    private static final int AT_SYMLINK_NOFOLLOW = 0x100;
    private static final long STX_MODE_AT = 28;
    private static final int S_IFMT = 0xF000;
    private static final int S_IFREG = 0x8000;
    private static final long STX_SIZE_AT = 40;
    private static final long STATX_BYTES = 256;
    private static final ThreadLocal<MemorySegment> STATUS =
            ThreadLocal.withInitial(() -> Arena.ofAuto().allocate(STATX_BYTES, Long.BYTES));

    // struct cachestat_range: offset and length.
    private static final ThreadLocal<MemorySegment> CACHE_RANGE =
            ThreadLocal.withInitial(() -> Arena.ofAuto().allocate(2 * Long.BYTES, Long.BYTES));

    // struct cachestat: pages in the cache, and four more numbers.
    private static final ThreadLocal<MemorySegment> CACHED =
            ThreadLocal.withInitial(() -> Arena.ofAuto().allocate(5 * Long.BYTES, Long.BYTES));

    private static final ThreadLocal<MemorySegment> TIMES =
            ThreadLocal.withInitial(() -> Arena.ofAuto().allocate(4 * Long.BYTES, Long.BYTES));

    static {
        // A class of the JDK that does not load the first time, as in a full heap, never does.
        MemorySegment each = STATUS.get();
        each.set(JAVA_SHORT, 0, each.get(JAVA_SHORT, 0));
        each.set(JAVA_INT, 0, each.get(JAVA_INT, 0));
        each.set(JAVA_LONG, 0, each.get(JAVA_LONG, 0));
    }

    private final Naming naming;

    /// Call through [FileCalls#ofPlatform], which knows where this class cannot be loaded.
    PosixFileCalls() {
        this(new LibcNaming());
    }

    PosixFileCalls(Naming naming) {
        this.naming = naming;
    }

    private static String arch() {
        return System.getProperty("os.arch");
    }

    @Override
    public int openRead(MemorySegment path, boolean direct) {
        int handle = open(path, O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | (direct ? O_DIRECT : 0));
        if (handle == -Errno.ENOENT) {
            return handle;
        }
        // A link is ELOOP, a FIFO with O_DIRECT EINVAL. Other files that are not regular are found
        // when they are read: asking here would be one more call per block.
        return handle < 0 && look(path) == -Errno.NOT_REGULAR ? -Errno.NOT_REGULAR : handle;
    }

    @Override
    public int createNew(MemorySegment path, boolean direct) {
        return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | (direct ? O_DIRECT : 0));
    }

    @Override
    public int allocate(int handle, long bytes, boolean keepLength) {
        MemorySegment state = STATE.get();
        try {
            int mode = keepLength ? FALLOC_FL_KEEP_SIZE : 0;
            return answer((int) Libc.FALLOCATE.invokeExact(state, handle, mode, 0L, bytes), state);
        } catch (Throwable e) {
            throw unexpected("fallocate", e);
        }
    }

    @Override
    public int openOver(MemorySegment path, boolean direct) {
        return open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | (direct ? O_DIRECT : 0));
    }

    private static int open(MemorySegment path, int flags) {
        MemorySegment state = STATE.get();
        try {
            return answer((int) Libc.OPEN.invokeExact(state, path, flags, FILE_MODE), state);
        } catch (Throwable e) {
            throw unexpected("open", e);
        }
    }

    @Override
    public long read(int handle, MemorySegment buffer, long at, long length, long offset) {
        MemorySegment state = STATE.get();
        try {
            long n = (long) Libc.PREAD.invokeExact(state, handle, from(buffer, at), length, offset);
            return n >= 0 ? n : -readErrno(errno(state));
        } catch (Throwable e) {
            throw unexpected("pread", e);
        }
    }

    private static int readErrno(int errno) {
        return errno == EISDIR || errno == ESPIPE ? Errno.NOT_REGULAR : errno;
    }

    @Override
    public long write(int handle, MemorySegment buffer, long at, long length, long offset) {
        MemorySegment state = STATE.get();
        try {
            long n =
                    (long) Libc.PWRITE.invokeExact(state, handle, from(buffer, at), length, offset);
            return n >= 0 ? n : -errno(state);
        } catch (Throwable e) {
            throw unexpected("pwrite", e);
        }
    }

    @Override
    public int gatherLimit() {
        return IOV_MAX;
    }

    @Override
    public long gather(int handle, MemorySegment ranges, int count, long offset) {
        MemorySegment state = STATE.get();
        try {
            long n = (long) Libc.PWRITEV.invokeExact(state, handle, ranges, count, offset);
            return n >= 0 ? n : -errno(state);
        } catch (Throwable e) {
            throw unexpected("pwritev", e);
        }
    }

    @Override
    public long cached(int handle, long bytes) {
        MemorySegment state = STATE.get();
        MemorySegment range = CACHE_RANGE.get();
        MemorySegment found = CACHED.get();
        range.set(JAVA_LONG, 0, 0);
        range.set(JAVA_LONG, Long.BYTES, bytes);
        try {
            long rc =
                    (long)
                            Libc.CACHESTAT.invokeExact(
                                    state, SYS_CACHESTAT, handle, range, found, 0);
            return rc < 0 ? -errno(state) : Math.min(bytes, found.get(JAVA_LONG, 0) * PAGE_BYTES);
        } catch (Throwable e) {
            throw unexpected("cachestat", e);
        }
    }

    @Override
    public long scatterCached(int handle, MemorySegment ranges, int count, long offset) {
        if (Libc.PREADV2 == null) {
            return -Errno.ENOSYS;
        }
        MemorySegment state = STATE.get();
        try {
            long n =
                    (long)
                            Libc.PREADV2.invokeExact(
                                    state, handle, ranges, count, offset, RWF_NOWAIT);
            if (n >= 0) {
                return n;
            }
            int errno = errno(state);
            return errno == Errno.EOPNOTSUPP ? -Errno.ENOSYS : -readErrno(errno);
        } catch (Throwable e) {
            throw unexpected("preadv2", e);
        }
    }

    /// Only a short read or write continues inside the buffer, so only that pays for a slice.
    private static MemorySegment from(MemorySegment buffer, long at) {
        return at == 0 ? buffer : buffer.asSlice(at);
    }

    @Override
    public int syncData(int handle) {
        MemorySegment state = STATE.get();
        try {
            return answer((int) Libc.FDATASYNC.invokeExact(state, handle), state);
        } catch (Throwable e) {
            throw unexpected("fdatasync", e);
        }
    }

    /// Called without the memory for errno: code that is not optimized allocates a slice of it
    /// before the call, and where that fails the handle would stay open.
    @Override
    public int close(int handle) {
        try {
            return (int) Libc.CLOSE.invokeExact(handle) == 0 ? 0 : -Errno.EIO;
        } catch (Throwable e) {
            throw unexpected("close", e);
        }
    }

    @Override
    public int publish(MemorySegment from, MemorySegment to) {
        int rc = naming.rename(from, to, RENAME_NOREPLACE);
        // File systems without the flag (some network ones) say EINVAL; a hard link refuses a
        // taken name as well.
        return rc == -Errno.EINVAL || rc == -Errno.ENOSYS ? linkThenUnlink(from, to) : rc;
    }

    private int linkThenUnlink(MemorySegment from, MemorySegment to) {
        int rc = naming.link(from, to);
        return switch (-rc) {
            case 0 -> unlink(from);
            case Errno.EPERM, Errno.ENOSYS, Errno.EOPNOTSUPP -> renameIfFree(from, to);
            default -> rc;
        };
    }

    /// Where there are no hard links either, as in many file systems in user space, two processes
    /// may both pass the test; the content of one key is the same, so either is right.
    private int renameIfFree(MemorySegment from, MemorySegment to) {
        int rc = look(to);
        return switch (-rc) {
            case Errno.ENOENT -> rename(from, to);
            case 0, Errno.NOT_REGULAR -> -Errno.EEXIST;
            default -> rc;
        };
    }

    @Override
    public int rename(MemorySegment from, MemorySegment to) {
        return naming.rename(from, to, 0);
    }

    /// The calls that name a file; not every file system has a link, or each flag of a rename.
    interface Naming {
        int rename(MemorySegment from, MemorySegment to, int flags);

        int link(MemorySegment from, MemorySegment to);
    }

    /// Those of libc.
    static final class LibcNaming implements Naming {
        @Override
        public int rename(MemorySegment from, MemorySegment to, int flags) {
            MemorySegment state = STATE.get();
            try {
                return answer(
                        (int)
                                Libc.RENAMEAT2.invokeExact(
                                        state, AT_FDCWD, from, AT_FDCWD, to, flags),
                        state);
            } catch (Throwable e) {
                throw unexpected("renameat2", e);
            }
        }

        @Override
        public int link(MemorySegment from, MemorySegment to) {
            MemorySegment state = STATE.get();
            try {
                return answer((int) Libc.LINK.invokeExact(state, from, to), state);
            } catch (Throwable e) {
                throw unexpected("link", e);
            }
        }
    }

    @Override
    public int unlink(MemorySegment path) {
        MemorySegment state = STATE.get();
        try {
            return answer((int) Libc.UNLINK.invokeExact(state, path), state);
        } catch (Throwable e) {
            throw unexpected("unlink", e);
        }
    }

    @Override
    public int status(MemorySegment path, FileStatus found) {
        int rc = look(path);
        if (rc == 0) {
            MemorySegment status = STATUS.get();
            found.set(
                    status.get(JAVA_LONG, STX_SIZE_AT),
                    status.get(JAVA_LONG, STX_MTIME_AT) * NANOS_PER_SECOND
                            + status.get(JAVA_INT, STX_MTIME_AT + Long.BYTES));
        }
        return rc;
    }

    /// Puts what the system says of a regular file into [#STATUS].
    private static int look(MemorySegment path) {
        MemorySegment state = STATE.get();
        MemorySegment status = STATUS.get();
        try {
            int rc =
                    answer(
                            (int)
                                    Libc.STATX.invokeExact(
                                            state,
                                            AT_FDCWD,
                                            path,
                                            AT_SYMLINK_NOFOLLOW,
                                            STATX_WANTED,
                                            status),
                            state);
            if (rc < 0) {
                return rc;
            }
            int mode = Short.toUnsignedInt(status.get(JAVA_SHORT, STX_MODE_AT));
            return (mode & S_IFMT) == S_IFREG ? 0 : -Errno.NOT_REGULAR;
        } catch (Throwable e) {
            throw unexpected("statx", e);
        }
    }

    @Override
    public int setModified(MemorySegment path, long nanos) {
        MemorySegment state = STATE.get();
        MemorySegment times = times(nanos);
        try {
            return answer(
                    (int)
                            Libc.UTIMENSAT.invokeExact(
                                    state, AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW),
                    state);
        } catch (Throwable e) {
            throw unexpected("utimensat", e);
        }
    }

    @Override
    public int setModified(int handle, long nanos) {
        MemorySegment state = STATE.get();
        MemorySegment times = times(nanos);
        try {
            return answer((int) Libc.FUTIMENS.invokeExact(state, handle, times), state);
        } catch (Throwable e) {
            throw unexpected("futimens", e);
        }
    }

    /// No access time, and this modification time.
    private static MemorySegment times(long nanos) {
        MemorySegment times = TIMES.get();
        times.set(JAVA_LONG, 0, 0);
        times.set(JAVA_LONG, Long.BYTES, UTIME_OMIT);
        times.set(JAVA_LONG, 2 * Long.BYTES, Math.floorDiv(nanos, NANOS_PER_SECOND));
        times.set(JAVA_LONG, 3 * Long.BYTES, Math.floorMod(nanos, NANOS_PER_SECOND));
        return times;
    }

    @Override
    public int makeFolder(MemorySegment path) {
        MemorySegment state = STATE.get();
        try {
            return answer((int) Libc.MKDIR.invokeExact(state, path, FOLDER_MODE), state);
        } catch (Throwable e) {
            throw unexpected("mkdir", e);
        }
    }

    @Override
    public int syncFolder(MemorySegment path) {
        int handle = openFolder(path);
        if (handle < 0) {
            return handle;
        }
        MemorySegment state = STATE.get();
        try {
            int rc = answer((int) Libc.FSYNC.invokeExact(state, handle), state);
            int closed = close(handle);
            return rc < 0 ? rc : closed;
        } catch (Throwable e) {
            throw unexpected("fsync", e);
        }
    }

    @Override
    public int openFolder(MemorySegment path) {
        return open(path, O_CLOEXEC | O_DIRECTORY);
    }

    @Override
    public long list(int handle, MemorySegment buffer) {
        MemorySegment state = STATE.get();
        try {
            long n =
                    (long)
                            Libc.GETDENTS64.invokeExact(
                                    state, SYS_GETDENTS64, handle, buffer, buffer.byteSize());
            return n >= 0 ? n : -errno(state);
        } catch (Throwable e) {
            throw unexpected("getdents64", e);
        }
    }

    @Override
    public int openLockFile(MemorySegment path) {
        return open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC);
    }

    /// flock, not fcntl: its locks belong to the handle, so that two stores of one process exclude
    /// each other and closing one keeps the other's.
    @Override
    public int tryLock(int handle) {
        return flock(handle, LOCK_EX | LOCK_NB);
    }

    @Override
    public int shareLock(int handle) {
        return flock(handle, LOCK_SH | LOCK_NB);
    }

    @Override
    public int unlock(int handle) {
        return flock(handle, LOCK_UN);
    }

    private static int flock(int handle, int operation) {
        MemorySegment state = STATE.get();
        try {
            return answer((int) Libc.FLOCK.invokeExact(state, handle, operation), state);
        } catch (Throwable e) {
            throw unexpected("flock", e);
        }
    }

    private static int answer(int rc, MemorySegment state) {
        return rc >= 0 ? rc : -errno(state);
    }

    private static int errno(MemorySegment state) {
        return (int) ERRNO.get(state, 0L);
    }

    /// A call fails with OutOfMemoryError where the heap has no memory for it.
    private static AssertionError unexpected(String function, Throwable thrown) {
        if (thrown instanceof OutOfMemoryError full) {
            throw full;
        }
        return new AssertionError(function + " does not throw", thrown);
    }
}
