// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.spi.memory.KvRegion;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/// The regions of one group as blocks: for each block id the list of its bytes, one segment per
/// layer in model order. Lists are made on first use and kept, so that a block that comes again
/// costs no object.
///
/// Threading: the step thread.
final class RegionMemory {
    private final List<KvRegion> layers;
    private final @Nullable List<MemorySegment>[] blocks;
    private List<MemorySegment> absent = List.of();

    @SuppressWarnings({"unchecked", "rawtypes"}) // there is no generic array
    private RegionMemory(List<KvRegion> layers) {
        this.layers = layers;
        this.blocks = new List[layers.stream().mapToInt(KvRegion::blocks).min().orElse(0)];
    }

    static List<RegionMemory> of(List<KvRegion> regions, int groups) {
        var memory = new ArrayList<RegionMemory>();
        for (int group = 0; group < groups; group++) {
            int index = group;
            memory.add(
                    new RegionMemory(
                            regions.stream()
                                    .filter(region -> region.group() == index)
                                    .sorted(Comparator.comparingInt(KvRegion::layerIndex))
                                    .toList()));
        }
        return memory;
    }

    /// Read-only segments as long as those of a block: they stand for a block that is in a file but
    /// not wanted.
    List<MemorySegment> absent() {
        if (absent.isEmpty()) {
            absent =
                    layers.stream()
                            .map(region -> region.block(0).byteSize())
                            .map(bytes -> Arena.ofAuto().allocate(bytes).asReadOnly())
                            .toList();
        }
        return absent;
    }

    List<MemorySegment> block(int id) {
        List<MemorySegment> known = blocks[id];
        if (known == null) {
            known = layers.stream().map(region -> region.block(id)).toList();
            blocks[id] = known;
        }
        return known;
    }
}
