// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

import java.util.List;

/// The shape of one engine's KV cache on one rank; the same on every rank of one pipeline stage.
///
/// @param groups at least one; group 0 is the one whose block size defines prefix hits, and every
///   other block size is a multiple of it
/// @param blockCount blocks in the pool, shared by all groups
public record KvCacheSpec(List<KvCacheGroup> groups, int blockCount) {
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

    /// Whether every group that has heads has them in this order.
    public boolean has(KvLayout layout) {
        return groups.stream()
                .allMatch(group ->
                        !(group.format() instanceof KvFormat.Heads heads)
                                || heads.layout() == layout);
    }

    /// Tokens per block of group 0: the grain of block hashes.
    public int blockTokens() {
        return groups.getFirst().blockTokens();
    }
}
