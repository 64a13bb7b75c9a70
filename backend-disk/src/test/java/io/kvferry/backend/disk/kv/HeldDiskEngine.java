// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// Engines with small blocks, each in a file of its own, on a [HeldDisk].
final class HeldDiskEngine {
    /// Tokens of a block.
    static final int BLOCK = 4;

    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private HeldDiskEngine() {}

    /// An engine whose model verifies every byte, and takes more than a millisecond for a block.
    ///
    /// @param more options of the connector
    static EngineConfig config(
            HeldDisk disk, Path root, KvRole role, Map<String, Object> more, boolean prefixCache) {
        var options = new HashMap<String, Object>(more);
        options.put("shared_storage_path", root.toString());
        options.put("run_blocks", 1);
        options.put("reserve", 0);
        return EngineConfig.of(
                        new SyntheticProvider(),
                        Path.of(""),
                        Map.of("verify", "all", "token_time", "300us"))
                .blockTokens(BLOCK)
                .blockCount(256)
                .prefixCache(prefixCache)
                .kvConnector(disk, ConnectorConfig.of(disk.name(), role, "e", options));
    }

    /// A prompt of so many blocks, and a token behind them.
    ///
    /// @param first token, from which the others follow
    static int[] prompt(int first, int blocks) {
        var tokens = new int[blocks * BLOCK + 1];
        Arrays.setAll(tokens, i -> first + i);
        return tokens;
    }

    static Outcome ask(Engine engine, int[] prompt) {
        return engine.submit(GenerationRequest.of(prompt, SamplingParams.greedy(1)))
                .await(Deadline.in(PATIENCE))
                .orElseThrow();
    }

    /// Blocks of the prompt that were not computed.
    static int found(Engine engine, int[] prompt) {
        var outcome = ask(engine, prompt);
        assertThat(outcome).isInstanceOf(Outcome.Finished.class);
        return ((Outcome.Finished) outcome).usage().cachedTokens() / BLOCK;
    }

    static void awaitSaves(Engine engine) {
        var limit = Deadline.in(PATIENCE);
        engine.submit(GenerationRequest.of(new int[] {7}, SamplingParams.greedy(1))).await(limit);
        while (engine.stats().leasedBlocks() > 0) {
            assertThat(limit.passed()).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }
}
