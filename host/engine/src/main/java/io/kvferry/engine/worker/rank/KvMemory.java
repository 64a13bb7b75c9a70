// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.rank;

import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.LongFunction;

/// The cache memory of one rank: one slab, one page-aligned region per layer.
final class KvMemory implements AutoCloseable {
    private final List<KvRegion> regions;
    private final ProvidedMemory memory;
    private boolean closed;

    /// @param provider memory that a connector has for it; where there is none, it allocates some
    KvMemory(KvCacheSpec spec, LongFunction<Optional<ProvidedMemory>> provider) {
        long all = 0;
        for (var group : spec.groups()) {
            all = Math.addExact(all, Math.multiplyExact(bytes(spec, group), group.layers().size()));
        }
        memory = SlabMemory.of(all, provider);
        try {
            regions = regions(spec, memory.range().segment());
        } catch (RuntimeException e) {
            memory.close();
            throw e;
        }
    }

    private static long bytes(KvCacheSpec spec, KvCacheGroup group) {
        long bytes = Math.multiplyExact(group.blockBytes(), spec.blockCount());
        return Math.addExact(bytes, SlabMemory.ALIGNMENT - 1) & -SlabMemory.ALIGNMENT;
    }

    private static List<KvRegion> regions(KvCacheSpec spec, MemorySegment whole) {
        var all = new ArrayList<KvRegion>();
        int layer = 0;
        long at = 0;
        for (KvCacheGroup group : spec.groups()) {
            long bytes = Math.multiplyExact(group.blockBytes(), spec.blockCount());
            for (var name : group.layers()) {
                var segment = whole.asSlice(at, bytes);
                at += bytes(spec, group);
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
        return List.copyOf(all);
    }

    List<KvRegion> regions() {
        return regions;
    }

    @Override
    public void close() {
        if (!closed) {
            closed = true;
            memory.close();
        }
    }
}
