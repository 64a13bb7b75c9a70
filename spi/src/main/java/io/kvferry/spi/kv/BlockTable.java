// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

/// The block ids of one request, per KV cache group. A live view with the validity of the call it
/// is passed to: [#copy] what must outlive it.
public interface BlockTable {
    /// Stands at a position that has no block: outside a sliding window, or freed as recurrent
    /// state moves on. Never read, written, saved or reported as failed.
    int NO_BLOCK = -1;

    /// A request that never got blocks.
    BlockTable EMPTY =
            new BlockTable() {
                @Override
                public int groups() {
                    return 0;
                }

                @Override
                public int count(int group) {
                    return 0;
                }

                @Override
                public int block(int group, int position) {
                    throw new IndexOutOfBoundsException("no blocks");
                }
            };

    int groups();

    /// Blocks of a group, the partial tail included.
    int count(int group);

    /// The id of the block at a position, or [#NO_BLOCK]; its bytes are in every
    /// [io.kvferry.spi.memory.KvRegion] of the group.
    int block(int group, int position);

    /// Block ids of positions `from` (inclusive) to `to` (exclusive).
    default int[] copy(int group, int from, int to) {
        var ids = new int[to - from];
        for (int i = 0; i < ids.length; i++) {
            ids[i] = block(group, from + i);
        }
        return ids;
    }
}
