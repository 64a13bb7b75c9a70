// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.ec;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.Plugin;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerContext;

/// Found by [java.util.ServiceLoader]; opens the halves of an encoder-cache connector. Stateless,
/// public constructor without arguments. Names are unique among EC connectors; a KV connector may
/// have the same.
public interface EcConnectorProvider extends Plugin {
    /// Of the features, those of layers, groups, device regions and leases do not apply, and
    /// `requiredLayout` is empty: encoder memory is host memory.
    ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host);

    /// Opens the scheduler half, once per incarnation of an engine.
    EcSchedulerConnector openScheduler(SchedulerContext context);

    /// Opens a worker half, once per rank.
    EcWorkerConnector openWorker(WorkerContext context);
}
