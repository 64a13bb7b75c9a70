// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.block.CachePool;
import io.kvferry.engine.sched.Metrics.Counter;

/// The engine's own prefix cache: finds and offers the blocks of requests.
///
/// Threading: scheduler thread only.
final class PrefixCache {
    private final boolean enabled;
    private final int blockTokens;
    private final int groups;
    private final CachePool pool;
    private final Telemetry telemetry;

    PrefixCache(boolean enabled, int blockTokens, int groups, CachePool pool, Telemetry telemetry) {
        this.enabled = enabled;
        this.blockTokens = blockTokens;
        this.groups = groups;
        this.pool = pool;
        this.telemetry = telemetry;
    }

    /// The longest cached prefix, in blocks; leaves at least one token to compute. Notes the ids in
    /// the request's table without holding them.
    int find(RequestState request) {
        if (!enabled) {
            return 0;
        }
        int most = Math.min(request.blockHashCount(), (request.tokenCount() - 1) / blockTokens);
        for (int position = 0; position < most; position++) {
            for (int group = 0; group < groups; group++) {
                int block = pool.find(request.hashes, position, group);
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
        int full = Math.min(request.computed / blockTokens, request.blockHashCount());
        if (!enabled) {
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
                    telemetry.metrics.count(Counter.BLOCKS_CACHED);
                    if (telemetry.wantsCacheEvents()) {
                        telemetry.blockStored(request, position, blockTokens);
                    }
                }
            }
        }
    }
}
