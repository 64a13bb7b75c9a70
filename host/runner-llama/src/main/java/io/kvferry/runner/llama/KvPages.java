// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

import io.kvferry.spi.memory.KvRegion;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.List;

/// The paged KV cache of one rank: for each layer a region of blocks, each
/// `[blockTokens][kvHeads][2 (K then V)][headDim]` floats, little-endian, keys after rotation.
///
/// Threading: safe as long as nobody writes a block that another reads or writes; a block that
/// nobody writes may be read by all.
final class KvPages {
    private static final ValueLayout.OfFloat F32 =
            ValueLayout.JAVA_FLOAT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

    private final int blockTokens;
    private final int width;
    private final MemorySegment[] layers;
    private final long[] strides;

    /// @param width floats of one token: keys and values of all heads
    KvPages(List<KvRegion> regions, int blockTokens, int width) {
        this.blockTokens = blockTokens;
        this.width = width;
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

    /// Copies rows `from` to `to` of a block to their places in `page`, which holds a whole block.
    void read(int layer, int block, int from, int to, float[] page) {
        long offset = block * strides[layer] + from * rowBytes();
        MemorySegment.copy(layers[layer], F32, offset, page, from * width, (to - from) * width);
    }

    /// Copies rows `from` to `to` of a block from their places in `page`.
    void write(int layer, int block, int from, int to, float[] page) {
        long offset = block * strides[layer] + from * rowBytes();
        MemorySegment.copy(page, from * width, layers[layer], F32, offset, (to - from) * width);
    }

    private long rowBytes() {
        return (long) width * Float.BYTES;
    }
}
