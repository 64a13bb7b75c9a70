// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.spi.memory.KvRegion;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/// The memory of one cache group: a block is its bytes in each layer, in the order of the model.
///
/// Threading: immutable.
final class RegionBlocks {
    private final KvRegion[] layers;
    private final MemorySegment[] memory;
    private final long bytes;

    private RegionBlocks(List<KvRegion> layers) {
        this.layers = layers.toArray(KvRegion[]::new);
        this.memory = layers.stream().map(KvRegion::segment).toArray(MemorySegment[]::new);
        this.bytes = layers.stream().mapToLong(KvRegion::blockBytes).sum();
    }

    /// One per group.
    static List<RegionBlocks> of(List<KvRegion> regions, int groups) {
        var all = new ArrayList<RegionBlocks>();
        for (int group = 0; group < groups; group++) {
            int index = group;
            all.add(
                    new RegionBlocks(
                            regions.stream()
                                    .filter(region -> region.group() == index)
                                    .sorted(Comparator.comparingInt(KvRegion::layerIndex))
                                    .toList()));
        }
        return all;
    }

    /// Whether this rank has layers of the group.
    boolean isEmpty() {
        return layers.length == 0;
    }

    /// Bytes of a block.
    long bytes() {
        return bytes;
    }

    /// Adds the pieces of a block to the last key of a batch.
    void addTo(StoreBatch batch, int block) {
        for (int i = 0; i < layers.length; i++) {
            batch.buffer(memory[i], layers[i].offset(block), layers[i].blockBytes());
        }
    }
}
