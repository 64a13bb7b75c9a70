// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.spi.memory.BlockHash;

/// Names of files with KV blocks in the store: `<block hash>/g<group>/r<rank>` for one block,
/// `<hash of the last>/g<group>/r<rank>/x<count>` for a run of consecutive ones. Hashes are
/// chained, so that the last one stands for all before it.
///
/// Whoever changes the order of the bytes in a file ([FileLayout#inOrder]) changes its name, unless
/// the version of all files changes, too.
public final class KvKeys {
    private KvKeys() {}

    /// @param position of the block in its request
    public static BlockKey of(BlockHash hash, int group, int rank, int position) {
        return BlockKey.of(hash.hex() + "/g" + group + "/r" + rank, position);
    }

    /// @param last hash of the run's last block
    /// @param start position of its first block
    public static BlockKey ofRun(BlockHash last, int group, int rank, int start, int blocks) {
        return BlockKey.of(last.hex() + "/g" + group + "/r" + rank + "/x" + blocks, start);
    }
}
