// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.block;

import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.IoTask;

import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.zip.CRC32C;

/// Reads blocks through the page cache in pieces that stay in the CPU cache while they are checked
/// and copied to the caller's segments. The checksum is known only at the end, so a block that
/// fails it has already been written to the segments.
///
/// Not used for direct I/O, where one call per file keeps the device busy, nor for sealed blocks,
/// which must be verified before anything is copied.
///
/// Threading: confined to one I/O thread.
public final class PieceReader {
    public static final long PIECE_BYTES = 256 << 10;

    private final FileCalls calls;
    private final RecordFormat format;
    private final AlignedStaging staging;
    private final CRC32C crc = new CRC32C();
    private final PayloadScatter scatter = new PayloadScatter();
    private BlockResult verdict = BlockResult.Done.LOADED;

    public PieceReader(FileCalls calls, RecordFormat format, AlignedStaging staging) {
        this.calls = calls;
        this.format = format;
        this.staging = staging;
    }

    /// Whether a file of so many bytes is more than one piece.
    public static boolean takes(long fileBytes) {
        return fileBytes > PIECE_BYTES;
    }

    /// The result, when [#read] returned 0.
    public BlockResult verdict() {
        return verdict;
    }

    /// Reads, checks and copies the block of a request. The request must be in its I/O phase and is
    /// left in it.
    ///
    /// @return 0 or a negated errno; ECANCELED when the request has timed out
    public int read(IoTask task, BlockKey key, List<MemorySegment> segments, int handle) {
        long headerBytes = RecordFormat.headerBytes(key);
        long payloadBytes = RecordFormat.payloadBytes(segments);
        long end = RecordFormat.fileBytes(key, payloadBytes);
        long payloadEnd = headerBytes + payloadBytes;
        staging.ensure(headerBytes + PIECE_BYTES);
        // Read the header separately: after a small first read, readahead soon switches to large
        // folios; after a read of a whole piece it fills a megabyte with small ones.
        long got = readFully(handle, 0, headerBytes);
        if (got < 0) {
            return (int) got;
        }
        verdict = format.checkHeader(staging, got, key, payloadBytes);
        if (verdict == BlockResult.Done.LOADED && got < headerBytes) {
            verdict = RecordFormat.corrupt("is cut at " + got + " bytes");
        }
        int stated = RecordFormat.statedCrc(staging);
        crc.reset();
        scatter.reset();
        for (long at = headerBytes; at < end && verdict == BlockResult.Done.LOADED; ) {
            long wanted = Math.min(PIECE_BYTES, end - at);
            got = readFully(handle, at, wanted);
            if (got < 0) {
                return (int) got;
            }
            if (got < wanted) {
                verdict = RecordFormat.corrupt("is cut at " + (at + got) + " bytes");
                return 0;
            }
            if (!task.leaveIo()) {
                return -Errno.ECANCELED;
            }
            long payload = Math.min(wanted, payloadEnd - at);
            crc.update(staging.view(0, payload));
            scatter.next(staging.memory(), 0, payload, segments);
            task.enterIo();
            at += wanted;
        }
        if (verdict == BlockResult.Done.LOADED) {
            verdict = RecordFormat.checkPayload(stated, (int) crc.getValue());
        }
        return 0;
    }

    /// Always reads to the start of staging: any other position would allocate a slice per call.
    private long readFully(int handle, long offset, long bytes) {
        long got = 0;
        while (got < bytes) {
            long n = calls.read(handle, staging.memory(), got, bytes - got, offset + got);
            if (n == -Errno.EINTR) {
                continue;
            }
            if (n <= 0) {
                return n < 0 ? n : got;
            }
            got += n;
        }
        return got;
    }
}
