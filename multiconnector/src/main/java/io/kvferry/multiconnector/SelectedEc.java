// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import io.kvferry.spi.EngineInfo;
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
import io.kvferry.spi.memory.RankInfo;

/// An encoder-cache connector selected by a configuration: the provider was found, its options are
/// valid, and the platform supports it.
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
    public EcSchedulerConnector openScheduler(EngineInfo engine) {
        return provider.openScheduler(
                new SchedulerContext(instance, config, options, engine, host));
    }

    /// Opens the worker half of one rank, in that worker's process.
    ///
    /// @throws KvFerryException what the connector throws when it cannot work
    public EcWorkerConnector openWorker(EngineInfo engine, RankInfo rank) {
        return provider.openWorker(
                new WorkerContext(instance, config, options, engine, rank, host));
    }
}
