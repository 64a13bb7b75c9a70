// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.memory.KvCacheGroup;

import java.util.BitSet;
import java.util.List;

/// Which blocks of the pool are being loaded right now, by group.
final class LoadingBlocks {
    private final List<KvCacheGroup> groups;
    private final BitSet[] loading;

    LoadingBlocks(List<KvCacheGroup> groups) {
        this.groups = groups;
        this.loading = new BitSet[groups.size()];
        for (int i = 0; i < loading.length; i++) {
            loading[i] = new BitSet();
        }
    }

    void mark(BlockTable blocks, LoadAssignment load, boolean isLoading) {
        for (int group = 0; group < Math.min(blocks.groups(), loading.length); group++) {
            int tokens = groups.get(group).blockTokens();
            int end = Math.min(blocks.count(group), Math.ceilDiv(load.toToken(), tokens));
            for (int position = load.fromToken() / tokens; position < end; position++) {
                int block = blocks.block(group, position);
                if (block != BlockTable.NO_BLOCK) {
                    loading[group].set(block, isLoading);
                }
            }
        }
    }

    /// The first of these blocks that is being loaded, -1 for none.
    int firstOf(int group, int[] blocks) {
        for (int block : blocks) {
            if (block != BlockTable.NO_BLOCK && loading[group].get(block)) {
                return block;
            }
        }
        return -1;
    }
}
