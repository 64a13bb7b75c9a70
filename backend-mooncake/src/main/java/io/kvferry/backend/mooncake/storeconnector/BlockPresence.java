// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.spi.memory.BlockHash;

import java.util.Arrays;
import java.util.List;

/// Which blocks of a request are in the store: those of which every rank and every cache group has
/// its part. Keys are named once per request.
///
/// Threading: the scheduler thread.
final class BlockPresence {
    private final BlockKeys keys;
    private final Store store;
    private final int[] results;
    private String[][] named = new String[16][];

    BlockPresence(BlockKeys keys, Store store) {
        this.keys = keys;
        this.store = store;
        this.results = new int[keys.ranks() * keys.groups()];
    }

    /// Whether a block is there.
    ///
    /// @param lease whether it must then stay for a while
    boolean isThere(int position, BlockHash hash, boolean lease) {
        List<String> all = Arrays.asList(keysOf(position, hash));
        store.exists(all, lease, results);
        for (int result : results) {
            if (result != 1) {
                return false;
            }
        }
        return true;
    }

    private String[] keysOf(int position, BlockHash hash) {
        if (position >= named.length) {
            named = Arrays.copyOf(named, Math.max(position + 1, 2 * named.length));
        }
        String[] known = named[position];
        if (known == null) {
            known = keys.all(hash);
            named[position] = known;
        }
        return known;
    }
}
