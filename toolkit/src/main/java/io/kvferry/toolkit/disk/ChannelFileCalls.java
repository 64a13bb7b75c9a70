// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// [FileCalls] on FileChannel, for platforms without [PosixFileCalls]. Same semantics; allocates a
/// few objects per file.
final class ChannelFileCalls implements FileCalls {
    /// A channel takes a ByteBuffer, which cannot wrap more than 2 GiB.
    private static final long MAX_CHUNK_BYTES = 1L << 30;

    private static final Optional<OpenOption> DIRECT = DirectOption.find();
    private static final boolean POSIX =
            FileSystems.getDefault().supportedFileAttributeViews().contains("posix");

    private final Map<Integer, FileChannel> open = new ConcurrentHashMap<>();
    private final Map<Integer, FileLock> locks = new ConcurrentHashMap<>();
    private final AtomicInteger nextHandle = new AtomicInteger();

    @Override
    public int openRead(MemorySegment path, boolean direct) {
        int rc = status(path, new FileStatus());
        return rc < 0
                ? rc
                : open(path, Set.of(StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS), direct);
    }

    @Override
    public int createNew(MemorySegment path, boolean direct) {
        return open(path, Set.of(StandardOpenOption.WRITE, StandardOpenOption.CREATE_NEW), direct);
    }

    @Override
    public int openOver(MemorySegment path, boolean direct) {
        return open(path, Set.of(StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS), direct);
    }

    private int open(MemorySegment path, Set<? extends OpenOption> options, boolean direct) {
        Set<OpenOption> all = new HashSet<>(options);
        if (direct) {
            if (DIRECT.isEmpty()) {
                return -Errno.EINVAL;
            }
            all.add(DIRECT.get());
        }
        try {
            FileChannel channel = FileChannel.open(path(path), all, attributes("rw-------"));
            int handle = nextHandle.incrementAndGet() & Integer.MAX_VALUE;
            open.put(handle, channel);
            return handle;
        } catch (UnsupportedOperationException _) {
            return -Errno.EINVAL;
        } catch (IOException e) {
            return -errno(e);
        }
    }

    @Override
    public long read(int handle, MemorySegment buffer, long at, long length, long offset) {
        try {
            var chunk = buffer.asSlice(at, Math.min(length, MAX_CHUNK_BYTES)).asByteBuffer();
            return Math.max(0, channel(handle).read(chunk, offset));
        } catch (IOException e) {
            return -errno(e);
        }
    }

    @Override
    public long write(int handle, MemorySegment buffer, long at, long length, long offset) {
        try {
            var chunk = buffer.asSlice(at, Math.min(length, MAX_CHUNK_BYTES)).asByteBuffer();
            return channel(handle).write(chunk, offset);
        } catch (IOException e) {
            return -errno(e);
        }
    }

    @Override
    public int allocate(int handle, long bytes, boolean keepLength) {
        return -Errno.ENOSYS;
    }

    @Override
    public int gatherLimit() {
        return 0;
    }

    @Override
    public long gather(int handle, MemorySegment ranges, int count, long offset) {
        throw new UnsupportedOperationException("a channel writes no ranges of addresses");
    }

    @Override
    public long cached(int handle, long bytes) {
        return -Errno.ENOSYS;
    }

    @Override
    public long scatterCached(int handle, MemorySegment ranges, int count, long offset) {
        return -Errno.ENOSYS;
    }

    @Override
    public int syncData(int handle) {
        try {
            channel(handle).force(false);
            return 0;
        } catch (IOException e) {
            return -errno(e);
        }
    }

    @Override
    public int close(int handle) {
        try (FileChannel channel = open.remove(handle)) {
            return channel == null ? -Errno.EINVAL : 0;
        } catch (IOException e) {
            return -errno(e);
        }
    }

    @Override
    public int publish(MemorySegment from, MemorySegment to) {
        Path source = path(from);
        Path target = path(to);
        try {
            Files.createLink(target, source);
            Files.delete(source);
            return 0;
        } catch (UnsupportedOperationException _) {
            return renameIfFree(source, target);
        } catch (IOException e) {
            return -errno(e);
        }
    }

    /// Without hard links two processes may both pass the test; the content of one key is the same,
    /// so either is right.
    private static int renameIfFree(Path source, Path target) {
        if (Files.exists(target)) {
            return -Errno.EEXIST;
        }
        try {
            Files.move(source, target, StandardCopyOption.ATOMIC_MOVE);
            return 0;
        } catch (IOException e) {
            return -errno(e);
        }
    }

    @Override
    public int rename(MemorySegment from, MemorySegment to) {
        try {
            Files.move(path(from), path(to), StandardCopyOption.REPLACE_EXISTING);
            return 0;
        } catch (IOException e) {
            return -errno(e);
        }
    }

    @Override
    public int unlink(MemorySegment path) {
        try {
            Files.delete(path(path));
            return 0;
        } catch (IOException e) {
            return -errno(e);
        }
    }

    @Override
    public int status(MemorySegment path, FileStatus found) {
        try {
            var attributes =
                    Files.readAttributes(
                            path(path), BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
            if (!attributes.isRegularFile()) {
                return -Errno.NOT_REGULAR;
            }
            found.set(attributes.size(), attributes.lastModifiedTime().to(TimeUnit.NANOSECONDS));
            return 0;
        } catch (IOException e) {
            return -errno(e);
        }
    }

    @Override
    public int setModified(MemorySegment path, long nanos) {
        try {
            Files.setLastModifiedTime(path(path), FileTime.from(nanos, TimeUnit.NANOSECONDS));
            return 0;
        } catch (IOException e) {
            return -errno(e);
        }
    }

    @Override
    public int setModified(int handle, long nanos) {
        return -Errno.ENOSYS;
    }

    @Override
    public int makeFolder(MemorySegment path) {
        try {
            Files.createDirectory(path(path), attributes("rwx------"));
            return 0;
        } catch (IOException e) {
            return -errno(e);
        }
    }

    @Override
    public int syncFolder(MemorySegment path) {
        try (FileChannel folder = FileChannel.open(path(path), StandardOpenOption.READ)) {
            folder.force(true);
            return 0;
        } catch (IOException e) {
            return -errno(e);
        }
    }

    @Override
    public int openFolder(MemorySegment path) {
        return -Errno.ENOSYS;
    }

    @Override
    public long list(int handle, MemorySegment buffer) {
        throw new UnsupportedOperationException("a channel lists no folder");
    }

    @Override
    public int openLockFile(MemorySegment path) {
        return open(
                path,
                Set.of(
                        StandardOpenOption.READ,
                        StandardOpenOption.WRITE,
                        StandardOpenOption.CREATE),
                false);
    }

    @Override
    public int tryLock(int handle) {
        return tryLock(handle, false);
    }

    @Override
    public int shareLock(int handle) {
        return tryLock(handle, true);
    }

    private int tryLock(int handle, boolean shared) {
        unlock(handle);
        try {
            FileLock lock = channel(handle).tryLock(0, Long.MAX_VALUE, shared);
            if (lock == null) {
                return -Errno.EAGAIN;
            }
            locks.put(handle, lock);
            return 0;
        } catch (OverlappingFileLockException _) {
            return -Errno.EAGAIN; // another handle of this process
        } catch (IOException e) {
            return -errno(e);
        }
    }

    @Override
    public int unlock(int handle) {
        try (FileLock lock = locks.remove(handle)) {
            return lock == null ? -Errno.EINVAL : 0;
        } catch (IOException e) {
            return -errno(e);
        }
    }

    /// What a new file gets; nothing where the file system knows no such modes.
    private static FileAttribute<?>[] attributes(String mode) {
        return POSIX
                ? new FileAttribute<?>[] {
                    PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(mode))
                }
                : new FileAttribute<?>[0];
    }

    private FileChannel channel(int handle) throws IOException {
        FileChannel channel = open.get(handle);
        if (channel == null) {
            throw new IOException("no open file has handle " + handle);
        }
        return channel;
    }

    private static Path path(MemorySegment path) {
        return Path.of(path.getString(0, PathText.CHARSET));
    }

    private static int errno(IOException e) {
        return switch (e) {
            case NoSuchFileException _ -> Errno.ENOENT;
            case FileAlreadyExistsException _ -> Errno.EEXIST;
            case AccessDeniedException _ -> Errno.EACCES;
            default -> errnoOfMessage(String.valueOf(e.getMessage()));
        };
    }

    /// The JDK has no type for these; the text is strerror's.
    private static int errnoOfMessage(String message) {
        if (message.contains("No space left")) {
            return Errno.ENOSPC;
        }
        if (message.contains("Read-only file system")) {
            return Errno.EROFS;
        }
        if (message.contains("quota exceeded")) {
            return Errno.EDQUOT;
        }
        return message.contains("Invalid argument") ? Errno.EINVAL : Errno.EIO;
    }
}
