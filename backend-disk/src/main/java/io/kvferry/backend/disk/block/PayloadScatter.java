// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.block;

import io.kvferry.toolkit.disk.NativeCrc;
import io.kvferry.toolkit.disk.RangeList;

import java.lang.foreign.MemorySegment;
import java.util.List;

/// Distributes the payload of a block over its segments, piece by piece, in order. A read-only
/// segment stands for a part that the caller does not want.
///
/// Threading: confined to one I/O thread.
final class PayloadScatter {
    private int segment;
    private long within;

    /// Whether there is a part that the caller does not want.
    static boolean hasUnwanted(List<MemorySegment> segments) {
        for (int i = 0; i < segments.size(); i++) {
            if (segments.get(i).isReadOnly()) {
                return true;
            }
        }
        return false;
    }

    /// Starts at the first byte again.
    void reset() {
        segment = 0;
        within = 0;
    }

    /// Copies the next `bytes` of the payload, which lie at `from`.
    void next(MemorySegment source, long from, long bytes, List<MemorySegment> segments) {
        long at = from;
        for (long left = bytes; left > 0; ) {
            MemorySegment target = segments.get(segment);
            long length = Math.min(left, target.byteSize() - within);
            if (!target.isReadOnly()) {
                MemorySegment.copy(source, at, target, within, length);
            }
            at += length;
            left -= length;
            passed(length, target);
        }
    }

    /// Lists where the next bytes of the payload go, leaving room for one more range.
    ///
    /// @param most bytes
    /// @param unwanted address of as many bytes, where those go that the caller does not want
    /// @return bytes listed; those in front of a segment without an address that this thread may
    ///   write to
    long list(RangeList to, long most, List<MemorySegment> segments, long unwanted) {
        int next = segment;
        long from = within;
        long listed = 0;
        while (listed < most && to.count() < to.limit() - 1) {
            MemorySegment target = segments.get(next);
            long length = Math.min(most - listed, target.byteSize() - from);
            if (target.isReadOnly()) {
                to.add(unwanted + listed, length);
            } else if (canWrite(target)) {
                to.add(target.address() + from, length);
            } else {
                break;
            }
            listed += length;
            next++;
            from = 0;
        }
        return listed;
    }

    /// Checks the segment here, because the system calls take raw addresses and would not detect a
    /// freed one.
    private static boolean canWrite(MemorySegment target) {
        return target.isNative()
                && target.scope().isAlive()
                && target.isAccessibleBy(Thread.currentThread());
    }

    /// Adds bytes that were read to where [#list] put them to the checksum, and advances past them.
    void passOver(long bytes, List<MemorySegment> segments, long unwanted, NativeCrc crc) {
        for (long done = 0; done < bytes; ) {
            MemorySegment target = segments.get(segment);
            long length = Math.min(bytes - done, target.byteSize() - within);
            crc.update(target.isReadOnly() ? unwanted + done : target.address() + within, length);
            done += length;
            passed(length, target);
        }
    }

    private void passed(long bytes, MemorySegment target) {
        within += bytes;
        if (within == target.byteSize()) {
            segment++;
            within = 0;
        }
    }
}
