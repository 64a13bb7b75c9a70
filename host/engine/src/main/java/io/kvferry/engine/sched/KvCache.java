// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.block.CachePool;
import io.kvferry.engine.telemetry.Metrics.Counter;
import io.kvferry.engine.telemetry.Telemetry;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.KvCacheSpec;

/// The engine's KV blocks, and its own prefix cache on them: finds and publishes the blocks of
/// requests.
///
/// Threading: scheduler thread only.
final class KvCache {
    private final KvCacheSpec spec;
    private final boolean prefixCache;
    private final int blockTokens;
    private final int groups;
    private final CachePool pool;
    private final Telemetry telemetry;

    /// How often the cache was cleared.
    private int clearings;

    /// @param prefixCache whether blocks are found again
    KvCache(KvCacheSpec spec, boolean prefixCache, Telemetry telemetry) {
        this.spec = spec;
        this.prefixCache = prefixCache;
        this.blockTokens = spec.blockTokens();
        this.groups = spec.groups().size();
        this.telemetry = telemetry;
        this.pool = new CachePool(spec.blockCount(), new Evicted());
    }

    private final class Evicted implements CachePool.Evictions {
        @Override
        public boolean wanted() {
            telemetry.metrics().count(Counter.BLOCKS_EVICTED);
            return telemetry.wantsCacheEvents();
        }

        @Override
        public void evicted(BlockHash hash) {
            telemetry.blockRemoved(hash);
        }
    }

    KvCacheSpec spec() {
        return spec;
    }

    CachePool pool() {
        return pool;
    }

    int blockTokens() {
        return blockTokens;
    }

    int groups() {
        return groups;
    }

    /// Blocks of each group that hold so many tokens.
    int blocksFor(int tokens) {
        return (tokens + blockTokens - 1) / blockTokens;
    }

    /// Forgets all cached content. What requests have in blocks now, or get into them, is not
    /// cached any more: it may come from before whatever made a reset necessary.
    void clear() {
        clearings++;
        pool.clear();
        telemetry.cacheCleared();
    }

    /// The request, which has no blocks but those that were found for it, is admitted.
    void admit(RequestState request, int found) {
        request.published = found;
        request.clearingsSeen = clearings;
    }

    /// Gives a request the blocks for so many tokens; all or nothing.
    boolean grow(RequestState request, int tokens) {
        var blocks = request.blocks; // a running request has room for its next token nearly always
        return (long) blocks.count() * blockTokens >= tokens || blocks.grow(blocksFor(tokens));
    }

    /// The longest cached prefix, in blocks; leaves at least one token to compute. Notes the ids in
    /// the request's table without holding them.
    int find(RequestState request) {
        if (!prefixCache) {
            return 0;
        }
        int most = Math.min(request.blockHashCount(), (request.tokenCount() - 1) / blockTokens);
        for (int position = 0; position < most; position++) {
            for (int group = 0; group < groups; group++) {
                int guess = position == 0 ? -1 : request.blocks.found(group, position - 1) + groups;
                int block = pool.find(request.hashes, position, group, guess);
                if (block < 0) {
                    return position;
                }
                request.blocks.append(group, position, block);
            }
        }
        return most;
    }

    /// Holds what [#find] noted.
    void hold(RequestState request, int blocks) {
        for (int position = 0; position < blocks; position++) {
            for (int group = 0; group < groups; group++) {
                pool.retain(request.blocks.found(group, position));
            }
        }
        request.blocks.held(blocks);
    }

    /// Offers the request's computed full blocks to the prefix cache.
    void publish(RequestState request) {
        if (request.computed - request.published * blockTokens < blockTokens) {
            return; // the next block is not full
        }
        if (request.clearingsSeen != clearings) {
            return;
        }
        int full = Math.min(request.computed / blockTokens, request.blockHashCount());
        if (!prefixCache) {
            request.published = full;
            return;
        }
        for (; request.published < full; request.published++) {
            int position = request.published;
            for (int group = 0; group < groups; group++) {
                boolean isNew =
                        pool.publish(
                                request.blocks.block(group, position),
                                request.hashes,
                                position,
                                group);
                if (isNew && group == 0) {
                    telemetry.metrics().count(Counter.BLOCKS_CACHED);
                    if (telemetry.wantsCacheEvents()) {
                        telemetry.blockStored(request, position, blockTokens);
                    }
                }
            }
        }
    }
}
