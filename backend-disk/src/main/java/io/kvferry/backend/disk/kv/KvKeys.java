// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.store.BlockKey;
import io.kvferry.spi.memory.BlockHash;

/// Names of KV blocks in the store: `<block hash>/g<group>/r<rank>`.
public final class KvKeys {
    private KvKeys() {}

    public static BlockKey of(BlockHash hash, int group, int rank) {
        return BlockKey.of(hash.hex() + "/g" + group + "/r" + rank);
    }
}
