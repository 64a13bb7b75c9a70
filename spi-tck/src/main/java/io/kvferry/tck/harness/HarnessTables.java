// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.kv.BlockTable;

import java.util.Arrays;

/// The block tables of the harness's requests.
final class HarnessTables {
    private final HarnessShape shape;
    private final HarnessPool pool;

    HarnessTables(HarnessShape shape, HarnessPool pool) {
        this.shape = shape;
        this.pool = pool;
    }

    /// Gives a request a table for all its tokens.
    ///
    /// @param reached tokens that need not be computed; what a sliding window has left behind by
    ///   then gets no block
    void open(HarnessRequest request, int reached) {
        request.blocks = new int[shape.groups()][0];
        for (int group = 0; group < shape.groups(); group++) {
            extend(request, group, shape.firstKept(group, reached));
        }
    }

    /// Blocks for tokens that the request has got since.
    void extend(HarnessRequest request) {
        for (int group = 0; group < request.blocks.length; group++) {
            extend(request, group, 0);
        }
    }

    /// Blocks of a group for all tokens of the request; none at positions before `first`.
    private void extend(HarnessRequest request, int group, int first) {
        var has = request.blocks[group];
        int needed = Math.ceilDiv(request.tokenCount(), shape.blockTokens(group));
        int from = Math.max(first, has.length);
        if (has.length >= needed) {
            return;
        }
        var more = Arrays.copyOf(has, needed);
        Arrays.fill(more, has.length, from, BlockTable.NO_BLOCK);
        System.arraycopy(pool.take(needed - from), 0, more, from, needed - from);
        request.blocks[group] = more;
    }

    /// Gives back what a sliding window has left behind.
    void slide(HarnessRequest request) {
        for (int group = 0; group < request.blocks.length; group++) {
            int first = shape.firstKept(group, request.computed);
            for (int position = 0; position < first; position++) {
                pool.release(new int[] {request.blocks[group][position]});
                request.blocks[group][position] = BlockTable.NO_BLOCK;
            }
        }
    }

    /// Gives everything back.
    void close(HarnessRequest request) {
        release(request.blocks);
        request.blocks = new int[0][];
    }

    /// Gives back what nobody's request has any more.
    void release(int[][] table) {
        for (var blocks : table) {
            pool.release(blocks);
        }
    }
}
