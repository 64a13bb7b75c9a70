// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.FileStatus;
import io.kvferry.toolkit.files.FileTrouble;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.function.UnaryOperator;

/// The buckets that a folder holds from earlier. What was not written to its end is deleted.
///
/// Threading: one thread.
final class BucketScan {
    private static final Logger LOG = LoggerFactory.getLogger(BucketScan.class);

    private final BucketFolder folder;
    private final FileCalls calls;
    private final UnaryOperator<StoreIdentity> intern;
    private final List<Bucket> found = new ArrayList<>();
    private final List<Long> left = new ArrayList<>();

    BucketScan(BucketFolder folder, FileCalls calls, UnaryOperator<StoreIdentity> intern) {
        this.folder = folder;
        this.calls = calls;
        this.intern = intern;
    }

    /// Reads all meta files. Called once.
    ///
    /// @throws KvFerryException [ErrorCode#INCOMPATIBLE] for files of another version
    void run() {
        Path path = folder.path();
        var ids = new TreeSet<Long>();
        try (var files = Files.list(path)) {
            for (Path file : (Iterable<Path>) files::iterator) {
                long id = id(file.getFileName().toString());
                if (id > 0) {
                    ids.add(id);
                }
            }
        } catch (IOException e) {
            throw FileTrouble.exception("cannot list " + path, e);
        }
        int deleted = 0;
        for (long id : ids) {
            try {
                Bucket bucket = load(id);
                if (bucket == null) {
                    left.add(id);
                } else {
                    found.add(bucket);
                }
            } catch (KvFerryException e) {
                if (e.code() == ErrorCode.INCOMPATIBLE) {
                    throw e;
                }
                LOG.warn("{}: {}; its files are deleted", path, e.getMessage());
                if (folder.delete(id) != 0) {
                    left.add(id);
                }
                deleted++;
            }
        }
        if (!ids.isEmpty()) {
            LOG.info("{}: {} buckets found, {} deleted", path, found.size(), deleted);
        }
    }

    /// Those that are complete, oldest first.
    List<Bucket> found() {
        return found;
    }

    /// Numbers of those that are there and can neither be read nor deleted.
    List<Long> left() {
        return left;
    }

    /// Of a name that a tier gives, else 0.
    private static long id(String name) {
        int dot = name.indexOf('.');
        String suffix = dot < 0 ? "" : name.substring(dot);
        if (!suffix.equals(BucketFolder.DATA)
                && !suffix.equals(BucketFolder.META)
                && !suffix.equals(BucketFolder.GONE)) {
            return 0;
        }
        try {
            long id = Long.parseLong(name.substring(0, dot));
            return name.equals(id + suffix) ? id : 0;
        } catch (NumberFormatException _) {
            return 0;
        }
    }

    /// @return null when the medium does not let it be read now; its files stay then
    /// @throws KvFerryException [ErrorCode#CORRUPT] for what is to be deleted
    private @Nullable Bucket load(long id) {
        try (Arena arena = Arena.ofConfined()) {
            var data = new FileStatus();
            int rc = calls.status(folder.text(arena, id, BucketFolder.DATA), data);
            var meta = new byte[0];
            if (rc == 0) {
                var file = new byte[1][];
                rc = read(arena, id, BucketFolder.META, file);
                meta = file[0];
            }
            if (rc == -Errno.ENOENT) {
                throw new KvFerryException(
                        ErrorCode.CORRUPT, "bucket " + id + " was not written to its end");
            }
            if (rc != 0) {
                LOG.warn(
                        "{}: bucket {} cannot be read: {}; it is skipped",
                        folder.path(),
                        id,
                        Errno.text(-rc));
                return null;
            }
            var bucket = new Bucket(id);
            var objects = new ArrayList<DiskObject>();
            long dataBytes = BucketMeta.decode(bucket, meta, intern, objects);
            if (data.bytes() < dataBytes) {
                throw new KvFerryException(
                        ErrorCode.CORRUPT, "the data file of bucket " + id + " is cut off");
            }
            bucket.complete(objects, BucketFolder.fileBytes(data.bytes(), meta.length));
            readGone(arena, bucket);
            return bucket;
        }
    }

    private void readGone(Arena arena, Bucket bucket) {
        var file = new byte[1][];
        int rc = read(arena, bucket.id(), BucketFolder.GONE, file);
        if (rc == -Errno.ENOENT) {
            return;
        }
        if (rc != 0) {
            throw new KvFerryException(
                    ErrorCode.CORRUPT,
                    "which objects of bucket "
                            + bucket.id()
                            + " were removed cannot be read: "
                            + Errno.text(-rc));
        }
        GoneRecords.drop(file[0], bucket);
    }

    private int read(Arena arena, long id, String suffix, byte[][] into) {
        into[0] = new byte[0];
        int handle = calls.openRead(folder.text(arena, id, suffix), false);
        if (handle < 0) {
            return handle;
        }
        try {
            var status = new FileStatus();
            int rc = calls.status(folder.text(arena, id, suffix), status);
            if (rc != 0) {
                return rc;
            }
            long bytes = Math.min(status.bytes(), Integer.MAX_VALUE - 8);
            MemorySegment memory = arena.allocate(Math.max(1, bytes));
            long got = folder.readFully(handle, memory, bytes, 0, bytes);
            if (got < 0) {
                return (int) got;
            }
            into[0] = memory.asSlice(0, got).toArray(ValueLayout.JAVA_BYTE);
            return 0;
        } finally {
            calls.close(handle);
        }
    }
}
