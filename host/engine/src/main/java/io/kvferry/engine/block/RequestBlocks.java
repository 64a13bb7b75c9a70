// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.block;

import io.kvferry.spi.kv.BlockTable;

import java.util.Arrays;
import java.util.Objects;
import java.util.function.IntConsumer;

/// The blocks of one request, one reference each. All groups have the same number of them.
public final class RequestBlocks implements BlockTable {
    private final CachePool pool;
    private int[][] ids;
    private int count;

    public RequestBlocks(CachePool pool, int groups) {
        this.pool = pool;
        ids = new int[groups][8];
    }

    @Override
    public int groups() {
        return ids.length;
    }

    @Override
    public int count(int group) {
        Objects.checkIndex(group, ids.length);
        return count;
    }

    public int count() {
        return count;
    }

    @Override
    public int block(int group, int position) {
        return ids[group][Objects.checkIndex(position, count)];
    }

    @Override
    public int[] copy(int group, int from, int to) {
        Objects.checkFromToIndex(from, to, count);
        return Arrays.copyOfRange(ids[group], from, to);
    }

    /// All blocks of all groups.
    public void forEach(IntConsumer block) {
        for (var group : ids) {
            for (int position = 0; position < count; position++) {
                block.accept(group[position]);
            }
        }
    }

    private void room(int positions) {
        for (int g = 0; g < ids.length; g++) {
            if (ids[g].length < positions) {
                ids[g] = Arrays.copyOf(ids[g], Math.max(positions, 2 * ids[g].length));
            }
        }
    }

    /// Notes a block beyond [#count()], which is not held yet.
    public void append(int group, int position, int block) {
        room(position + 1);
        ids[group][position] = block;
    }

    /// A block noted by [#append].
    public int found(int group, int position) {
        return ids[group][position];
    }

    /// The first `positions` blocks are held now.
    public void held(int positions) {
        count = positions;
    }

    /// Grows to `positions` by taking free blocks; all or nothing.
    ///
    /// What is taken at once is put in ascending order: the pool hands blocks out in the order of
    /// their release, tails first, and only neighbours that follow each other on both sides of a
    /// transfer travel in one piece.
    public boolean grow(int positions) {
        int missing = positions - count;
        if (missing <= 0) {
            return true;
        }
        if ((long) missing * ids.length > pool.free()) {
            return false;
        }
        room(positions);
        for (int position = count; position < positions; position++) {
            for (var group : ids) {
                group[position] = pool.allocate();
            }
        }
        if (missing > 1) {
            for (var group : ids) {
                Arrays.sort(group, count, positions);
            }
        }
        count = positions;
        return true;
    }

    /// Gives all references back, the tail first, so that prefixes stay cached longest.
    public void release() {
        for (int position = count - 1; position >= 0; position--) {
            for (var group : ids) {
                pool.release(group[position]);
            }
        }
        count = 0;
    }

    /// A second table of the same blocks, with references of its own.
    public RequestBlocks retained() {
        var copy = new RequestBlocks(pool, ids.length);
        for (int g = 0; g < ids.length; g++) {
            copy.ids[g] = Arrays.copyOf(ids[g], ids[g].length);
            for (int position = 0; position < count; position++) {
                pool.retain(ids[g][position]);
            }
        }
        copy.count = count;
        return copy;
    }

    /// Hands all references to a new table; this one is empty afterwards.
    public RequestBlocks moveOut() {
        var moved = new RequestBlocks(pool, ids.length);
        var mine = moved.ids;
        moved.ids = ids;
        moved.count = count;
        ids = mine;
        count = 0;
        return moved;
    }
}
