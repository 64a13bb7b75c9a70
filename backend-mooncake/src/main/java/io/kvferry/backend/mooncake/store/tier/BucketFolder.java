// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.DirectProbe;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.PathText;
import io.kvferry.toolkit.files.FileTrouble;
import io.kvferry.toolkit.files.PrivateFolder;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.List;
import java.util.function.UnaryOperator;

/// The files of a disk tier, in a folder that one process has at a time.
///
/// A bucket is there when its meta file is: the data is brought to the medium before the meta file
/// is begun, and the meta file is deleted, on the medium as well, before the data. What a crash
/// leaves in between is deleted at the next start. An object has gone when that is noted on the
/// medium.
///
/// Threading: any thread; [#open] and [#scan] before all others. Every method but these answers 0
/// or a negated [Errno].
final class BucketFolder implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(BucketFolder.class);
    static final String DATA = ".bucket";
    static final String META = ".meta";
    static final String GONE = ".gone";

    private final FileCalls calls;
    private final Path folder;
    private final int lock;
    private final boolean direct;

    private BucketFolder(FileCalls calls, Path folder, int lock, boolean direct) {
        this.calls = calls;
        this.folder = folder;
        this.lock = lock;
        this.direct = direct;
    }

    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when another process uses the folder, others
    ///   may write to it, or it takes no direct I/O where that is asked for; [ErrorCode#STORAGE_IO]
    static BucketFolder open(FileCalls calls, TierConfig config) {
        try (Arena arena = Arena.ofConfined()) {
            Path folder = PrivateFolder.make(config.folder().toAbsolutePath());
            Path lockFile = folder.resolve("lock");
            int lock = calls.openLockFile(PathText.of(arena, lockFile));
            if (lock < 0) {
                throw new KvFerryException(
                        ErrorCode.STORAGE_IO, "cannot open " + lockFile + ": " + Errno.text(-lock));
            }
            boolean done = false;
            try {
                if (config.checkFolder()) {
                    PrivateFolder.check(folder, lockFile);
                }
                if (calls.tryLock(lock) != 0) {
                    throw new KvFerryException(
                            ErrorCode.BAD_CONFIG,
                            "folder "
                                    + folder
                                    + " is used by another store; name another folder, or stop the"
                                    + " process that has "
                                    + lockFile
                                    + " open");
                }
                var opened = new BucketFolder(calls, folder, lock, direct(calls, config, folder));
                done = true;
                return opened;
            } finally {
                if (!done) {
                    calls.close(lock);
                }
            }
        } catch (IOException e) {
            throw FileTrouble.exception("cannot use " + config.folder() + " for the disk tier", e);
        }
    }

    private static boolean direct(FileCalls calls, TierConfig config, Path folder) {
        if (config.direct() == DirectIo.OFF) {
            return false;
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment probe = PathText.of(arena, folder.resolve("probe"));
            calls.unlink(probe); // of a process that was killed just then
            int rc = DirectProbe.probe(calls, probe);
            if (rc == 0) {
                return true;
            }
            if (config.direct() == DirectIo.ON) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG,
                        "folder " + folder + " takes no direct I/O: " + Errno.text(-rc));
            }
            LOG.info("{} takes no direct I/O ({}); it goes buffered", folder, Errno.text(-rc));
            return false;
        }
    }

    boolean direct() {
        return direct;
    }

    Path path() {
        return folder;
    }

    /// What is complete, oldest first; deletes what is not.
    ///
    /// @param left gets the buckets that are there and can neither be read nor deleted
    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] for files of another version
    List<Bucket> scan(UnaryOperator<StoreIdentity> intern, List<Long> left) {
        var scan = new BucketScan(this, calls, intern);
        scan.run();
        left.addAll(scan.left());
        return scan.found();
    }

    static long fileBytes(long data, long meta) {
        return AlignedStaging.align(data) + AlignedStaging.align(meta);
    }

    /// Reads until `least` bytes are there or the file ends.
    ///
    /// @param most what one call may read, in whole pages for direct I/O
    /// @return bytes read or a negated [Errno]
    long readFully(int handle, MemorySegment into, long least, long offset, long most) {
        long done = 0;
        while (done < least) {
            long n = calls.read(handle, into, done, most - done, offset + done);
            if (n == -Errno.EINTR) {
                continue;
            }
            if (n < 0) {
                return n;
            }
            if (n == 0) {
                break;
            }
            done += n;
        }
        return done;
    }

    /// A handle of a data file, or a negated [Errno].
    int openData(long id) {
        try (Arena arena = Arena.ofConfined()) {
            return calls.openRead(text(arena, id, DATA), direct);
        }
    }

    int createData(long id) {
        try (Arena arena = Arena.ofConfined()) {
            return calls.createNew(text(arena, id, DATA), direct);
        }
    }

    int write(int handle, MemorySegment from, long length, long offset) {
        for (long done = 0; done < length; ) {
            long n = calls.write(handle, from, done, length - done, offset + done);
            if (n <= 0 && n != -Errno.EINTR) {
                return n == 0 ? -Errno.EIO : (int) n;
            }
            done += Math.max(0, n);
        }
        return 0;
    }

    /// Ends the writing of a data file: its bytes are on the medium then.
    int completeData(int handle) {
        int rc = calls.syncData(handle);
        int closed = calls.close(handle);
        return rc < 0 ? rc : closed;
    }

    void close(int handle) {
        calls.close(handle);
    }

    /// Writes the meta file of a bucket whose data is on the medium, and brings all names there.
    int writeMeta(long id, byte[] meta) {
        try (Arena arena = Arena.ofConfined()) {
            int rc = writeNew(arena, id, META, meta);
            return rc < 0 ? rc : calls.syncFolder(PathText.of(arena, folder));
        }
    }

    private int writeNew(Arena arena, long id, String suffix, byte[] bytes) {
        int handle = calls.createNew(text(arena, id, suffix), false);
        if (handle < 0) {
            return handle;
        }
        int rc = write(handle, arena.allocateFrom(ValueLayout.JAVA_BYTE, bytes), bytes.length, 0);
        if (rc == 0) {
            rc = calls.syncData(handle);
        }
        int closed = calls.close(handle);
        return rc < 0 ? rc : closed;
    }

    /// Notes that objects of a bucket are no longer there. The note counts with the next
    /// [#syncNames].
    ///
    /// @param indexes of the objects
    int addGone(Bucket bucket, int[] indexes) {
        int first = bucket.addRecords(indexes.length);
        int rc = addGone(bucket, indexes, first);
        if (rc < 0) {
            bucket.giveBackRecords(first, indexes.length);
        }
        return rc;
    }

    private int addGone(Bucket bucket, int[] indexes, int first) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment path = text(arena, bucket.id(), GONE);
            int handle = calls.openOver(path, false);
            if (handle == -Errno.ENOENT) {
                handle = calls.createNew(path, false);
                handle = handle == -Errno.EEXIST ? calls.openOver(path, false) : handle;
            }
            if (handle < 0) {
                return handle;
            }
            MemorySegment records = GoneRecords.encode(arena, indexes);
            int rc = write(handle, records, records.byteSize(), (long) first * GoneRecords.BYTES);
            if (rc == 0) {
                rc = calls.syncData(handle);
            }
            int closed = calls.close(handle);
            return rc < 0 ? rc : closed;
        }
    }

    /// Brings the names of all files to the medium.
    int syncNames() {
        try (Arena arena = Arena.ofConfined()) {
            return calls.syncFolder(PathText.of(arena, folder));
        }
    }

    /// Deletes a bucket, its meta file first.
    ///
    /// @return 0 when no restart finds it again
    int delete(long id) {
        int rc = withdraw(id);
        if (rc == 0) {
            deleteWithdrawn(id); // what stays is garbage
        }
        return rc;
    }

    /// Deletes the meta file of a bucket for good: the other files are garbage then.
    int withdraw(long id) {
        int rc = deleteMeta(id);
        return rc == 0 ? syncNames() : rc;
    }

    /// The same, as of the next [#syncNames].
    int deleteMeta(long id) {
        try (Arena arena = Arena.ofConfined()) {
            return unlink(arena, id, META);
        }
    }

    /// Deletes what [#withdraw] has left.
    int deleteWithdrawn(long id) {
        try (Arena arena = Arena.ofConfined()) {
            int rc = unlink(arena, id, DATA);
            return rc == 0 ? unlink(arena, id, GONE) : rc;
        }
    }

    private int unlink(Arena arena, long id, String suffix) {
        int rc = calls.unlink(text(arena, id, suffix));
        return rc == -Errno.ENOENT ? 0 : rc;
    }

    MemorySegment text(Arena arena, long id, String suffix) {
        return PathText.of(arena, folder.resolve(id + suffix));
    }

    @Override
    public void close() {
        calls.close(lock);
    }
}
