// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.multiconnector.config.ConfigText;
import io.kvferry.serving.EngineSettings;
import io.kvferry.serving.RunnerChoice;
import io.kvferry.serving.http.Json;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.toolkit.files.FileTrouble;

import picocli.CommandLine.Option;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/// The options that describe an engine.
final class EngineOptions {
    /// Sizes are written as in the options of plugins.
    private static final OptionSchema STAGING =
            OptionSchema.of(
                    io.kvferry.spi.config.Option.of(
                                    "--staging-pool",
                                    io.kvferry.spi.config.Option.Type.BYTES,
                                    "bytes of the staging pool")
                            .inRange(1 << 20, 1L << 36));

    @Option(
            names = "--runner",
            defaultValue = RunnerChoice.AUTO,
            description =
                    "Model runner, or auto for the first of jlama and llama that takes the model (default: ${DEFAULT-VALUE}); kvferry plugins lists them.")
    String runner = RunnerChoice.AUTO;

    @Option(
            names = "--model",
            paramLabel = "FOLDER",
            defaultValue = "",
            description = "Hugging Face model folder.")
    Path model = Path.of("");

    @Option(
            names = "--runner-options",
            paramLabel = "JSON",
            defaultValue = "{}",
            description = "Options of the runner, or @FILE.")
    String runnerOptions = "{}";

    @Option(
            names = "--kv-transfer-config",
            paramLabel = "JSON",
            description = "KV connector, vLLM's JSON, or @FILE.")
    Optional<String> kvConfig = Optional.empty();

    @Option(
            names = "--ec-transfer-config",
            paramLabel = "JSON",
            description = "Encoder-cache connector, vLLM's JSON, or @FILE.")
    Optional<String> ecConfig = Optional.empty();

    @Option(
            names = {"--plugin-folder", "--plugin-dir"},
            paramLabel = "FOLDER",
            description = "More plugins: one sub-folder of jars each.")
    Optional<Path> pluginFolder = Optional.empty();

    @Option(
            names = "--block-size",
            defaultValue = "16",
            description = "Tokens per KV block (default: ${DEFAULT-VALUE}).")
    int blockSize = 16;

    @Option(
            names = "--blocks",
            defaultValue = "1024",
            description = "KV blocks in the pool (default: ${DEFAULT-VALUE}).")
    int blocks = 1024;

    @Option(
            names = "--tp",
            defaultValue = "1",
            description = "Tensor-parallel ranks (default: ${DEFAULT-VALUE}).")
    int ranks = 1;

    @Option(names = "--worker-processes", description = "Give each rank a JVM of its own.")
    boolean workerProcesses;

    @Option(
            names = "--max-num-batched-tokens",
            defaultValue = "2048",
            description = "Most tokens computed in one step (default: ${DEFAULT-VALUE}).")
    int stepTokens = 2048;

    @Option(
            names = "--max-num-seqs",
            defaultValue = "256",
            description = "Most requests that run at once (default: ${DEFAULT-VALUE}).")
    int maxRunning = 256;

    @Option(
            names = "--hold-patience",
            paramLabel = "SECONDS",
            defaultValue = "5",
            description =
                    "How long blocks that no decode instance fetches may keep requests from running; those are refused with 503 then (default: ${DEFAULT-VALUE}).")
    int holdPatienceSeconds = 5;

    @Option(names = "--no-prefix-cache", description = "Keep no blocks of ended requests.")
    boolean noPrefixCache;

    @Option(
            names = "--cache-salt",
            defaultValue = "",
            description = "Tenant salt of the cache namespace.")
    String salt = "";

    @Option(
            names = "--data-parallel-rank",
            paramLabel = "N",
            defaultValue = "0",
            description =
                    "Which replica of the model this engine is, as plugins see it (default: ${DEFAULT-VALUE}).")
    int dataParallelRank;

    @Option(
            names = "--staging-pool",
            paramLabel = "SIZE",
            defaultValue = "256MiB",
            description =
                    "Memory for bytes on their way that plugins share, per process; taken when one asks first (default: ${DEFAULT-VALUE}).")
    String stagingPool = "256MiB";

    EngineSettings settings() {
        return new EngineSettings(
                runner,
                model,
                jsonOf(textOf("--runner-options", runnerOptions)),
                kvConfig.map(text -> textOf("--kv-transfer-config", text)),
                ecConfig.map(text -> textOf("--ec-transfer-config", text)),
                pluginFolder,
                HttpOptions.atLeast("--block-size", blockSize, 1),
                HttpOptions.atLeast("--blocks", blocks, 1),
                HttpOptions.atLeast("--tp", ranks, 1),
                workerProcesses,
                HttpOptions.atLeast("--max-num-batched-tokens", stepTokens, 1),
                HttpOptions.atLeast("--max-num-seqs", maxRunning, 1),
                Duration.ofSeconds(HttpOptions.atLeast("--hold-patience", holdPatienceSeconds, 1)),
                !noPrefixCache,
                salt,
                HttpOptions.atLeast("--data-parallel-rank", dataParallelRank, 0),
                STAGING.read("engine options", Map.of("--staging-pool", stagingPool))
                        .bytes("--staging-pool"));
    }

    static Map<String, Object> jsonOf(ConfigText text) {
        try {
            return Json.toMap(Json.readObject(text.json().getBytes(StandardCharsets.UTF_8)));
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, text.where() + ": " + e.getMessage(), e);
        }
    }

    /// The value itself, or the content of the file after an `@`.
    static ConfigText textOf(String option, String value) {
        if (!value.startsWith("@")) {
            return ConfigText.typed(option, value);
        }
        try {
            Path file = Path.of(value.substring(1));
            return ConfigText.file(option, file, Files.readString(file));
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    FileTrouble.describe(option + ": cannot read " + value.substring(1), e),
                    e);
        }
    }
}
