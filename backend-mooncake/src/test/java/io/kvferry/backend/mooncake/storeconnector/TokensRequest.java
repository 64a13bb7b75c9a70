// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.BlockHash;

import java.util.List;
import java.util.stream.IntStream;

/// A request of these tokens in blocks of 16, whose hashes by the engine are 0, 1, 2 and so on.
///
/// @param itemBlock the block in which a multimodal item lies, or -1
record TokensRequest(String id, List<Integer> tokens, int itemBlock, String cacheSalt)
        implements RequestView {
    static final int BLOCK = 16;

    /// Tokens `from` to `end` (exclusive).
    static TokensRequest of(String id, int from, int end) {
        return new TokensRequest(id, IntStream.range(from, end).boxed().toList(), -1, "");
    }

    @Override
    public int tokenCount() {
        return tokens.size();
    }

    @Override
    public int promptTokenCount() {
        return tokens.size();
    }

    @Override
    public int token(int position) {
        return tokens.get(position);
    }

    @Override
    public int blockHashCount() {
        return tokens.size() / BLOCK;
    }

    @Override
    public BlockHash blockHash(int block) {
        return new BlockHash(block, 0, 0, 0);
    }

    @Override
    public List<ItemKey> extraKeys(int block) {
        return block == itemBlock ? List.of(new ItemKey("image", 3)) : List.of();
    }

    @Override
    public int computedTokenCount() {
        return 0;
    }

    @Override
    public TransferParams params() {
        return TransferParams.EMPTY;
    }

    @Override
    public int attempt() {
        return 0;
    }
}
