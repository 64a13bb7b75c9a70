// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.Plugin;
import io.kvferry.spi.config.ConnectorConfig;

/// Found by [java.util.ServiceLoader]; opens the halves of a KV connector. Needs a public
/// constructor without arguments and keeps no state: two engines in one JVM use the same provider.
public interface KvConnectorProvider extends Plugin {
    /// Capabilities of a connector with this configuration, without opening one.
    ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host);

    /// Opens the scheduler half. Called once per incarnation of an engine, on the scheduler thread,
    /// before any worker half. After losing workers or after a defect of the connector, the engine
    /// closes the halves and opens new ones as another incarnation, and announces the live requests
    /// again.
    ///
    /// @throws KvFerryException when the connector cannot work; the engine then does not start
    SchedulerConnector openScheduler(SchedulerContext context);

    /// Opens a worker half. Called once per rank and incarnation, in the worker's process, on one
    /// thread at a time but not always on the step thread.
    ///
    /// @throws KvFerryException when it cannot work; the engine then does not start
    WorkerConnector openWorker(WorkerContext context);
}
