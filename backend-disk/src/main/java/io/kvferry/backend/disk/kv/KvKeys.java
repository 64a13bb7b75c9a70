// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.store.BlockKey;
import io.kvferry.spi.memory.BlockHash;

/// Names of KV blocks in the store: `<block hash>/g<group>/r<rank>`.
public final class KvKeys {
    private KvKeys() {}

    /// @param position of the block in its request
    public static BlockKey of(BlockHash hash, int group, int rank, int position) {
        return BlockKey.of(hash.hex() + "/g" + group + "/r" + rank, position);
    }
}
