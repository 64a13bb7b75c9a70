// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import java.lang.foreign.MemorySegment;
import java.util.List;

/// Copies the payload of a block to its segments, a part at a time, first to last.
///
/// Threading: confined to one I/O thread.
final class PayloadScatter {
    private int segment;
    private long within;

    /// Starts at the first byte again.
    void reset() {
        segment = 0;
        within = 0;
    }

    /// Copies the next `bytes` of the payload, which lie at `from`; a read-only segment stands for
    /// a part that the caller does not want.
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
            within += length;
            if (within == target.byteSize()) {
                segment++;
                within = 0;
            }
        }
    }
}
