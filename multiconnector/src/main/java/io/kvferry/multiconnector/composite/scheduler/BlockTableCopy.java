// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.spi.kv.BlockTable;

/// A copy of a block table that outlives the call, for a load that may have to be given to another
/// child later.
final class BlockTableCopy implements BlockTable {
    private final int[][] ids;

    BlockTableCopy(BlockTable blocks) {
        ids = new int[blocks.groups()][];
        for (int group = 0; group < ids.length; group++) {
            ids[group] = blocks.copy(group, 0, blocks.count(group));
        }
    }

    @Override
    public int groups() {
        return ids.length;
    }

    @Override
    public int count(int group) {
        return ids[group].length;
    }

    @Override
    public int block(int group, int position) {
        return ids[group][position];
    }
}
