// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.RequestView.ItemKey;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.BlockHash;

import java.util.List;

/// A request as a child sees it: with the params that concern the child.
public record ChildRequestView(RequestView whole, TransferParams params) implements RequestView {
    @Override
    public String id() {
        return whole.id();
    }

    @Override
    public int tokenCount() {
        return whole.tokenCount();
    }

    @Override
    public int promptTokenCount() {
        return whole.promptTokenCount();
    }

    @Override
    public int token(int position) {
        return whole.token(position);
    }

    @Override
    public int blockHashCount() {
        return whole.blockHashCount();
    }

    @Override
    public BlockHash blockHash(int block) {
        return whole.blockHash(block);
    }

    @Override
    public int computedTokenCount() {
        return whole.computedTokenCount();
    }

    @Override
    public String cacheSalt() {
        return whole.cacheSalt();
    }

    @Override
    public String externalId() {
        return whole.externalId();
    }

    @Override
    public int promptIndex() {
        return whole.promptIndex();
    }

    @Override
    public List<ItemKey> extraKeys(int block) {
        return whole.extraKeys(block);
    }

    @Override
    public int attempt() {
        return whole.attempt();
    }
}
