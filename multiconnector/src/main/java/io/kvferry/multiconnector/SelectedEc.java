// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.RankInfo;

/// An encoder-cache connector that a configuration selected: found, its options valid, its platform
/// there.
///
/// @param instance where it stands in the composition
public record SelectedEc(
        String instance,
        ConnectorConfig config,
        EcConnectorProvider provider,
        OptionValues options,
        ConnectorCapabilities capabilities,
        HostServices host) {
    /// Opens the scheduler half, on the thread that will own it.
    ///
    /// @throws KvFerryException what the connector throws when it cannot work
    public EcSchedulerConnector openScheduler(
            CacheNamespace namespace, KvCacheSpec cache, int worldSize, long incarnation) {
        return provider.openScheduler(
                new SchedulerContext(
                        instance, config, options, namespace, cache, worldSize, incarnation, host));
    }

    /// Opens the scheduler half in the engine of `outer`, as one of its children.
    ///
    /// @throws KvFerryException as above
    public EcSchedulerConnector openScheduler(SchedulerContext outer) {
        return openScheduler(
                outer.namespace(), outer.cache(), outer.worldSize(), outer.incarnation());
    }

    /// Opens the worker half of one rank, in that worker's process.
    ///
    /// @throws KvFerryException what the connector throws when it cannot work
    public EcWorkerConnector openWorker(
            CacheNamespace namespace, KvCacheSpec cache, RankInfo rank, long incarnation) {
        return provider.openWorker(
                new WorkerContext(
                        instance, config, options, namespace, cache, rank, incarnation, host));
    }

    /// Opens the worker half in the worker of `outer`, as one of its children.
    ///
    /// @throws KvFerryException as [#openScheduler]
    public EcWorkerConnector openWorker(WorkerContext outer) {
        return openWorker(outer.namespace(), outer.cache(), outer.rank(), outer.incarnation());
    }
}
