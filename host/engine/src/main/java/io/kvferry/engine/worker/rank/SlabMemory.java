// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.rank;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.toolkit.memory.HostPages;

import java.lang.foreign.Arena;
import java.util.Optional;
import java.util.function.LongFunction;

/// One piece of page-aligned host memory for a cache: the connector's, where it has some, else the
/// engine's own.
final class SlabMemory {
    /// Direct I/O and pinning want whole pages.
    static final long ALIGNMENT = 4096;

    private SlabMemory() {}

    /// @param provider memory that a connector has for it
    static ProvidedMemory of(long bytes, LongFunction<Optional<ProvidedMemory>> provider) {
        var memory = provider.apply(bytes).orElseGet(() -> OwnMemory.of(bytes));
        var segment = memory.range().segment();
        if (segment.byteSize() < bytes || segment.address() % ALIGNMENT != 0) {
            memory.close();
            throw new KvFerryException(
                    ErrorCode.INTERNAL,
                    "the connector provided "
                            + segment.byteSize()
                            + " bytes at 0x"
                            + Long.toHexString(segment.address())
                            + " for a cache of "
                            + bytes
                            + " bytes of whole pages");
        }
        return memory;
    }

    /// Memory of the engine's own, by huge pages where the kernel has them.
    private record OwnMemory(Arena arena, MemoryRange.Host range) implements ProvidedMemory {
        static OwnMemory of(long bytes) {
            var arena = Arena.ofShared();
            try {
                return new OwnMemory(arena, new MemoryRange.Host(HostPages.allocate(bytes, arena)));
            } catch (OutOfMemoryError e) {
                arena.close();
                throw new KvFerryException(
                        ErrorCode.NO_MEMORY,
                        "a cache of this rank needs "
                                + bytes
                                + " bytes, which this host does not give; take fewer or smaller blocks (--blocks, --block-size), or fewer encoder rows",
                        e);
            }
        }

        @Override
        public void close() {
            arena.close();
        }
    }
}
