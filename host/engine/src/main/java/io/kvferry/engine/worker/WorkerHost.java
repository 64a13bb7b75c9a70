// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.observe.EventSink;

/// Provides the plugins of a worker child process. The child uses the first implementation that
/// [java.util.ServiceLoader] finds. Without one it finds all plugins by ServiceLoader itself and
/// offers them no services but events. Needs a public constructor without arguments.
public interface WorkerHost {
    /// Called once, before the others, with the text of
    /// [io.kvferry.engine.Workers.ChildProcesses#hostConfig].
    ///
    /// @param events takes the events of plugins: it sends them to the engine's process
    void configure(String hostConfig, EventSink events);

    HostServices services();

    ModelRunnerProvider runner(String name);

    KvConnectorProvider kvConnector(String name);

    EcConnectorProvider ecConnector(String name);
}
