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

    /// The argument of [#configure]: the size of the staging pool, and the plugin folder if there
    /// is one.
    static String config(EngineSettings settings) {
        var folder = settings.pluginFolder().map(Path::toString).orElse("");
        return settings.stagingBytes() + " " + folder;
    }

    @Override
    public void configure(String hostConfig, EventSink events) {
        if (hostConfig.isEmpty()) { // an engine that was not assembled here: the class path alone
            kvferry = Kvferry.open(AssembledEngine.catalog(Optional.empty()), events);
            return;
        }
        var parts = hostConfig.split(" ", 2);
        var folder = parts[1].isEmpty() ? Optional.<Path>empty() : Optional.of(Path.of(parts[1]));
        kvferry = Kvferry.open(AssembledEngine.catalog(folder), events, Long.parseLong(parts[0]));
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
