// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

import java.lang.foreign.MemorySegment;
import java.util.Objects;

/// The blocks of one layer on one rank, in memory that the engine owns and keeps until the worker
/// half is closed. Block `b` is the `blockBytes` bytes at `b * strideBytes`.
///
/// An engine whose KV cache is not addressable (Jlama, a native engine) still provides regions: it
/// copies blocks in before a save and out after a load, transparently to connectors.
///
/// @param layerIndex position of the layer in the model
/// @param memory from the layer's first block to the end of its last; where the layout puts the
///   layers of a block side by side ([KvLayout#BLHNC], [KvLayout#BLNHC]) it spans blocks of other
///   layers too, and the memory of regions overlaps. The blocks of two regions never overlap
/// @param strideBytes distance between two blocks; equals `blockBytes` when packed
public record KvRegion(
        String layer,
        int layerIndex,
        int group,
        MemoryRange memory,
        int blocks,
        long blockBytes,
        long strideBytes) {
    public KvRegion {
        Objects.requireNonNull(layer, "layer");
        if (blocks < 1 || blockBytes < 1 || strideBytes < blockBytes) {
            throw new IllegalArgumentException(
                    "region of "
                            + layer
                            + ": blocks "
                            + blocks
                            + ", blockBytes "
                            + blockBytes
                            + ", strideBytes "
                            + strideBytes);
        }
        long needed = Math.addExact(Math.multiplyExact(blocks - 1L, strideBytes), blockBytes);
        if (memory.length() < needed) {
            throw new IllegalArgumentException(
                    "region of "
                            + layer
                            + ": needs "
                            + needed
                            + " bytes, memory has "
                            + memory.length());
        }
    }

    /// Byte offset of a block within the region.
    public long offset(int block) {
        return Objects.checkIndex(block, blocks) * strideBytes;
    }

    /// The bytes of one block of a host region; allocates a slice object, so hot loops use
    /// [#offset] on [#segment].
    public MemorySegment block(int block) {
        return segment().asSlice(offset(block), blockBytes);
    }

    /// The whole region as host memory.
    ///
    /// @throws IllegalStateException if it lives elsewhere
    public MemorySegment segment() {
        return memory.hostSegment();
    }
}
