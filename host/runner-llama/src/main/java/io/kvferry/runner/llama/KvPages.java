// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.List;

/// The paged KV cache of one rank: for each layer a region of blocks, each
/// `[blockTokens][kvHeads][2 (K then V)][headDim]` floats for [KvLayout#LBNHC],
/// `[kvHeads][blockTokens][2][headDim]` for [KvLayout#LBHNC], little-endian, keys after rotation.
///
/// Threading: concurrent reads of a block are safe; a write requires that no other thread accesses
/// the block.
final class KvPages {
    private static final ValueLayout.OfFloat F32 =
            ValueLayout.JAVA_FLOAT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

    private final int blockTokens;
    private final int width;

    /// In how many places the floats of one token are: 1, or one for each head.
    private final int runs;

    private final MemorySegment[] layers;
    private final long[] strides;

    /// @param kvHeads heads of a token
    /// @param width floats of one token: keys and values of all heads
    KvPages(List<KvRegion> regions, KvCacheSpec cache, int kvHeads, int width) {
        this.blockTokens = cache.blockTokens();
        this.width = width;
        this.runs = cache.has(KvLayout.LBHNC) ? kvHeads : 1;
        this.layers = regions.stream().map(KvRegion::segment).toArray(MemorySegment[]::new);
        this.strides = regions.stream().mapToLong(KvRegion::strideBytes).toArray();
        for (KvRegion region : regions) {
            if (region.blockBytes() != rowBytes() * blockTokens) {
                throw new IllegalArgumentException(
                        "region of "
                                + region.layer()
                                + " has blocks of "
                                + region.blockBytes()
                                + " bytes, the model needs "
                                + rowBytes() * blockTokens);
            }
        }
    }

    int blockTokens() {
        return blockTokens;
    }

    /// Copies rows `from` to `to` of a block to their places in `page`, which holds a whole block
    /// as [KvLayout#LBNHC] orders it.
    void read(int layer, int block, int from, int to, float[] page) {
        if (runs == 1) {
            long offset = block * strides[layer] + from * rowBytes();
            MemorySegment.copy(layers[layer], F32, offset, page, from * width, (to - from) * width);
            return;
        }
        int part = width / runs;
        for (int head = 0; head < runs; head++) {
            for (int row = from; row < to; row++) {
                long offset = offset(layer, block, head, row);
                MemorySegment.copy(
                        layers[layer], F32, offset, page, row * width + head * part, part);
            }
        }
    }

    /// Copies rows `from` to `to` of a block from their places in `page`.
    void write(int layer, int block, int from, int to, float[] page) {
        if (runs == 1) {
            long offset = block * strides[layer] + from * rowBytes();
            MemorySegment.copy(page, from * width, layers[layer], F32, offset, (to - from) * width);
            return;
        }
        int part = width / runs;
        for (int head = 0; head < runs; head++) {
            for (int row = from; row < to; row++) {
                long offset = offset(layer, block, head, row);
                MemorySegment.copy(
                        page, row * width + head * part, layers[layer], F32, offset, part);
            }
        }
    }

    private long offset(int layer, int block, int head, int row) {
        return block * strides[layer]
                + ((long) head * blockTokens + row) * (width / runs) * Float.BYTES;
    }

    private long rowBytes() {
        return (long) width * Float.BYTES;
    }
}
