// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.RankInfo;

import java.util.Optional;

/// What every rank of an engine is opened with.
///
/// @param encoderRows rows that the encoder cache holds
public record WorkerSetup(
        EngineInfo engine,
        int encoderRows,
        Optional<Connector<KvConnectorProvider>> kv,
        Optional<Connector<EcConnectorProvider>> ec,
        HostServices host) {
    /// A connector to open the worker half of.
    public record Connector<P>(P provider, ConnectorConfig config) {}

    /// The same for another incarnation of the engine.
    public WorkerSetup withIncarnation(long incarnation) {
        var again =
                new EngineInfo(
                        engine.modelName(),
                        engine.namespace(),
                        engine.cache(),
                        engine.worldSize(),
                        engine.dataParallelRank(),
                        incarnation);
        return new WorkerSetup(again, encoderRows, kv, ec, host);
    }

    public RankInfo rank(int rank) {
        return new RankInfo(rank, engine.worldSize(), rank, engine.worldSize(), 0, 1);
    }

    public ConnectorCapabilities kvCapabilities() {
        return kv.map(connector -> connector.provider.capabilities(connector.config, host))
                .orElse(ConnectorCapabilities.of());
    }

    public ConnectorCapabilities ecCapabilities() {
        return ec.map(connector -> connector.provider.capabilities(connector.config, host))
                .orElse(ConnectorCapabilities.of());
    }

    public Optional<WorkerContext> kvContext(int rank) {
        return kv.map(connector ->
                new WorkerContext(
                        connector.config.connector(),
                        connector.config,
                        connector
                                .provider
                                .options()
                                .read(
                                        "kv_connector_extra_config of "
                                                + connector.config.connector(),
                                        connector.config.extra()),
                        engine,
                        rank(rank),
                        host));
    }

    public Optional<WorkerContext> ecContext(int rank) {
        return ec.map(connector ->
                new WorkerContext(
                        connector.config.connector(),
                        connector.config,
                        connector
                                .provider
                                .options()
                                .read(
                                        "ec_connector_extra_config of "
                                                + connector.config.connector(),
                                        connector.config.extra()),
                        engine,
                        rank(rank),
                        host));
    }
}
