// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.RankInfo;

/// A KV connector that a configuration selected: found, its options valid, its platform there;
/// ready to open halves.
///
/// @param instance where it stands in the composition, e.g. `MultiConnector/disk`
public record SelectedKv(
        String instance,
        ConnectorConfig config,
        KvConnectorProvider provider,
        OptionValues options,
        ConnectorCapabilities capabilities,
        HostServices host) {
    /// Opens the scheduler half, on the thread that will own it.
    ///
    /// @param incarnation differs for every start of the engine
    /// @throws KvFerryException INCOMPATIBLE when the connector cannot work with this cache, or
    ///   what the connector throws
    public SchedulerConnector openScheduler(
            CacheNamespace namespace, KvCacheSpec cache, int worldSize, long incarnation) {
        Selection.checkCache(instance, capabilities, cache);
        return provider.openScheduler(
                new SchedulerContext(
                        instance, config, options, namespace, cache, worldSize, incarnation, host));
    }

    /// Opens the worker half of one rank, in that worker's process.
    ///
    /// @throws KvFerryException as [#openScheduler]
    public WorkerConnector openWorker(
            CacheNamespace namespace, KvCacheSpec cache, RankInfo rank, long incarnation) {
        Selection.checkCache(instance, capabilities, cache);
        return provider.openWorker(
                new WorkerContext(
                        instance, config, options, namespace, cache, rank, incarnation, host));
    }
}
