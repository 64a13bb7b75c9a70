// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

import java.util.List;

/// The shape of one engine's KV cache on one rank; the same on every rank of one pipeline stage.
///
/// @param groups at least one; group 0 is the one whose block size defines prefix hits, and every
///   other block size is a multiple of it
/// @param blockCount blocks in the pool, shared by all groups
/// @param kvHeads KV heads of the whole model, before it is split over ranks
/// @param headDim elements of one head's K (or V) vector
public record KvCacheSpec(
        List<KvCacheGroup> groups,
        int blockCount,
        DType dtype,
        KvLayout layout,
        int kvHeads,
        int headDim) {
    public KvCacheSpec {
        groups = List.copyOf(groups);
        if (groups.isEmpty() || blockCount < 1) {
            throw new IllegalArgumentException(
                    "a KV cache needs a group and a block, got "
                            + groups.size()
                            + ", "
                            + blockCount);
        }
        for (int i = 0; i < groups.size(); i++) {
            if (groups.get(i).index() != i) {
                throw new IllegalArgumentException(
                        "group at position " + i + " says it is " + groups.get(i).index());
            }
            if (groups.get(i).blockTokens() % groups.getFirst().blockTokens() != 0) {
                throw new IllegalArgumentException(
                        "group "
                                + i
                                + " has blocks of "
                                + groups.get(i).blockTokens()
                                + " tokens, no multiple of group 0's "
                                + groups.getFirst().blockTokens());
            }
        }
    }

    /// Tokens per block of group 0: the grain of block hashes.
    public int blockTokens() {
        return groups.getFirst().blockTokens();
    }
}
