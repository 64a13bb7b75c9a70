// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.worker.WorkerHost;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.observe.EventSink;

import org.jspecify.annotations.Nullable;

import java.nio.file.Path;
import java.util.Optional;

/// Builds in a worker child process what [AssembledEngine] built in the engine's: the plugins of
/// class path and plugin folder, and the host services by which composites open their children.
/// Lives as long as the process.
///
/// Threading: the worker's thread.
public final class ServingWorkerHost implements WorkerHost {
    private @Nullable Kvferry kvferry;

    /// @param hostConfig the plugin folder, or nothing
    @Override
    public void configure(String hostConfig, EventSink events) {
        var folder =
                hostConfig.isEmpty() ? Optional.<Path>empty() : Optional.of(Path.of(hostConfig));
        kvferry = Kvferry.open(AssembledEngine.catalog(folder), events);
    }

    private Kvferry kvferry() {
        var opened = kvferry;
        if (opened == null) {
            throw new IllegalStateException("configure comes first");
        }
        return opened;
    }

    @Override
    public HostServices services() {
        return kvferry().services();
    }

    @Override
    public ModelRunnerProvider runner(String name) {
        return kvferry().plugins().of(ModelRunnerProvider.class).require("runner", name);
    }

    @Override
    public KvConnectorProvider kvConnector(String name) {
        return kvferry().plugins().of(KvConnectorProvider.class).require("kv_connector", name);
    }

    @Override
    public EcConnectorProvider ecConnector(String name) {
        return kvferry().plugins().of(EcConnectorProvider.class).require("ec_connector", name);
    }
}
