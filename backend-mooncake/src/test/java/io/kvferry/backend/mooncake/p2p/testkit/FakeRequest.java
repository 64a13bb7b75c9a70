// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.BlockHash;

/// A request as a test's engine sees it; its blocks are whatever the test gave it.
public final class FakeRequest implements RequestView {
    private final String id;
    private final int promptTokens;
    private final TransferParams params;
    public int computed;
    public int[][] blocks = {};

    public FakeRequest(String id, int promptTokens, TransferParams params) {
        this.id = id;
        this.promptTokens = promptTokens;
        this.params = params;
    }

    /// The blocks as the engine would show them.
    public BlockTable table() {
        return new BlockTable() {
            @Override
            public int groups() {
                return blocks.length;
            }

            @Override
            public int count(int group) {
                return blocks[group].length;
            }

            @Override
            public int block(int group, int position) {
                return blocks[group][position];
            }
        };
    }

    @Override
    public String id() {
        return id;
    }

    @Override
    public int tokenCount() {
        return promptTokens;
    }

    @Override
    public int promptTokenCount() {
        return promptTokens;
    }

    @Override
    public int token(int position) {
        return position;
    }

    @Override
    public int blockHashCount() {
        return 0;
    }

    @Override
    public BlockHash blockHash(int block) {
        throw new IndexOutOfBoundsException(block);
    }

    @Override
    public int computedTokenCount() {
        return computed;
    }

    @Override
    public TransferParams params() {
        return params;
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
