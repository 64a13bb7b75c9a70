// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.NativeCrc;
import io.kvferry.toolkit.disk.RangeList;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;

/// Reads blocks through the page cache in pieces that stay in the processor's cache while they are
/// checked.
///
/// What the page cache holds goes straight to the caller's segments: such a call does not wait for
/// the medium, so the deadline can wait for it, as for a copy. What the medium has to be waited for
/// goes to staging, and is copied from there unless the deadline has passed meanwhile. Either way
/// the checksum is known at the end only, so the segments of a block that fails it were written to.
///
/// Not for direct I/O, where one call per file is what keeps the medium busy, nor for sealed
/// blocks.
///
/// Threading: confined to one I/O thread.
final class PieceReader {
    static final long PIECE_BYTES = 256 << 10;

    private final FileCalls calls;
    private final RecordFormat format;
    private final AlignedStaging staging;
    private final NativeCrc crc = new NativeCrc();
    private final PayloadScatter scatter = new PayloadScatter();

    /// Where cached pieces go; null where there is no call that reads only those.
    private @Nullable RangeList ranges;

    private BlockResult verdict = BlockResult.Done.LOADED;

    /// @param arena lives as long as the thread
    PieceReader(FileCalls calls, RecordFormat format, AlignedStaging staging, Arena arena) {
        this.calls = calls;
        this.format = format;
        this.staging = staging;
        int limit = calls.gatherLimit();
        this.ranges = limit >= GatherWriter.LEAST_RANGES ? new RangeList(arena, limit) : null;
    }

    /// Whether a file of so many bytes is more than one piece.
    static boolean takes(long fileBytes) {
        return fileBytes > PIECE_BYTES;
    }

    /// The result, when [#read] returned 0.
    BlockResult verdict() {
        return verdict;
    }

    /// Reads, checks and copies the block of a request that is in its I/O phase, and leaves it
    /// there.
    ///
    /// @return 0 or a negated error number, ECANCELED when the deadline took the request
    int read(BlockTask task, int handle) {
        if (!task.leaveIo()) {
            return -Errno.ECANCELED;
        }
        int rc = readPieces(task, handle);
        if (rc == 0) {
            task.enterIo();
        }
        return rc;
    }

    /// Returns in the memory phase, or with an error in the I/O phase.
    private int readPieces(BlockTask task, int handle) {
        BlockKey key = task.key();
        List<MemorySegment> segments = task.segments();
        long headerBytes = RecordFormat.headerBytes(key, segments.size());
        long payloadEnd = headerBytes + RecordFormat.payloadBytes(segments);
        long end = RecordFormat.fileBytes(key, segments);
        staging.ensure(headerBytes + PIECE_BYTES);
        crc.reset();
        scatter.reset();
        verdict = BlockResult.Done.LOADED;
        long at = readCachedHeader(handle, headerBytes);
        int stated = 0;
        if (at == headerBytes) {
            verdict = format.checkHeader(staging, at, key, segments);
            stated = RecordFormat.statedCrc(staging);
        }
        while (verdict == BlockResult.Done.LOADED && at < end) {
            if (at > 0) {
                long got = readCached(handle, at, payloadEnd, end, segments);
                if (got > 0) {
                    at += got;
                    continue;
                }
            }
            long front = at == 0 ? headerBytes : 0; // read together with the first piece
            long wanted = Math.min(PIECE_BYTES, end - at - front);
            task.enterIo();
            long got = readFully(handle, at, front + wanted);
            if (got < 0) {
                return (int) got;
            }
            if (!task.leaveIo()) {
                return -Errno.ECANCELED;
            }
            if (at == 0) {
                verdict = format.checkHeader(staging, got, key, segments);
                stated = RecordFormat.statedCrc(staging);
                if (verdict != BlockResult.Done.LOADED) {
                    break;
                }
            }
            at += front;
            if (got < front + wanted) {
                verdict = RecordFormat.corrupt("is cut at " + (at - front + got) + " bytes");
                break;
            }
            long payload = Math.clamp(payloadEnd - at, 0, wanted);
            crc.update(staging.view(front, front + payload));
            scatter.next(staging.memory(), front, payload, segments);
            at += wanted;
        }
        if (verdict == BlockResult.Done.LOADED) {
            verdict = RecordFormat.checkPayload(stated, crc.value());
        }
        return 0;
    }

    /// The bytes of the header if the page cache has all of it, else 0: then it is read together
    /// with the first piece.
    private long readCachedHeader(int handle, long headerBytes) {
        var list = ranges;
        if (list == null) {
            return 0;
        }
        list.clear();
        list.add(staging.memory().address(), headerBytes);
        return readCached(list, handle, 0) == headerBytes ? headerBytes : 0;
    }

    /// Reads to the segments what the page cache has of the next piece, and adds it up; 0 where it
    /// has nothing.
    private long readCached(
            int handle, long at, long payloadEnd, long end, List<MemorySegment> segments) {
        var list = ranges;
        if (list == null) {
            return 0;
        }
        list.clear();
        long unwanted = staging.memory().address();
        long payload = Math.clamp(payloadEnd - at, 0, PIECE_BYTES);
        long listed = scatter.list(list, payload, segments, unwanted);
        if (at + listed >= payloadEnd) {
            list.add(unwanted + listed, end - at - listed); // padding, to see that it is there
        }
        long got = list.bytes() == 0 ? 0 : readCached(list, handle, at);
        if (got > 0) {
            scatter.passOver(Math.min(got, listed), segments, unwanted, crc);
        }
        return got;
    }

    private long readCached(RangeList list, int handle, long at) {
        long got = list.readCached(calls, handle, at);
        if (got == -Errno.ENOSYS) {
            ranges = null;
        }
        return Math.max(0, got); // whatever else is wrong, a read that waits will say
    }

    /// Reads to the start of staging: anywhere else is a slice, and so an object, per call.
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
