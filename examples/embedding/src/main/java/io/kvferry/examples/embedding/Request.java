// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.embedding;

import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.toolkit.hash.BlockHasher;
import io.kvferry.toolkit.hash.HashChain;

/// A request of [StepLoop], as connectors see it: tokens, blocks, and the hashes of its full
/// blocks, by which blocks are found wherever they were computed.
public final class Request implements RequestView {
    private final String id;
    private final int[] tokens;
    private final int[] blocks;
    private final int blockTokens;
    private final HashChain hashes;
    private int computed;

    Request(String id, int[] tokens, int[] blocks, CacheNamespace namespace) {
        this.id = id;
        this.tokens = tokens.clone();
        this.blocks = blocks.clone();
        this.blockTokens = namespace.blockTokens();
        var hasher = BlockHasher.of(namespace);
        this.hashes = new HashChain(hasher.root(cacheSalt()), tokens.length / blockTokens);
        // A loop that generates calls this again whenever a block is full.
        hasher.extend(hashes, tokens, tokens.length / blockTokens, BlockHasher.Extra.NONE);
    }

    void computed(int count) {
        computed = count;
    }

    /// The block that holds the KV of a position.
    public int blockOf(int position) {
        return blocks[position / blockTokens];
    }

    BlockTable blocks() {
        return new BlockTable() {
            @Override
            public int groups() {
                return 1;
            }

            @Override
            public int count(int group) {
                return blocks.length;
            }

            @Override
            public int block(int group, int position) {
                return blocks[position];
            }
        };
    }

    @Override
    public String id() {
        return id;
    }

    @Override
    public int tokenCount() {
        return tokens.length;
    }

    @Override
    public int promptTokenCount() {
        return tokens.length;
    }

    @Override
    public int token(int position) {
        return tokens[position];
    }

    @Override
    public int blockHashCount() {
        return hashes.count();
    }

    @Override
    public BlockHash blockHash(int block) {
        return hashes.get(block);
    }

    @Override
    public int computedTokenCount() {
        return computed;
    }

    @Override
    public TransferParams params() {
        return TransferParams.EMPTY;
    }

    @Override
    public String cacheSalt() {
        return "";
    }

    @Override
    public int attempt() {
        return 0;
    }
}
