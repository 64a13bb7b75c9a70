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

/// Writes blocks straight from the caller's segments, with no copy in between: checksum and write
/// take turns over pieces. The header goes with the first piece, because the page cache makes one
/// large folio of both. If there are more pieces, that header holds the checksum of the first one
/// only, so that no reader accepts it, and the whole header is written over it at the end.
///
/// For the page cache only: O_DIRECT asks for alignment that segments need not have.
///
/// Threading: confined to one I/O thread.
public final class GatherWriter {
    /// Large folios save more processor time than pieces of a quarter, which stay in the
    /// second-level cache between checksum and copy.
    public static final long PIECE_BYTES = 1 << 20;

    /// The last piece takes so much more rather than leave it to one of its own.
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

    /// Writes the whole block of a request that is in its I/O phase, and leaves it there; a negated
    /// error number when that failed, ECANCELED when the deadline took the request.
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

    /// Takes the next piece of the payload into the list and the checksum, leaving room for one
    /// more range, and what lies next to each other in memory together; false when a segment was
    /// freed, which nothing else would notice in time, because from here on only addresses count.
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
