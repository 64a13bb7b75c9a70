// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.block;

import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.IoTask;
import io.kvferry.toolkit.disk.NativeCrc;
import io.kvferry.toolkit.disk.RangeList;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;

/// Loads blocks whose file is completely in the page cache, without an intermediate copy: the
/// kernel copies pieces into the caller's segments, where they are checksummed while still in the
/// CPU cache.
///
/// Such a read does not wait for the device, so the deadline thread waits for it as it does for a
/// memory copy. It blocks only if the cache drops a page after it was checked and the device hangs.
///
/// A successful load is its only result. On any mismatch the caller reads the file again with
/// [PieceReader], which reports the error: a checksum computed over the caller's memory is not a
/// reason to delete a file.
///
/// Threading: confined to one I/O thread.
public final class CachedReader {
    private static final long PIECE_BYTES = PieceReader.PIECE_BYTES;

    private final FileCalls calls;
    private final RecordFormat format;
    private final AlignedStaging staging;
    private final NativeCrc crc = new NativeCrc();
    private final PayloadScatter scatter = new PayloadScatter();

    /// Null if the platform lacks the system calls.
    private @Nullable RangeList ranges;

    /// @param arena lives as long as the thread
    public CachedReader(FileCalls calls, RecordFormat format, AlignedStaging staging, Arena arena) {
        this.calls = calls;
        this.format = format;
        this.staging = staging;
        int limit = calls.gatherLimit();
        this.ranges = limit >= GatherWriter.LEAST_RANGES ? new RangeList(arena, limit) : null;
    }

    /// Loads the block of a request. The request must be in its I/O phase and is left in it.
    ///
    /// @return false when the file has to be read another way
    public boolean load(IoTask task, BlockKey key, List<MemorySegment> segments, int handle) {
        var list = ranges;
        if (list == null) {
            return false;
        }
        long headerBytes = RecordFormat.headerBytes(key);
        long payloadBytes = RecordFormat.payloadBytes(segments);
        long end = RecordFormat.fileBytes(key, payloadBytes);
        if (!isCached(handle, end)) {
            return false;
        }
        // The header and padding suffice, except when a segment is unwanted: a full piece would
        // make the first load of each thread wait for the allocation.
        staging.ensure(headerBytes + (PayloadScatter.hasUnwanted(segments) ? PIECE_BYTES : 0));
        list.clear();
        list.add(staging.memory().address(), headerBytes);
        if (read(list, handle, 0) < headerBytes
                || format.checkHeader(staging, headerBytes, key, payloadBytes)
                        != BlockResult.Done.LOADED) {
            return false;
        }
        int stated = RecordFormat.statedCrc(staging);
        if (!task.leaveIo()) {
            return false;
        }
        boolean loaded = readPayload(list, task, segments, handle, headerBytes, end);
        task.enterIo();
        return loaded && crc.value() == stated;
    }

    private boolean isCached(int handle, long bytes) {
        long cached = calls.cached(handle, bytes);
        if (cached == -Errno.ENOSYS) {
            ranges = null;
        }
        return cached >= bytes;
    }

    /// In the memory phase: reads everything after the header; stops when the deadline passes.
    private boolean readPayload(
            RangeList list,
            IoTask task,
            List<MemorySegment> segments,
            int handle,
            long headerBytes,
            long end) {
        long payloadEnd = headerBytes + RecordFormat.payloadBytes(segments);
        long padding = staging.memory().address(); // the header is no longer needed
        long unwanted = padding + headerBytes;
        crc.reset();
        scatter.reset();
        for (long at = headerBytes; at < end; ) {
            list.clear();
            long payload = Math.clamp(payloadEnd - at, 0, PIECE_BYTES);
            long listed = scatter.list(list, payload, segments, unwanted);
            if (at + listed >= payloadEnd) {
                list.add(padding, end - at - listed); // verifies the file length
            }
            long got = task.deadlineNanos() - System.nanoTime() > 0 ? read(list, handle, at) : 0;
            if (got <= 0) {
                return false;
            }
            scatter.passOver(Math.min(got, listed), segments, unwanted, crc);
            at += got;
        }
        return true;
    }

    private long read(RangeList list, int handle, long at) {
        if (list.bytes() == 0) {
            return 0; // a segment has no address that this thread may write to
        }
        long got = list.readCached(calls, handle, at);
        if (got == -Errno.ENOSYS) {
            ranges = null;
        }
        return got;
    }
}
