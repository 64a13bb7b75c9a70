// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;

import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.List;

/// The cache memory of one rank: one shared arena, one page-aligned region per layer.
final class KvMemory implements AutoCloseable {
    /// Direct I/O and pinning want whole pages.
    private static final long ALIGNMENT = 4096;

    private final Arena arena = Arena.ofShared();
    private final List<KvRegion> regions;

    KvMemory(KvCacheSpec spec) {
        var all = new ArrayList<KvRegion>();
        int layer = 0;
        for (KvCacheGroup group : spec.groups()) {
            long bytes = Math.multiplyExact(group.blockBytes(), spec.blockCount());
            for (var name : group.layers()) {
                var segment = arena.allocate(bytes, ALIGNMENT);
                all.add(
                        new KvRegion(
                                name,
                                layer++,
                                group.index(),
                                new MemoryRange.Host(segment),
                                spec.blockCount(),
                                group.blockBytes(),
                                group.blockBytes()));
            }
        }
        regions = List.copyOf(all);
    }

    List<KvRegion> regions() {
        return regions;
    }

    @Override
    public void close() {
        if (arena.scope().isAlive()) {
            arena.close();
        }
    }
}
