// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import io.kvferry.engine.core.EngineCore;
import io.kvferry.engine.core.Reopener;
import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.engine.sched.Limits;
import io.kvferry.engine.worker.CloseStack;
import io.kvferry.engine.worker.StepAlarm;
import io.kvferry.engine.worker.WorkerGroup;
import io.kvferry.engine.worker.WorkerLauncher;
import io.kvferry.engine.worker.WorkerSetup;
import io.kvferry.engine.worker.process.ChildJvms;
import io.kvferry.engine.worker.process.ProcessWorkers;
import io.kvferry.engine.worker.rank.InProcessWorkers;
import io.kvferry.spi.Availability;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.Plugin;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.memory.KvCacheGroup;

import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;

/// Checks a configuration and opens an engine's parts in order: model, scheduler halves, workers.
final class EngineOpener {
    private final EngineConfig config;
    private final CloseStack opened = new CloseStack();
    private final StepAlarm alarm = new StepAlarm();
    private final PluginHealth health;

    private EngineOpener(EngineConfig config) {
        this.config = config;
        this.health = new PluginHealth(config.host.events());
    }

    static Engine open(EngineConfig config) {
        var opener = new EngineOpener(config);
        try {
            return opener.open();
        } catch (IllegalArgumentException e) { // a plugin's own check of its settings
            opener.opened.closeAfter(e);
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "settings that do not fit together: "
                            + (e.getMessage() == null ? e : e.getMessage()),
                    e);
        } catch (LinkageError e) { // seen only when the plugin's code first runs
            opener.opened.closeAfter(e);
            throw new KvFerryException(ErrorCode.INCOMPATIBLE, unlinked(e), e);
        } catch (RuntimeException | Error e) { // no thread or no memory, for instance
            opener.opened.closeAfter(e);
            throw e;
        }
    }

    private static String unlinked(LinkageError e) {
        var frames = e.getStackTrace();
        var where =
                frames.length == 0
                        ? "a plugin"
                        : frames[0].getClassName()
                                + Optional.ofNullable(frames[0].getClassLoaderName())
                                        .map(loader -> " of " + loader)
                                        .orElse("");
        return where
                + " misses a class, or meets another version of it than it was compiled against: "
                + e
                + ". Put the plugin's libraries beside its jar, or install a release of it that fits this host";
    }

    private Engine open() {
        checkNumbers();
        checkPlugin(config.runner());
        config.kv.ifPresent(attached -> checkPlugin(attached.provider()));
        config.ec.ifPresent(attached -> checkPlugin(attached.provider()));
        var model = opened.push(openModel());
        var capabilities =
                config.kv
                        .map(attached ->
                                attached.provider().capabilities(attached.config(), config.host))
                        .orElse(ConnectorCapabilities.of());
        var info =
                model.info(
                        capabilities.requiredLayout(),
                        config.kv.map(attached -> attached.config().connector()).orElse("none"));
        checkModel(info);
        var cache =
                info.cacheSpec(
                        config.blockTokens,
                        config.encodeOnly ? 1 : config.blockCount,
                        config.worldSize);
        var namespace = info.namespace(config.blockTokens, config.worldSize, config.salt);
        var engine =
                new EngineInfo(
                        info.name(),
                        namespace,
                        cache,
                        config.worldSize,
                        config.dataParallelRank,
                        newIncarnation());
        checkFit(capabilities, engine);
        var kv = openKv(engine).map(opened::push);
        var ec = openEc(engine).map(opened::push);
        var workers = opened.push(openWorkers(engine, model));
        var core = new EngineCore(parts(model, engine, capabilities, kv, ec, workers));
        core.watch(health::reason);
        return new Engine(model, cache, namespace, core);
    }

    /// What plugins are given: the host's services, with this engine behind them.
    private HostServices services() {
        return config.host.with(health, alarm::ring);
    }

    private static long newIncarnation() {
        return ThreadLocalRandom.current().nextLong() & Long.MAX_VALUE;
    }

    private Optional<SchedulerConnector> openKv(EngineInfo engine) {
        return config.kv.map(attached ->
                attached.provider()
                        .openScheduler(
                                context(attached.provider(), attached.config(), "kv", engine)));
    }

    private Optional<EcSchedulerConnector> openEc(EngineInfo engine) {
        return config.ec.map(attached ->
                attached.provider()
                        .openScheduler(
                                context(attached.provider(), attached.config(), "ec", engine)));
    }

    private final class Again implements Reopener {
        private final Model model;
        private final EngineInfo first;

        Again(Model model, EngineInfo first) {
            this.model = model;
            this.first = first;
        }

        @Override
        public EngineInfo nextIncarnation() {
            return new EngineInfo(
                    first.modelName(),
                    first.namespace(),
                    first.cache(),
                    first.worldSize(),
                    first.dataParallelRank(),
                    newIncarnation());
        }

        @Override
        public Optional<SchedulerConnector> openKv(EngineInfo engine) {
            config.kv.ifPresent(attached -> health.forget(attached.config().connector()));
            return EngineOpener.this.openKv(engine);
        }

        @Override
        public Optional<EcSchedulerConnector> openEc(EngineInfo engine) {
            config.ec.ifPresent(attached -> health.forget(attached.config().connector()));
            return EngineOpener.this.openEc(engine);
        }

        @Override
        public WorkerGroup openWorkers(EngineInfo engine) {
            return EngineOpener.this.openWorkers(engine, model);
        }
    }

    private WorkerGroup openWorkers(EngineInfo engine, Model model) {
        var setup =
                new WorkerSetup(
                        engine,
                        config.encoderSlots,
                        config.kv.map(attached ->
                                new WorkerSetup.Connector<>(
                                        attached.provider(), attached.config())),
                        config.ec.map(attached ->
                                new WorkerSetup.Connector<>(
                                        attached.provider(), attached.config())),
                        services());
        return switch (config.workers) {
            case Workers.InProcess() -> InProcessWorkers.open(setup, model);
            case Workers.ChildProcesses(var jvmOptions, var hostConfig) ->
                    launchWorkers(setup, new ChildJvms(jvmOptions), hostConfig);
            case Workers.Launched(var launcher, var hostConfig) ->
                    launchWorkers(setup, launcher, hostConfig);
        };
    }

    private WorkerGroup launchWorkers(
            WorkerSetup setup, WorkerLauncher launcher, String hostConfig) {
        return ProcessWorkers.open(
                setup,
                new ProcessWorkers.Launch(
                        launcher,
                        hostConfig,
                        config.runner().name(),
                        config.modelFolder(),
                        config.runnerOptions(),
                        config.startLimit),
                alarm::ring);
    }

    private EngineCore.Parts parts(
            Model model,
            EngineInfo engine,
            ConnectorCapabilities capabilities,
            Optional<SchedulerConnector> kv,
            Optional<EcSchedulerConnector> ec,
            WorkerGroup workers) {
        return new EngineCore.Parts(
                limits(model.scoresPrompts()),
                model.info(),
                model.tokenizer(),
                engine.cache(),
                engine.namespace(),
                config.kv
                        .map(attached -> attached.config().failurePolicy())
                        .orElse(LoadFailurePolicy.FAIL),
                kv,
                capabilities,
                config.kv.map(attached -> attached.config().connector()).orElse("none"),
                ec,
                config.ec
                        .map(attached ->
                                attached.provider().capabilities(attached.config(), config.host))
                        .orElse(ConnectorCapabilities.of()),
                config.ec.map(attached -> attached.config().connector()).orElse("none"),
                workers,
                new Again(model, engine),
                alarm,
                config.host.events());
    }

    private Limits limits(boolean scoresPrompts) {
        return new Limits(
                config.stepTokens,
                config.maxRunning,
                config.maxQueued,
                config.encoderSlots,
                config.encoderStepBudget,
                config.prefixCache,
                config.encodeOnly,
                scoresPrompts,
                config.pendingLookupLimit,
                config.loadLimit,
                config.holdLimit,
                config.holdPatience,
                config.revokeLimit,
                config.stepLimit,
                config.closeLimit,
                config.idleLimit,
                config.workers instanceof Workers.InProcess ? 0 : config.workerRestarts,
                config.workerRestartWindow,
                config.connectorPause,
                config.startLimit);
    }

    private Model openModel() {
        var where = "options of runner " + config.runner().name();
        return config.runner()
                .open(
                        new ModelSource(
                                config.modelFolder(),
                                config.runner().options().read(where, config.runnerOptions())));
    }

    private SchedulerContext context(
            Plugin provider, ConnectorConfig connector, String kind, EngineInfo engine) {
        var where = kind + "_connector_extra_config of " + connector.connector();
        return new SchedulerContext(
                connector.connector(),
                connector,
                provider.options().read(where, connector.extra()),
                engine,
                services());
    }

    private void checkNumbers() {
        if (config.blockTokens < 1
                || config.blockCount < 1
                || config.stepTokens < 1
                || config.maxRunning < 1
                || config.maxQueued < 1
                || config.encoderSlots < 1
                || config.dataParallelRank < 0
                || config.worldSize < 1
                || config.worldSize > Long.SIZE) {
            throw bad(
                    "blockTokens, blockCount, stepTokens, maxRunning, maxQueued, encoder slots and worldSize (at most 64) must be positive, dataParallelRank not negative");
        }
    }

    private static void checkPlugin(Plugin plugin) {
        if (!plugin.spiVersions().accepts(SpiVersion.CURRENT)) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    plugin.name()
                            + " needs SPI "
                            + plugin.spiVersions()
                            + ", this is "
                            + SpiVersion.CURRENT);
        }
        if (plugin.availability() instanceof Availability.Unavailable(var reason, var remedy)) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    plugin.name() + " cannot work here: " + reason + "; " + remedy);
        }
    }

    private void checkModel(ModelInfo info) {
        for (var group : info.groups()) {
            if (!group.replicated() && info.kvHeads() % config.worldSize != 0) {
                throw bad(
                        info.kvHeads()
                                + " KV heads of "
                                + info.name()
                                + " cannot be split over "
                                + config.worldSize
                                + " ranks");
            }
            // Connectors leave out the blocks before a window; the engine would publish them as
            // loaded.
            if (group.blockMultiple() != 1 || group.kind() != KvCacheGroup.Kind.FULL_ATTENTION) {
                throw new KvFerryException(
                        ErrorCode.UNSUPPORTED,
                        "this engine runs FULL_ATTENTION groups of one block size; "
                                + info.name()
                                + " has a group "
                                + group.kind()
                                + " of "
                                + group.blockMultiple()
                                + " times the block size");
            }
        }
    }

    private void checkFit(ConnectorCapabilities capabilities, EngineInfo engine) {
        config.kv
                .flatMap(_ -> capabilities.misfit(engine))
                .ifPresent(why -> {
                    var name = config.kv.orElseThrow().config().connector();
                    throw new KvFerryException(ErrorCode.INCOMPATIBLE, name + " " + why);
                });
    }

    private static KvFerryException bad(String what) {
        return new KvFerryException(ErrorCode.BAD_CONFIG, what);
    }
}
