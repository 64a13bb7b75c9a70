// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.Workers;
import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Availability;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.observe.TraceEvent;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Optional;

/// A running engine with the plugins it was built from. This is where serving composes runner,
/// connectors and engine.
///
/// Threading: any thread. [#close] closes the engine, then the plugins' class loaders.
public final class AssembledEngine implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(AssembledEngine.class);

    /// System property with the folder of the plugins that were installed with kvferry; the
    /// launcher of the tarball sets it.
    static final String INSTALLED_PLUGINS = "kvferry.plugins";

    private final Kvferry kvferry;
    private final Engine engine;

    private AssembledEngine(Kvferry kvferry, Engine engine) {
        this.kvferry = kvferry;
        this.engine = engine;
    }

    /// Finds the plugins, opens the engine and starts it.
    ///
    /// @throws KvFerryException as [#open]
    public static AssembledEngine start(EngineSettings settings) {
        var assembled = open(settings);
        assembled.engine.start();
        return assembled;
    }

    /// Finds the plugins and opens the engine. The caller registers its listeners and then calls
    /// [Engine#start].
    ///
    /// @throws KvFerryException when a setting is wrong or a part cannot work here, in one readable
    ///   message
    public static AssembledEngine open(EngineSettings settings) {
        var kvferry =
                Kvferry.open(
                        catalog(settings.pluginFolder()),
                        AssembledEngine::log,
                        settings.stagingBytes());
        try {
            return new AssembledEngine(kvferry, Engine.open(config(kvferry, settings)));
        } catch (RuntimeException e) {
            kvferry.close();
            throw e;
        }
    }

    /// The plugins on the class path, in the installation's plugin folder (see
    /// [#INSTALLED_PLUGINS]) and in `pluginFolder`.
    public static PluginCatalog catalog(Optional<Path> pluginFolder) {
        var folders = new ArrayList<Path>();
        var installed = System.getProperty(INSTALLED_PLUGINS, "");
        if (!installed.isEmpty()) {
            folders.add(Path.of(installed));
        }
        pluginFolder.ifPresent(folders::add);
        return PluginCatalog.of(AssembledEngine.class.getClassLoader(), folders);
    }

    private static EngineConfig config(Kvferry kvferry, EngineSettings settings) {
        var runner = RunnerChoice.of(kvferry.plugins(), settings);
        var config =
                EngineConfig.of(runner, settings.model(), settings.runnerOptions())
                        .host(kvferry.services())
                        .blockTokens(settings.blockTokens())
                        .blockCount(settings.blocks())
                        .worldSize(settings.ranks())
                        .stepTokens(settings.stepTokens())
                        .maxRunning(settings.maxRunning())
                        .holdPatience(settings.holdPatience())
                        .prefixCache(settings.prefixCache())
                        .salt(settings.salt())
                        .dataParallelRank(settings.dataParallelRank());
        if (settings.workerProcesses()) {
            config.workers(
                    new Workers.ChildProcesses(
                            JvmFlags.forChild(), ServingWorkerHost.config(settings)));
        }
        settings.kvConfig()
                .map(kvferry::kv)
                .ifPresent(selected -> config.kvConnector(selected.provider(), selected.config()));
        settings.ecConfig()
                .map(kvferry::ec)
                .ifPresent(selected -> config.ecConnector(selected.provider(), selected.config()));
        return config;
    }

    static ModelRunnerProvider runner(PluginCatalog plugins, String name) {
        var runner = plugins.of(ModelRunnerProvider.class).require("--runner", name);
        return switch (runner.availability()) {
            case Availability.Available _ -> runner;
            case Availability.Unavailable(String reason, String remedy) ->
                    throw new KvFerryException(
                            ErrorCode.UNAVAILABLE,
                            "--runner " + name + " cannot work here: " + reason + ". " + remedy);
        };
    }

    public Engine engine() {
        return engine;
    }

    @Override
    public void close() {
        engine.close();
        kvferry.close();
    }

    /// Writes an event to the log: what went wrong always, decisions and deliveries at debug.
    static void log(TraceEvent event) {
        if (event instanceof TraceEvent.Incident incident) {
            LOG.warn("{}", text(incident));
        } else {
            LOG.debug("{}", event);
        }
    }

    private static String text(TraceEvent.Incident incident) {
        var details = incident.details();
        var what = details.size() == 1 ? details.values().iterator().next() : details;
        var suffix =
                incident.requestId().isEmpty() ? "" : " (request " + incident.requestId() + ")";
        return incident.kind() + " of " + incident.by() + ": " + what + suffix;
    }
}
