// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.RankInfo;

import java.util.List;

/// What a runner is opened with.
///
/// @param regions the cache memory of this rank, one region per layer in model order; the engine
///   allocated it, zeroed, and keeps it until the runner is closed
public record RunnerContext(RankInfo rank, KvCacheSpec cache, List<KvRegion> regions) {
    public RunnerContext {
        regions = List.copyOf(regions);
    }
}
