// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import java.lang.foreign.MemorySegment;
import java.util.List;

/// Where the blocks of one transfer lie on one side: part by part, a part for each layer in the
/// order of the model, and in each the same positions of the prompt as on the other side.
///
/// Threading: immutable; the memory is whoever's who made it.
public record Placement(List<Part> parts) {
    /// The most that one `ByteBuffer` can show, with room to spare.
    public static final long MAX_BLOCK_BYTES = 1L << 30;

    public Placement {
        parts = List.copyOf(parts);
    }

    /// The blocks of one layer.
    ///
    /// @param segment block `b` is its `blockBytes` bytes at `b * strideBytes`
    /// @param blocks numbers of the blocks, in order of position
    public record Part(
            int layerIndex,
            MemorySegment segment,
            long strideBytes,
            long blockBytes,
            int[] blocks) {
        public Part {
            if (blockBytes < 1 || blockBytes > MAX_BLOCK_BYTES || strideBytes < blockBytes) {
                throw new IllegalArgumentException(
                        "blocks of " + blockBytes + " bytes every " + strideBytes);
            }
        }

        public int count() {
            return blocks.length;
        }

        public long bytes() {
            return blockBytes * blocks.length;
        }

        /// Blocks from position `first` on, before position `end`, that lie one behind the other.
        int adjacent(int first, int end) {
            int run = 1;
            while (first + run < end
                    && strideBytes == blockBytes
                    && blocks[first + run] == blocks[first] + run
                    && (run + 1) * blockBytes <= MAX_BLOCK_BYTES) {
                run++;
            }
            return run;
        }

        /// Copies all blocks to where `target` says.
        void copyTo(Part target) {
            for (int i = 0; i < blocks.length; i++) {
                MemorySegment.copy(
                        segment,
                        blocks[i] * strideBytes,
                        target.segment,
                        target.blocks[i] * target.strideBytes,
                        blockBytes);
            }
        }

        /// The last `count` blocks.
        Part tail(int count) {
            return new Part(
                    layerIndex,
                    segment,
                    strideBytes,
                    blockBytes,
                    java.util.Arrays.copyOfRange(blocks, blocks.length - count, blocks.length));
        }
    }

    public long bytes() {
        return parts.stream().mapToLong(Part::bytes).sum();
    }

    /// Copies to where `target` says, which has as many parts and in each of them as many blocks or
    /// fewer: those that both have are the last ones.
    public void copyTailTo(Placement target) {
        for (int i = 0; i < parts.size(); i++) {
            var to = target.parts.get(i);
            parts.get(i).tail(to.count()).copyTo(to);
        }
    }
}
