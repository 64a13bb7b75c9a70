// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;

/// The regions of one group as file content, in the order of [FileLayout#inOrder]. If that order is
/// layer by layer, blocks that are contiguous in memory become one segment per layer, which is
/// common for long prompts.
///
/// Segments of single blocks are created on first use and cached, so reused blocks allocate
/// nothing; a segment of several blocks is created per file.
///
/// Threading: the step thread.
final class RegionMemory {
    private final List<KvRegion> layers;
    private final KvLayout layout;
    private final @Nullable List<MemorySegment>[] blocks;
    private final long blockBytes;
    private List<MemorySegment> absent = List.of();

    @SuppressWarnings({"unchecked", "rawtypes"}) // there is no generic array
    private RegionMemory(List<KvRegion> layers, KvLayout layout) {
        this.layers = layers;
        this.layout = layout;
        this.blocks = new List[layers.stream().mapToInt(KvRegion::blocks).min().orElse(0)];
        this.blockBytes = layers.stream().mapToLong(KvRegion::blockBytes).sum();
    }

    static List<RegionMemory> of(List<KvRegion> regions, int groups, KvLayout layout) {
        var memory = new ArrayList<RegionMemory>();
        for (int group = 0; group < groups; group++) {
            int index = group;
            memory.add(
                    new RegionMemory(
                            regions.stream()
                                    .filter(region -> region.group() == index)
                                    .sorted(Comparator.comparingInt(KvRegion::layerIndex))
                                    .toList(),
                            layout));
        }
        return memory;
    }

    /// Of all layers.
    long blockBytes() {
        return blockBytes;
    }

    /// The memory of the blocks of a file.
    ///
    /// @param ids of its blocks, first to last; [BlockTable#NO_BLOCK] for one that is in the file
    ///   but not wanted, for which read-only segments stand
    List<MemorySegment> segments(int[] ids) {
        if (layers.isEmpty()) {
            throw new IllegalStateException("no region of this group was registered");
        }
        if (ids.length == 1) {
            return block(ids[0]);
        }
        if (FileLayout.isBlockMajor(layout)) {
            return FileLayout.inOrder(Arrays.stream(ids).mapToObj(this::block).toList(), layout);
        }
        var segments = new ArrayList<MemorySegment>();
        for (int layer = 0; layer < layers.size(); layer++) {
            addLayer(segments, layer, ids);
        }
        return segments;
    }

    private void addLayer(List<MemorySegment> segments, int layer, int[] ids) {
        KvRegion region = layers.get(layer);
        boolean packed = region.strideBytes() == region.blockBytes();
        for (int at = 0; at < ids.length; ) {
            int first = ids[at];
            int count = 1;
            while (packed
                    && first != BlockTable.NO_BLOCK
                    && at + count < ids.length
                    && ids[at + count] == first + count) {
                count++;
            }
            if (count == 1) {
                segments.add(block(first).get(layer));
            } else {
                long from = region.offset(first);
                long to = region.offset(first + count - 1) + region.blockBytes();
                segments.add(region.segment().asSlice(from, to - from));
            }
            at += count;
        }
    }

    private List<MemorySegment> block(int id) {
        if (id == BlockTable.NO_BLOCK) {
            return absent();
        }
        List<MemorySegment> known = blocks[id];
        if (known == null) {
            known = layers.stream().map(region -> region.block(id)).toList();
            blocks[id] = known;
        }
        return known;
    }

    private List<MemorySegment> absent() {
        if (absent.isEmpty()) {
            absent =
                    layers.stream()
                            .map(region -> Arena.ofAuto().allocate(region.blockBytes()))
                            .map(MemorySegment::asReadOnly)
                            .toList();
        }
        return absent;
    }
}
