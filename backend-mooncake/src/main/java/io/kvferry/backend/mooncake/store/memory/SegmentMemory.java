// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.memory;

import io.kvferry.toolkit.memory.HostPages;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/// Where the memory of a segment comes from.
public interface SegmentMemory {
    /// Memory of this process alone.
    SegmentMemory PRIVATE =
            bytes -> {
                var arena = Arena.ofShared();
                boolean done = false;
                try {
                    var taken = new Taken(HostPages.allocate(bytes, arena), arena::close);
                    done = true;
                    return taken;
                } finally {
                    if (!done) {
                        arena.close();
                    }
                }
            };

    /// @param free gives it back; called once, when nothing lies in it any more
    record Taken(MemorySegment memory, Runnable free) {}

    /// Takes memory.
    ///
    /// @throws OutOfMemoryError when there is none
    Taken take(long bytes);
}
