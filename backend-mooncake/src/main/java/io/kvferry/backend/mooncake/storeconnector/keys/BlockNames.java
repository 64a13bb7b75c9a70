// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector.keys;

import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.memory.BlockHash;

import java.util.Arrays;

/// The hashes and keys of a request's blocks, each named once.
///
/// Threading: the scheduler thread; the arrays that it hands out do not change.
public final class BlockNames {
    private final BlockKeys keys;
    private final BlockHashes hashes;
    private String[][] named = new String[16][];

    public BlockNames(BlockKeys keys, BlockHashes hashes) {
        this.keys = keys;
        this.hashes = hashes;
    }

    /// Full blocks that have a name.
    public int count(RequestView request) {
        return hashes.count(request);
    }

    public BlockHash hash(RequestView request, int block) {
        return hashes.of(request, block);
    }

    /// The keys of all parts of a block, see [BlockKeys#all].
    public String[] of(RequestView request, int block) {
        if (block >= named.length) {
            named = Arrays.copyOf(named, Math.max(block + 1, 2 * named.length));
        }
        String[] known = named[block];
        if (known == null) {
            known = keys.all(hash(request, block));
            named[block] = known;
        }
        return known;
    }

    /// The keys of blocks `first` to `end` (exclusive).
    public String[][] of(RequestView request, int first, int end) {
        var all = new String[end - first][];
        for (int i = 0; i < all.length; i++) {
            all[i] = of(request, first + i);
        }
        return all;
    }
}
