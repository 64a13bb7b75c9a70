// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.config.ConfigText;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/// Settings from which an engine is assembled, as an operator gives them.
///
/// @param runner name of a model runner
/// @param model a Hugging Face model folder; the empty path for runners that need none
/// @param runnerOptions options of the runner, JSON values
/// @param kvConfig vLLM's `--kv-transfer-config` JSON
/// @param ecConfig vLLM's `--ec-transfer-config` JSON
/// @param pluginFolder where plugins are searched beside the class path
/// @param blockTokens tokens per KV block
/// @param blocks KV blocks in the pool
/// @param ranks tensor-parallel ranks
/// @param workerProcesses whether each rank gets a JVM of its own
/// @param stepTokens most tokens computed in one step
/// @param maxRunning most requests that run at once
/// @param holdPatience how long blocks that no decode instance fetches may keep requests from
///   running
/// @param prefixCache whether blocks of ended requests are kept for equal prefixes
/// @param salt the tenant's salt in the cache namespace
/// @param dataParallelRank which replica of its model the engine is, 0 for the only one
/// @param stagingBytes of the staging pool that plugins share, in each process
public record EngineSettings(
        String runner,
        Path model,
        Map<String, Object> runnerOptions,
        Optional<ConfigText> kvConfig,
        Optional<ConfigText> ecConfig,
        Optional<Path> pluginFolder,
        int blockTokens,
        int blocks,
        int ranks,
        boolean workerProcesses,
        int stepTokens,
        int maxRunning,
        Duration holdPatience,
        boolean prefixCache,
        String salt,
        int dataParallelRank,
        long stagingBytes) {
    private static final Duration HOLD_PATIENCE = Duration.ofSeconds(5);

    public EngineSettings {
        runnerOptions = Map.copyOf(runnerOptions);
    }

    /// One rank, no connector, the engine's default sizes.
    public static EngineSettings of(String runner, Path model) {
        return new EngineSettings(
                runner,
                model,
                Map.of(),
                Optional.empty(),
                Optional.empty(),
                Optional.empty(),
                16,
                1024,
                1,
                false,
                2048,
                256,
                HOLD_PATIENCE,
                true,
                "",
                0,
                Kvferry.STAGING_BYTES);
    }

    /// The same with a pool of another size.
    public EngineSettings withBlocks(int tokens, int count) {
        return new EngineSettings(
                runner,
                model,
                runnerOptions,
                kvConfig,
                ecConfig,
                pluginFolder,
                tokens,
                count,
                ranks,
                workerProcesses,
                stepTokens,
                maxRunning,
                holdPatience,
                prefixCache,
                salt,
                dataParallelRank,
                stagingBytes);
    }

    /// The same with plugins of a folder.
    public EngineSettings withPluginFolder(Optional<Path> folder) {
        return new EngineSettings(
                runner,
                model,
                runnerOptions,
                kvConfig,
                ecConfig,
                folder,
                blockTokens,
                blocks,
                ranks,
                workerProcesses,
                stepTokens,
                maxRunning,
                holdPatience,
                prefixCache,
                salt,
                dataParallelRank,
                stagingBytes);
    }
}
