// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.block;

import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.IoTask;
import io.kvferry.toolkit.disk.NativeCrc;
import io.kvferry.toolkit.disk.RangeList;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;

/// Writes blocks directly from the caller's segments, without an intermediate copy, alternating
/// checksum and write per piece. The header is written together with the first piece, because the
/// page cache then allocates one large folio for both. With more than one piece, that header holds
/// only the first piece's checksum, so readers reject the file; the final header is written over it
/// at the end.
///
/// Buffered I/O only: O_DIRECT requires an alignment that segments need not have.
///
/// Threading: confined to one I/O thread.
public final class GatherWriter {
    /// Large folios save more CPU time than smaller pieces that would stay in the L2 cache between
    /// checksum and copy.
    public static final long PIECE_BYTES = 1 << 20;

    /// A remainder up to this size is written with the last piece instead of as a piece of its own.
    private static final long SMALL_REST_BYTES = PIECE_BYTES / 4;

    /// Header, a piece of one segment, padding.
    public static final int LEAST_RANGES = 3;

    private final FileCalls calls;
    private final RecordFormat format;
    private final AlignedStaging staging;
    private final RangeList ranges;
    private final MemorySegment zeros;
    private final NativeCrc crc = new NativeCrc();
    private int segment;
    private long within;

    /// @param arena lives as long as the thread
    public GatherWriter(FileCalls calls, RecordFormat format, AlignedStaging staging, Arena arena) {
        this.calls = calls;
        this.format = format;
        this.staging = staging;
        this.ranges = new RangeList(arena, calls.gatherLimit());
        this.zeros = arena.allocate(AlignedStaging.ALIGNMENT, AlignedStaging.ALIGNMENT);
    }

    /// Whether these segments have addresses to write from.
    public static boolean takes(List<MemorySegment> segments) {
        for (int i = 0; i < segments.size(); i++) {
            if (!segments.get(i).isNative()) {
                return false;
            }
        }
        return true;
    }

    /// Writes the whole block of a request. The request must be in its I/O phase and is left in it.
    ///
    /// @return 0 or a negated errno; ECANCELED when the request has timed out
    public int write(IoTask request, BlockKey key, List<MemorySegment> segments, int handle) {
        long headerBytes = RecordFormat.headerBytes(key);
        long payloadBytes = RecordFormat.payloadBytes(segments);
        long padding = AlignedStaging.align(payloadBytes) - payloadBytes;
        staging.ensure(headerBytes);
        crc.reset();
        segment = 0;
        within = 0;
        long end = headerBytes + payloadBytes;
        long at = 0;
        boolean first = true;
        boolean more = true;
        while (more) {
            if (!request.leaveIo()) {
                return -Errno.ECANCELED;
            }
            ranges.clear();
            if (first) {
                ranges.add(staging.memory().address(), headerBytes);
            }
            long from = at + ranges.bytes();
            // Pieces that end at multiples of their size get large folios in the page cache.
            long most = PIECE_BYTES - from % PIECE_BYTES;
            if (end - from <= most + SMALL_REST_BYTES) {
                most += SMALL_REST_BYTES;
            }
            if (!fill(segments, most)) {
                return -Errno.EFAULT;
            }
            more = segment < segments.size();
            if (!more) {
                ranges.add(zeros.address(), padding);
            }
            if (first || !more) {
                format.encodeHeader(key, payloadBytes, crc.value(), staging);
            }
            request.enterIo();
            long bytes = ranges.bytes();
            int rc = writeFully(handle, at);
            if (rc != 0 || (first && !more)) {
                return rc;
            }
            at += bytes;
            first = false;
        }
        ranges.clear();
        ranges.add(staging.memory().address(), headerBytes);
        return writeFully(handle, 0);
    }

    /// Adds the next piece of the payload to the range list and the checksum, merging ranges
    /// adjacent in memory and leaving room for one more range. Returns false when a segment has
    /// been freed: the system calls take raw addresses and would not detect it.
    private boolean fill(List<MemorySegment> segments, long most) {
        long room = most;
        long address = 0; // of adjacent segments that are not listed yet
        long length = 0;
        while (room > 0 && segment < segments.size()) {
            MemorySegment source = segments.get(segment);
            long from = source.address() + within;
            if (length == 0 || address + length != from) {
                if (ranges.count() + (length > 0 ? 1 : 0) >= ranges.limit() - 1) {
                    break;
                }
                take(address, length);
                address = from;
                length = 0;
            }
            if (!source.scope().isAlive()) {
                return false;
            }
            long bytes = Math.min(room, source.byteSize() - within);
            length += bytes;
            room -= bytes;
            within += bytes;
            if (within == source.byteSize()) {
                segment++;
                within = 0;
            }
        }
        take(address, length);
        return true;
    }

    private void take(long address, long length) {
        if (length > 0) {
            crc.update(address, length);
            ranges.add(address, length);
        }
    }

    private int writeFully(int handle, long offset) {
        long at = offset;
        while (ranges.bytes() > 0) {
            long n = ranges.write(calls, handle, at);
            if (n == -Errno.EINTR) {
                continue;
            }
            if (n <= 0) {
                return n == 0 ? -Errno.EIO : (int) n;
            }
            at += n;
        }
        return 0;
    }
}
