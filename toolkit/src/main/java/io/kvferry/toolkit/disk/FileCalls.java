// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

import java.lang.foreign.MemorySegment;

/// The few system calls of stores on disk, one method each, so that tests can fail, shorten, stall,
/// record or die at every one.
///
/// Every method answers zero or more on success and the negated [Errno] on failure; none throws,
/// none retries. A path is a NUL-terminated string in native memory: it is written in place per
/// file, so that naming one allocates nothing.
///
/// Threading: any number of threads; a call blocks as long as the medium does.
public interface FileCalls {
    /// System calls on 64-bit Linux, file channels elsewhere or where native access is forbidden.
    static FileCalls ofPlatform() {
        return Platform.fileCalls();
    }

    /// File channels, which every platform has; they allocate a few objects per file.
    static FileCalls ofChannels() {
        return new ChannelFileCalls();
    }

    /// Opens an existing regular file for reading, without following a symbolic link and without
    /// waiting for the writer of a FIFO; answers a handle. What is not a regular file answers
    /// [Errno#NOT_REGULAR] here or when it is read, but for a device, whose bytes are read.
    int openRead(MemorySegment path, boolean direct);

    /// Creates a file for writing, failing with EEXIST when the name is taken; answers a handle.
    int createNew(MemorySegment path, boolean direct);

    /// Gives a new file room for so many bytes, in one piece as far as the file system has one.
    /// ENOSYS where this platform has no such call.
    ///
    /// @param keepLength whether it stays empty; else it has that length, of zeros until they are
    ///   written
    int allocate(int handle, long bytes, boolean keepLength);

    /// Opens an existing file for writing over what it holds, without following a symbolic link;
    /// answers a handle.
    int openOver(MemorySegment path, boolean direct);

    /// Reads up to `length` bytes at `offset` of the file into `buffer` from `at` on; zero at the
    /// end of the file.
    long read(int handle, MemorySegment buffer, long at, long length, long offset);

    /// Writes up to `length` bytes of `buffer` from `at` on to `offset` of the file.
    long write(int handle, MemorySegment buffer, long at, long length, long offset);

    /// Most ranges that one [#gather] or [#scatterCached] takes; zero when this platform has no
    /// such calls.
    int gatherLimit();

    /// Writes `count` ranges of native memory one after another to `offset` of the file; as with
    /// [#write], fewer bytes than all may be written.
    ///
    /// @param ranges two longs each: address and bytes
    long gather(int handle, MemorySegment ranges, int count, long offset);

    /// How many of the first `bytes` of the file are in the page cache or being read into it. Only
    /// a hint: pages may be dropped at any time. ENOSYS or EPERM when not available.
    long cached(int handle, long bytes);

    /// Reads what the page cache holds of the file from `offset` on into `count` ranges of native
    /// memory, one after another. Does not wait for the device: EAGAIN when nothing is cached
    /// there, a short count when only a part is; zero at the end of the file. Starts readahead for
    /// the rest, which may block while the device accepts no requests. ENOSYS when the platform or
    /// file system lacks the call.
    ///
    /// @param ranges two longs each: address and bytes
    long scatterCached(int handle, MemorySegment ranges, int count, long offset);

    /// fdatasync.
    int syncData(int handle);

    /// Closes a handle. With the calls of 64-bit Linux this allocates nothing, so a full heap leaks
    /// no handle. They do not read the error number: every failure is -EIO, also a full file system
    /// that is reported only here, as network file systems may do.
    ///
    /// @return 0, or a negated error number
    int close(int handle);

    /// Gives `from` the name `to`, unless that is taken: EEXIST, and `from` stays.
    int publish(MemorySegment from, MemorySegment to);

    /// Gives `from` the name `to`, replacing what had it.
    int rename(MemorySegment from, MemorySegment to);

    int unlink(MemorySegment path);

    /// Looks at an existing regular file; ENOENT when there is none, [Errno#NOT_REGULAR] when the
    /// name is taken by something else.
    int status(MemorySegment path, FileStatus found);

    /// Sets the modification time of a file, in nanoseconds since the epoch.
    int setModified(MemorySegment path, long nanos);

    /// The same of a file that is open for writing, which is much cheaper: its inode is about to be
    /// written anyway. ENOSYS where this platform has no such call.
    int setModified(int handle, long nanos);

    /// Creates one folder; EEXIST when it is there.
    int makeFolder(MemorySegment path);

    /// Makes the names in a folder durable.
    int syncFolder(MemorySegment path);

    /// Opens a folder for [#list]; answers a handle. ENOSYS where this platform has no call that
    /// lists names without an object for each.
    int openFolder(MemorySegment path);

    /// Puts the next entries of an open folder into `buffer`, as [FolderNames] reads them; answers
    /// their bytes, zero at the end.
    long list(int handle, MemorySegment buffer);

    /// Opens a file for reading, writing and locking, and creates it when it is not there; answers
    /// a handle.
    int openLockFile(MemorySegment path);

    /// Takes the lock of an open lock file, which the system releases when the handle is closed or
    /// the process ends; EAGAIN while another handle, of this process or another, has it.
    int tryLock(int handle);

    /// Takes a shared lock, or downgrades an exclusive one to it. Several handles may share it;
    /// [#tryLock] returns EAGAIN while another handle has a shared lock, and this returns EAGAIN
    /// while another handle has the exclusive one.
    int shareLock(int handle);

    int unlock(int handle);
}
