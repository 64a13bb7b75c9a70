// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import io.kvferry.backend.disk.block.BlockKey;

import java.util.List;

/// Counts how many keys from the front are there, and notes those as in use.
record KeySearch(List<BlockKey> keys) implements BlockSearch {
    @Override
    public int search(Finder finder) {
        int count = 0;
        while (count < keys.size() && finder.isThere(keys.get(count))) {
            count++;
        }
        for (int i = count + 1; i < keys.size(); i++) {
            finder.isStillThere(keys.get(i));
        }
        int left = count;
        for (int i = count - 1; i >= 0; i--) {
            if (!finder.use(keys.get(i))) {
                left = i;
            }
        }
        return left;
    }
}
