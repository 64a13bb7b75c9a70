// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.spi.ErrorCode;

import java.util.List;

/// Loads and lookups of one I/O thread.
final class BlockReader {
    private static final BlockResult MISS =
            BlockResult.Failed.of(
                    ErrorCode.MISS, "no such block; it was never saved or has been evicted");

    private final StoreContext store;
    private final Staging staging;
    private final StoreFolder.Names names;
    private final RecordFormat format;

    BlockReader(StoreContext store, Staging staging, StoreFolder.Names names) {
        this.store = store;
        this.staging = staging;
        this.names = names;
        this.format = new RecordFormat(store.folder().namespaceDigest());
    }

    /// open, read, close, check, and only then copy to the caller's segments.
    BlockResult load(IoRequest request) {
        BlockKey key = request.key();
        long expected = RecordFormat.fileBytes(key, request.segments());
        staging.ensure(expected);
        request.enterIo();
        long look = store.catalog().lookBegins();
        long got = readFile(key, expected);
        if (!request.leaveIo()) {
            return MISS; // told to nobody: the deadline has answered
        }
        if (got < 0) {
            return switch ((int) -got) {
                case Errno.ENOENT -> missing(key);
                case Errno.NOT_REGULAR -> notRegular(key);
                default -> ioFailure((int) -got, key);
            };
        }
        BlockResult verdict = format.check(staging, got, key, request.segments());
        if (verdict == BlockResult.Done.LOADED) {
            RecordFormat.scatter(staging, key, request.segments());
            store.catalog().sighted(key.digest(), expected, System.nanoTime(), look);
        } else if (verdict.failedWith(ErrorCode.CORRUPT)) {
            discard(key);
        }
        return verdict;
    }

    /// Counts how many keys from the front are there, asking the file system only for those not
    /// seen lately. What the catalog believes behind a gap is asked for too: where one file is
    /// gone, damaged or evicted elsewhere, others are likely to be, and a block that is believed to
    /// be there is not saved again.
    BlockResult locate(IoRequest request) {
        List<BlockKey> keys = request.keys();
        request.enterIo();
        int count = 0;
        while (count < keys.size() && !request.abandoned() && isThere(keys.get(count))) {
            count++;
        }
        for (int i = count + 1; i < keys.size() && !request.abandoned(); i++) {
            BlockDigest digest = keys.get(i).digest();
            if (store.catalog().believes(digest, System.nanoTime())) {
                lookFor(digest);
            }
        }
        return new BlockResult.Located(count);
    }

    private boolean isThere(BlockKey key) {
        BlockDigest digest = key.digest();
        return switch (store.catalog().presence(digest, System.nanoTime())) {
            case FRESH -> true;
            case DISTRUSTED -> false;
            case ABSENT, STALE -> lookFor(digest);
        };
    }

    private boolean lookFor(BlockDigest digest) {
        long look = store.catalog().lookBegins();
        long bytes = store.calls().size(names.file(digest));
        if (bytes >= 0) {
            store.catalog().sighted(digest, bytes, System.nanoTime(), look);
        } else {
            forget(digest);
        }
        return bytes >= 0;
    }

    /// Bytes read, or a negated error number.
    private long readFile(BlockKey key, long expected) {
        FileCalls calls = store.calls();
        int handle = calls.openRead(names.file(key.digest()), store.direct());
        if (handle < 0) {
            return handle;
        }
        long got = 0;
        while (got < expected) {
            long n = calls.read(handle, staging.memory(), got, expected - got, got);
            if (n == -Errno.EINTR) {
                continue;
            }
            if (n < 0) {
                calls.close(handle);
                return n;
            }
            if (n == 0 || (store.direct() && n % Staging.ALIGNMENT != 0)) {
                got += n; // the end of the file
                break;
            }
            got += n;
        }
        calls.close(handle);
        return got;
    }

    private BlockResult missing(BlockKey key) {
        forget(key.digest());
        return MISS;
    }

    /// A damaged file would be damaged for the next reader too; deleting it lets the block be saved
    /// again.
    private void discard(BlockKey key) {
        store.calls().unlink(names.file(key.digest()));
        forget(key.digest());
    }

    private void forget(BlockDigest digest) {
        if (store.catalog().forget(digest)) {
            store.listener().removed(digest);
        }
    }

    private BlockResult notRegular(BlockKey key) {
        discard(key);
        return BlockResult.Failed.of(
                ErrorCode.CORRUPT,
                store.folder().file(key.digest()) + " is not a regular file; it was removed");
    }

    /// A file that the medium cannot read is set aside, where its sectors are not used again, so
    /// that the block can be saved anew. Other failures may pass.
    private BlockResult ioFailure(int errno, BlockKey key) {
        if (Errno.isMedium(errno)
                && store.calls().rename(names.file(key.digest()), names.bad(key.digest())) == 0) {
            forget(key.digest());
        } else {
            store.catalog().distrust(key.digest(), System.nanoTime() + BlockStore.DISTRUST_NANOS);
        }
        return BlockResult.Failed.of(
                ErrorCode.STORAGE_IO,
                "read of " + store.folder().file(key.digest()) + " failed: " + Errno.text(errno));
    }
}
