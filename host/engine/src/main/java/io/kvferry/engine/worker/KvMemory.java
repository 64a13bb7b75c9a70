// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.LongFunction;

/// The cache memory of one rank: one slab, one page-aligned region per layer.
final class KvMemory implements AutoCloseable {
    /// Direct I/O and pinning want whole pages.
    private static final long ALIGNMENT = 4096;

    private final List<KvRegion> regions;
    private final ProvidedMemory memory;
    private boolean closed;

    /// @param provider memory that a connector has for it; where there is none, it allocates some
    KvMemory(KvCacheSpec spec, LongFunction<Optional<ProvidedMemory>> provider) {
        long all = 0;
        for (var group : spec.groups()) {
            all = Math.addExact(all, Math.multiplyExact(bytes(spec, group), group.layers().size()));
        }
        long needed = all;
        memory = provider.apply(needed).orElseGet(() -> OwnMemory.of(needed));
        try {
            regions = regions(spec, whole(memory, needed));
        } catch (RuntimeException e) {
            memory.close();
            throw e;
        }
    }

    private static MemorySegment whole(ProvidedMemory memory, long needed) {
        var segment = memory.range().segment();
        if (segment.byteSize() < needed || segment.address() % ALIGNMENT != 0) {
            throw new KvFerryException(
                    ErrorCode.INTERNAL,
                    "the connector provided "
                            + segment.byteSize()
                            + " bytes at 0x"
                            + Long.toHexString(segment.address())
                            + " for a cache of "
                            + needed
                            + " bytes of whole pages");
        }
        return segment;
    }

    private static long bytes(KvCacheSpec spec, KvCacheGroup group) {
        long bytes = Math.multiplyExact(group.blockBytes(), spec.blockCount());
        return Math.addExact(bytes, ALIGNMENT - 1) & -ALIGNMENT;
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

    /// Memory of the engine's own.
    private record OwnMemory(Arena arena, MemoryRange.Host range) implements ProvidedMemory {
        static OwnMemory of(long bytes) {
            var arena = Arena.ofShared();
            try {
                return new OwnMemory(arena, new MemoryRange.Host(arena.allocate(bytes, ALIGNMENT)));
            } catch (OutOfMemoryError e) {
                arena.close();
                throw new KvFerryException(
                        ErrorCode.NO_MEMORY,
                        "the KV cache of this rank needs "
                                + bytes
                                + " bytes, which this host does not give; take fewer or smaller blocks (--blocks, --block-size)",
                        e);
            }
        }

        @Override
        public void close() {
            arena.close();
        }
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
