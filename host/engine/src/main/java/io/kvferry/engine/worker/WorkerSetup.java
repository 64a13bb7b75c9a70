// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.RankInfo;

import java.util.Optional;

/// What every rank of an engine is opened with.
public record WorkerSetup(
        KvCacheSpec cache,
        CacheNamespace namespace,
        int worldSize,
        long incarnation,
        Optional<Connector<KvConnectorProvider>> kv,
        Optional<Connector<EcConnectorProvider>> ec,
        HostServices host) {
    /// A connector to open the worker half of.
    public record Connector<P>(P provider, ConnectorConfig config) {}

    RankInfo rank(int rank) {
        return RankInfo.tensorParallel(rank, worldSize);
    }

    Optional<WorkerContext> kvContext(int rank) {
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
                        namespace,
                        cache,
                        rank(rank),
                        incarnation,
                        host));
    }

    Optional<WorkerContext> ecContext(int rank) {
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
                        namespace,
                        cache,
                        rank(rank),
                        incarnation,
                        host));
    }
}
