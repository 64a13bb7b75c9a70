// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheSpec;

import java.util.Objects;

/// The engine that opens a connector. All halves get the same values, except for the layers in
/// [#cache].
///
/// @param modelName name of the model as users and other systems know it, for keys and messages.
///   Not an identity; for that see [CacheNamespace#model]
/// @param cache for a worker half, that of its pipeline stage; for the scheduler half, that of the
///   first stage. All stages have the same number, kinds and block sizes of groups, but other
///   layers
/// @param worldSize number of worker ranks, each of which reports every transfer once
/// @param dataParallelRank which replica of its model the engine is, 0 for the only one
/// @param incarnation differs for every start of the engine, and every time it reopens its
///   connectors
public record EngineInfo(
        String modelName,
        CacheNamespace namespace,
        KvCacheSpec cache,
        int worldSize,
        int dataParallelRank,
        long incarnation) {
    public EngineInfo {
        Objects.requireNonNull(modelName, "modelName");
        Objects.requireNonNull(namespace, "namespace");
        Objects.requireNonNull(cache, "cache");
        if (worldSize < 1 || dataParallelRank < 0) {
            throw new IllegalArgumentException(
                    "engine of "
                            + worldSize
                            + " ranks with data-parallel rank "
                            + dataParallelRank);
        }
    }
}
