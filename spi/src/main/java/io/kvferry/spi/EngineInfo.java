// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheSpec;

import java.util.Objects;

/// The engine that a connector is opened in; the same for all its halves but for the layers of
/// [#cache].
///
/// @param modelName how users and other systems name the model, for keys and messages; what tells
///   two models apart is [CacheNamespace#model]
/// @param cache of the pipeline stage that a worker half belongs to; a scheduler half sees that of
///   the first. Groups agree on all stages in number, kind and block size, not in their layers
/// @param worldSize number of worker ranks, each of which reports every transfer once
/// @param dataParallelRank which replica of its model the engine is, 0 for the only one
/// @param incarnation differs for every start of the engine, and whenever it opens its connectors
///   anew
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
