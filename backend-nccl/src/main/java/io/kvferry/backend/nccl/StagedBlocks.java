// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.toolkit.bounded.ByteBudget;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;

/// Room of one rank in the host's staging pool, for what is pushed before its load. It is taken for
/// a whole transfer or not at all, and counted until it is given back.
///
/// Threading: any thread.
final class StagedBlocks {
    private final String owner;
    private final StagingPool pool;
    private final ByteBudget budget;
    private final CacheBlocks blocks;

    /// @param most bytes that this rank may occupy
    StagedBlocks(String owner, StagingPool pool, long most, CacheBlocks blocks) {
        this.owner = owner;
        this.pool = pool;
        this.budget = new ByteBudget(most);
        this.blocks = blocks;
    }

    /// The room of one transfer.
    ///
    /// Threading: any thread; closed once.
    final class Lease implements AutoCloseable {
        private final long[] buffers;
        private final Placement placement;
        private int taken;
        private long bytes;

        private Lease(int[] counts, long[] partBytes) {
            buffers = new long[partBytes.length];
            try {
                var segments = new ArrayList<MemorySegment>();
                for (long part : partBytes) {
                    if (part == 0) {
                        segments.add(MemorySegment.NULL);
                        continue;
                    }
                    long buffer = pool.allocate(owner, part);
                    buffers[taken++] = buffer; // needs no memory
                    var segment = pool.segment(buffer);
                    segments.add(segment);
                    long size = segment.byteSize();
                    if (!budget.take(size)) {
                        throw full("this rank's part of the staging pool is full");
                    }
                    bytes += size;
                }
                placement = blocks.packed(segments, counts);
            } catch (RuntimeException | Error e) {
                close();
                throw e;
            }
        }

        Placement placement() {
            return placement;
        }

        /// Needs no memory.
        @Override
        public void close() {
            while (taken > 0) {
                pool.free(buffers[--taken]);
            }
            budget.give(bytes);
            bytes = 0;
        }
    }

    /// Allocates room for that many blocks per group.
    ///
    /// @throws KvFerryException [ErrorCode#NO_MEMORY], [ErrorCode#UNAVAILABLE] when the host has no
    ///   pool, [ErrorCode#INVALID_REQUEST] for invalid counts
    Lease take(int[] counts) {
        if (counts.length != blocks.groups()) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST, counts.length + " groups of blocks");
        }
        long total = 0;
        for (int count : counts) {
            if (count < 0) {
                throw new KvFerryException(ErrorCode.INVALID_REQUEST, count + " blocks");
            }
        }
        long[] parts;
        try {
            parts = blocks.partBytes(counts);
            for (long part : parts) {
                total = Math.addExact(total, part);
            }
        } catch (ArithmeticException e) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST, "more blocks than bytes can count", e);
        }
        if (total == 0) {
            throw new KvFerryException(ErrorCode.INVALID_REQUEST, "no blocks");
        }
        // Not what is available now: buffers of others that may be evicted give way.
        if (total > pool.capacity() || total > budget.limit() - budget.taken()) {
            throw full("no room for " + total + " bytes of a push");
        }
        return new Lease(counts, parts);
    }

    private static KvFerryException full(String what) {
        return new KvFerryException(ErrorCode.NO_MEMORY, what);
    }

    /// Bytes of the pool that are occupied now.
    long taken() {
        return budget.taken();
    }
}
