// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.kv.KvConnectorProvider;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/// All settings of an engine, with a default for everything but the runner. Setters return `this`;
/// [Engine#open] checks the whole and takes a copy.
///
/// Threading: confined to whoever builds it.
public final class EngineConfig {
    private final ModelRunnerProvider runner;
    private final Path modelFolder;
    private final Map<String, Object> runnerOptions;
    Optional<Attached<KvConnectorProvider>> kv = Optional.empty();
    Optional<Attached<EcConnectorProvider>> ec = Optional.empty();
    HostServices host = HostServices.NONE;
    Workers workers = new Workers.InProcess();
    String salt = "";
    int worldSize = 1;
    int dataParallelRank;
    int blockTokens = 16;
    int blockCount = 1024;
    int stepTokens = 2048;
    int maxRunning = 256;
    int maxQueued = 4096;
    int encoderSlots = 8192;
    int encoderStepBudget = 8192;
    boolean prefixCache = true;
    boolean encodeOnly;
    Duration pendingLookupLimit = Duration.ofSeconds(5);
    Duration loadLimit = Duration.ofSeconds(60);
    Duration holdLimit = Duration.ofMinutes(8);
    Duration holdPatience = Duration.ofSeconds(5);
    Duration revokeLimit = Duration.ofSeconds(10);
    Duration stepLimit = Duration.ofSeconds(60);
    Duration startLimit = Duration.ofMinutes(2);
    Duration closeLimit = Duration.ofSeconds(10);
    Duration idleLimit = Duration.ofMillis(250);
    int workerRestarts = 3;
    Duration workerRestartWindow = Duration.ofMinutes(10);
    Duration connectorPause = Duration.ofSeconds(1);

    /// A connector and its configuration.
    public record Attached<P>(P provider, ConnectorConfig config) {
        public Attached {
            Objects.requireNonNull(provider, "provider");
            Objects.requireNonNull(config, "config");
        }
    }

    private EngineConfig(
            ModelRunnerProvider runner, Path modelFolder, Map<String, Object> runnerOptions) {
        this.runner = Objects.requireNonNull(runner, "runner");
        this.modelFolder = Objects.requireNonNull(modelFolder, "modelFolder");
        this.runnerOptions = Map.copyOf(runnerOptions);
    }

    /// Settings for an engine with this runner and model.
    ///
    /// @param runnerOptions JSON values, read against the runner's schema when the engine opens
    public static EngineConfig of(
            ModelRunnerProvider runner, Path modelFolder, Map<String, Object> runnerOptions) {
        return new EngineConfig(runner, modelFolder, runnerOptions);
    }

    public ModelRunnerProvider runner() {
        return runner;
    }

    public Path modelFolder() {
        return modelFolder;
    }

    public Map<String, Object> runnerOptions() {
        return runnerOptions;
    }

    /// The KV connector; none by default. Its `failurePolicy` is the engine's.
    public EngineConfig kvConnector(KvConnectorProvider provider, ConnectorConfig config) {
        kv = Optional.of(new Attached<>(provider, config));
        return this;
    }

    /// The encoder-cache connector; none by default.
    public EngineConfig ecConnector(EcConnectorProvider provider, ConnectorConfig config) {
        ec = Optional.of(new Attached<>(provider, config));
        return this;
    }

    /// What the engine passes to the plugins it opens.
    public EngineConfig host(HostServices services) {
        host = services;
        return this;
    }

    /// Where the worker ranks run; in this process by default.
    public EngineConfig workers(Workers where) {
        workers = where;
        return this;
    }

    /// Tensor-parallel ranks, 1 by default.
    public EngineConfig worldSize(int ranks) {
        worldSize = ranks;
        return this;
    }

    /// Which replica of its model this engine is, 0 by default; connectors are told, and may need
    /// it to name an engine among its replicas.
    public EngineConfig dataParallelRank(int rank) {
        dataParallelRank = rank;
        return this;
    }

    /// The tenant's salt in the cache namespace.
    public EngineConfig salt(String text) {
        salt = text;
        return this;
    }

    /// Tokens per block, 16 by default.
    public EngineConfig blockTokens(int tokens) {
        blockTokens = tokens;
        return this;
    }

    /// Blocks in the pool, 1024 by default.
    public EngineConfig blockCount(int blocks) {
        blockCount = blocks;
        return this;
    }

    /// Most tokens computed in one step, 2048 by default; longer prompts are computed in chunks.
    public EngineConfig stepTokens(int tokens) {
        stepTokens = tokens;
        return this;
    }

    /// Most requests that run at once, 256 by default.
    public EngineConfig maxRunning(int requests) {
        maxRunning = requests;
        return this;
    }

    /// Most requests in the engine, running ones included; more are refused with BACKPRESSURE. 4096
    /// by default.
    public EngineConfig maxQueued(int requests) {
        maxQueued = requests;
        return this;
    }

    /// Whether the engine keeps blocks of ended requests for equal prefixes; on by default.
    public EngineConfig prefixCache(boolean on) {
        prefixCache = on;
        return this;
    }

    /// Rows that the encoder cache holds, and rows encoded in one step. The memory for the rows is
    /// allocated when the engine opens.
    public EngineConfig encoder(int slots, int stepBudget) {
        encoderSlots = slots;
        encoderStepBudget = stepBudget;
        return this;
    }

    /// An encode engine: a request ends when its items are encoded and saved; the language model
    /// does not run.
    public EngineConfig encodeOnly(boolean on) {
        encodeOnly = on;
        return this;
    }

    /// How long a lookup may stay Pending before it counts as a miss; 5 s by default.
    public EngineConfig pendingLookupLimit(Duration limit) {
        pendingLookupLimit = limit;
        return this;
    }

    /// How long an asynchronous load may take before it counts as failed; 60 s by default.
    public EngineConfig loadLimit(Duration limit) {
        loadLimit = limit;
        return this;
    }

    /// Longest hold or lease, whatever a connector asks for; 8 min by default.
    public EngineConfig holdLimit(Duration limit) {
        holdLimit = limit;
        return this;
    }

    /// How long a hold, or a transfer whose revocation is unanswered, may keep requests from
    /// running; 5 s by default. After that a request that lacks only blocks of older holds is
    /// refused with BACKPRESSURE, and one that needs blocks of unanswered transfers fails with
    /// TIMEOUT.
    public EngineConfig holdPatience(Duration patience) {
        holdPatience = patience;
        return this;
    }

    /// How long a worker may take to answer a revocation before its blocks count as quarantined; 10
    /// s by default.
    public EngineConfig revokeLimit(Duration limit) {
        revokeLimit = limit;
        return this;
    }

    /// How long a step may take before the rank counts as dead; 60 s by default.
    public EngineConfig stepLimit(Duration limit) {
        stepLimit = limit;
        return this;
    }

    /// How long worker processes may take to be ready, and the worker halves of a connector to be
    /// opened again; 2 min by default.
    public EngineConfig startLimit(Duration limit) {
        startLimit = limit;
        return this;
    }

    /// How long [Engine#close] waits for running requests and open transfers; 10 s by default.
    public EngineConfig closeLimit(Duration limit) {
        closeLimit = limit;
        return this;
    }

    /// How long the engine rests between two steps while it only waits for transfers of a connector
    /// that signals its reports; 250 ms by default. The signal ends the rest, this is for a signal
    /// that never comes.
    public EngineConfig idleLimit(Duration limit) {
        idleLimit = limit;
        return this;
    }

    /// How long a connector stays off after a defect before its halves are opened again; 1 s by
    /// default. Twice as long each time that fails, or it has another defect within a minute; at
    /// most a minute.
    public EngineConfig connectorPause(Duration pause) {
        connectorPause = pause;
        return this;
    }

    /// How often worker processes are started again within a time after one of them was lost; 3
    /// times in 10 minutes by default. One loss more ends the engine's service, as the first one
    /// does with 0. Workers in the engine's own process cannot be started again.
    public EngineConfig workerRestarts(int most, Duration within) {
        workerRestarts = most;
        workerRestartWindow = within;
        return this;
    }
}
