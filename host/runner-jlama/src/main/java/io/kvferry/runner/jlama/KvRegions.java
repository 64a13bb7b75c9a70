// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.jlama;

import com.github.tjake.jlama.tensor.AbstractTensor;
import com.github.tjake.jlama.tensor.KvBufferCache.KvBuffer;

import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;

import java.lang.foreign.MemorySegment;
import java.util.List;

/// Copies KV between the engine's blocks, `[blockTokens][kvHeads][2 (K then V)][headDim]` floats
/// per layer, or `[kvHeads][blockTokens][2][headDim]` for [KvLayout#LBHNC], and the pages of a
/// Jlama buffer, `[positions per page][kvHeads][headDim]` floats for keys and for values of a
/// layer.
///
/// Threading: under the model's lock.
final class KvRegions {
    private final List<KvRegion> regions;
    private final int blockTokens;
    private final long headBytes;

    /// Of one token's keys.
    private final long rowBytes;

    /// In a region, from one token to the next and from one head to the next.
    private final long tokenStride;

    private final long headStride;

    KvRegions(List<KvRegion> regions, KvCacheSpec cache, int kvHeads, int headDim) {
        this.regions = List.copyOf(regions);
        this.blockTokens = cache.blockTokens();
        this.headBytes = (long) headDim * Float.BYTES;
        this.rowBytes = kvHeads * headBytes;
        boolean headMajor = cache.has(KvLayout.LBHNC);
        this.tokenStride = 2 * (headMajor ? headBytes : rowBytes);
        this.headStride = 2 * headBytes * (headMajor ? blockTokens : 1);
    }

    /// Regions to buffer, positions `from` to `to`.
    void load(BlockTable blocks, KvBuffer buffer, int from, int to) {
        copy(blocks, buffer, from, to, true);
    }

    /// Buffer to regions, positions `from` to `to`.
    void save(BlockTable blocks, KvBuffer buffer, int from, int to) {
        copy(blocks, buffer, from, to, false);
    }

    private void copy(BlockTable blocks, KvBuffer buffer, int from, int to, boolean load) {
        if (from >= to) {
            return;
        }
        for (int l = 0; l < regions.size(); l++) {
            // Asking for the last position makes Jlama allocate all pages up to it.
            AbstractTensor<?, ?>[] keys = buffer.getKeyTensorsUptoPosition(l, to - 1);
            AbstractTensor<?, ?>[] values = buffer.getValTensorsUptoPosition(l, to - 1);
            int perPage = keys[0].shape().first();
            KvRegion region = regions.get(l);
            MemorySegment memory = region.segment();
            for (int p = from; p < to; p++) {
                long row =
                        region.offset(blocks.block(0, p / blockTokens))
                                + p % blockTokens * tokenStride;
                long page = p % perPage * rowBytes;
                copy(keys[p / perPage].getMemorySegment(), page, memory, row, load);
                copy(values[p / perPage].getMemorySegment(), page, memory, row + headBytes, load);
            }
        }
    }

    /// The keys, or the values, of one token: heads lie side by side in the page.
    private void copy(
            MemorySegment page, long pageAt, MemorySegment region, long regionAt, boolean load) {
        long there = regionAt;
        for (long at = 0; at < rowBytes; at += headBytes, there += headStride) {
            if (load) {
                MemorySegment.copy(region, there, page, pageAt + at, headBytes);
            } else {
                MemorySegment.copy(page, pageAt + at, region, there, headBytes);
            }
        }
    }
}
