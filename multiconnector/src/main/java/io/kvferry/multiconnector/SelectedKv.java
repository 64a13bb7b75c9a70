// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.exchange.CacheExchange;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.RankInfo;

import java.nio.file.Path;

/// A KV connector selected by a configuration: the provider was found, its options are valid, and
/// the platform supports it. Opens the scheduler and worker halves.
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
    /// @throws KvFerryException INCOMPATIBLE when the connector cannot work with this cache, or
    ///   what the connector throws
    public SchedulerConnector openScheduler(EngineInfo engine) {
        Selection.checkFit(instance, capabilities, engine);
        return provider.openScheduler(
                new SchedulerContext(instance, config, options, engine, host));
    }

    /// Opens the worker half of one rank, in that worker's process.
    ///
    /// @throws KvFerryException as [#openScheduler]
    public WorkerConnector openWorker(EngineInfo engine, RankInfo rank) {
        Selection.checkFit(instance, capabilities, engine);
        return provider.openWorker(
                new WorkerContext(instance, config, options, engine, rank, host));
    }

    /// Opens what one rank of an engine would keep in this connector, and a folder of another
    /// system to copy prompts from or to.
    ///
    /// @throws KvFerryException UNSUPPORTED when the connector does not do that or does not know
    ///   the format, else as [#openWorker]
    public CacheExchange openExchange(
            EngineInfo engine, RankInfo rank, String format, Path folder) {
        if (!(provider instanceof CacheExchange.Provider exchanger)) {
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
        Selection.checkFit(instance, capabilities, engine);
        var context = new WorkerContext(instance, config, options, engine, rank, host);
        return exchanger.openExchange(context, format, folder);
    }
}
