// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.DiskConnectorProvider;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// Prompts that part within a file of several blocks. The model verifies every byte, and the engine
/// keeps no prefixes.
class RunSharingTest {
    private static final int BLOCK = 4;
    private static final int RUN = 4;
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    @TempDir Path root;

    private Engine open() {
        var provider = new DiskConnectorProvider();
        var options =
                Map.<String, Object>of(
                        "shared_storage_path", root.toString(), "run_blocks", RUN, "reserve", 0);
        return Engine.open(
                        EngineConfig.of(
                                        new SyntheticProvider(),
                                        Path.of(""),
                                        Map.of("verify", "all"))
                                .blockTokens(BLOCK)
                                .blockCount(256)
                                .prefixCache(false)
                                .worldSize(2)
                                .kvConnector(
                                        provider,
                                        ConnectorConfig.of(
                                                provider.name(), KvRole.BOTH, "e", options)))
                .start();
    }

    /// Two runs, and a token that is always computed; the prompts of one `parting` and another part
    /// at that block.
    private static int[] prompt(int parting, int word) {
        var tokens = new int[2 * RUN * BLOCK + 1];
        Arrays.setAll(
                tokens, i -> 1 + i + 1000 * parting + (i >= parting * BLOCK ? 100 * word : 0));
        return tokens;
    }

    /// A file of its own that a shorter prompt left comes before the run of another prompt that
    /// goes on behind it.
    @Test
    void aShorterPromptDoesNotHideTheRunThatAnotherPromptLeft() {
        int base = RUN + 2;
        try (var engine = open()) {
            var shorter = Arrays.copyOf(prompt(base, 0), (RUN + 1) * BLOCK + 1);
            assertThat(found(engine, shorter)).isZero();
            assertThat(found(engine, prompt(base, 0))).isEqualTo(RUN + 1);
            assertThat(found(engine, prompt(base, 1))).isEqualTo(base);
            assertThat(found(engine, prompt(base, 1))).isEqualTo(2 * RUN);
            assertThat(found(engine, shorter)).isEqualTo(RUN + 1);
        }
    }

    /// Blocks of the prompt that came from the folder; waits until its blocks are saved.
    private static int found(Engine engine, int[] prompt) {
        var outcome =
                engine.submit(GenerationRequest.of(prompt, SamplingParams.greedy(1)))
                        .await(Deadline.in(PATIENCE))
                        .orElseThrow();
        assertThat(outcome).isInstanceOf(Outcome.Finished.class);
        var limit = Deadline.in(PATIENCE);
        engine.submit(GenerationRequest.of(new int[] {7}, SamplingParams.greedy(1))).await(limit);
        while (engine.stats().leasedBlocks() > 0) {
            assertThat(limit.passed()).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
        return ((Outcome.Finished) outcome).usage().cachedTokens() / BLOCK;
    }

    @Test
    void promptsThatPartWithinARunShareWhatComesBefore() {
        for (int parting = 1; parting < RUN; parting++) {
            int base = RUN + parting;
            try (var engine = open()) {
                assertThat(found(engine, prompt(base, 0))).isZero();
                assertThat(found(engine, prompt(base, 0))).isEqualTo(2 * RUN);
                assertThat(found(engine, prompt(base, 1)))
                        .as("blocks of a run that another prompt left")
                        .isEqualTo(base);
                assertThat(found(engine, prompt(base, 1))).isEqualTo(2 * RUN);
                assertThat(found(engine, prompt(base, 0))).isEqualTo(2 * RUN);
            }
            try (var another = open()) {
                assertThat(found(another, prompt(base, 2)))
                        .as("by an engine that knows of no run")
                        .isEqualTo(base);
                assertThat(found(another, prompt(base, 2))).isEqualTo(2 * RUN);
                assertThat(found(another, prompt(base, 0))).isEqualTo(2 * RUN);
            }
        }
    }
}
