// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector.keys;

import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.memory.BlockHash;

/// The hashes by which the blocks of one request are named in the store.
///
/// Threading: the scheduler thread.
public interface BlockHashes {
    /// Those of the engine.
    BlockHashes OF_ENGINE =
            new BlockHashes() {
                @Override
                public int count(RequestView request) {
                    return request.blockHashCount();
                }

                @Override
                public BlockHash of(RequestView request, int block) {
                    return request.blockHash(block);
                }
            };

    /// Full blocks from the front that have a name; grows as tokens are generated.
    int count(RequestView request);

    /// Hash of a block below [#count].
    BlockHash of(RequestView request, int block);
}
