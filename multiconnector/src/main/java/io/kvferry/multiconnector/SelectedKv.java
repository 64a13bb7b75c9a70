// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.kv.CacheExchange;
import io.kvferry.spi.kv.CacheExchangeProvider;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.RankInfo;

import java.nio.file.Path;

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

    /// Opens the scheduler half in the engine of `outer`, as one of its children.
    ///
    /// @throws KvFerryException as above
    public SchedulerConnector openScheduler(SchedulerContext outer) {
        return openScheduler(
                outer.namespace(), outer.cache(), outer.worldSize(), outer.incarnation());
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

    /// Opens the worker half in the worker of `outer`, as one of its children.
    ///
    /// @throws KvFerryException as [#openScheduler]
    public WorkerConnector openWorker(WorkerContext outer) {
        return openWorker(outer.namespace(), outer.cache(), outer.rank(), outer.incarnation());
    }

    /// Opens what one rank of an engine would keep in this connector, and a folder of another
    /// system to copy prompts from or to.
    ///
    /// @throws KvFerryException UNSUPPORTED when the connector does not do that or does not know
    ///   the format, else as [#openWorker]
    public CacheExchange openExchange(
            CacheNamespace namespace,
            KvCacheSpec cache,
            RankInfo rank,
            String format,
            Path folder) {
        if (!(provider instanceof CacheExchangeProvider exchanger)) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    instance + " cannot copy what it keeps to and from folders of another system");
        }
        if (!exchanger.exchangeFormats().contains(format)) {
            throw new KvFerryException(
                    ErrorCode.UNSUPPORTED,
                    instance
                            + " does not know the format "
                            + format
                            + ", only "
                            + String.join(", ", exchanger.exchangeFormats()));
        }
        Selection.checkCache(instance, capabilities, cache);
        var context = new WorkerContext(instance, config, options, namespace, cache, rank, 0, host);
        return exchanger.openExchange(context, format, folder);
    }
}
