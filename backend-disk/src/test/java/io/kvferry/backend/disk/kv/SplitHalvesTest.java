// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.BlockFiles;
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

/// Which blocks go when the worker half, which evicts, shares nothing with the scheduler half,
/// which knows what belongs together: as with worker processes.
class SplitHalvesTest {
    private static final int BLOCK = 4;
    private static final int BLOCKS = 8;
    private static final int OTHERS = 3;
    private static final long FILE = 8192; // header and payload of a small block
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    @TempDir Path root;

    private final HeldDisk disk = new HeldDisk();

    /// Computes, and saves, a block in each step.
    private Engine open() {
        var options =
                Map.<String, Object>of(
                        "shared_storage_path",
                        root.toString(),
                        "run_blocks",
                        1,
                        "reserve",
                        0,
                        "capacity",
                        BLOCKS * FILE,
                        "high_watermark",
                        1,
                        "read_threads",
                        1,
                        "write_threads",
                        1);
        return Engine.open(
                        EngineConfig.of(
                                        new SyntheticProvider(),
                                        Path.of(""),
                                        Map.of("verify", "all", "token_time", "1ms"))
                                .blockTokens(BLOCK)
                                .blockCount(256)
                                .stepTokens(BLOCK)
                                .prefixCache(false)
                                .kvConnector(
                                        disk,
                                        ConnectorConfig.of(disk.name(), KvRole.BOTH, "e", options)))
                .start();
    }

    /// Blocks of a prompt of so many that were loaded.
    private static int found(Engine engine, int first, int blocks) {
        var tokens = new int[blocks * BLOCK + 1];
        Arrays.setAll(tokens, i -> first + i);
        var outcome =
                engine.submit(GenerationRequest.of(tokens, SamplingParams.greedy(1)))
                        .await(Deadline.in(PATIENCE))
                        .orElseThrow();
        assertThat(outcome).isInstanceOf(Outcome.Finished.class);
        return ((Outcome.Finished) outcome).usage().cachedTokens() / BLOCK;
    }

    private static void awaitSaves(Engine engine) {
        var limit = Deadline.in(PATIENCE);
        engine.submit(GenerationRequest.of(new int[] {7}, SamplingParams.greedy(1))).await(limit);
        while (engine.stats().leasedBlocks() > 0) {
            assertThat(limit.passed()).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
    }

    private void saveThePrompt(Engine engine) {
        assertThat(found(engine, 1, BLOCKS)).isZero();
        awaitSaves(engine);
        assertThat(BlockFiles.under(root)).hasSize(BLOCKS);
    }

    private static void saveOthers(Engine engine) {
        assertThat(found(engine, 1000, OTHERS)).isZero();
        awaitSaves(engine);
    }

    @Test
    void evictsTheEndOfAPromptThatWasSavedInSeveralSteps() {
        try (var engine = open()) {
            saveThePrompt(engine);
            saveOthers(engine);
            assertThat(found(engine, 1, BLOCKS)).isEqualTo(BLOCKS - OTHERS);
        }
    }

    @Test
    void evictsTheEndOfAPromptThatWasLoaded() {
        try (var engine = open()) {
            saveThePrompt(engine);
        }
        disk.slowReads(Duration.ofMillis(5)); // one file after the other
        try (var engine = open()) {
            assertThat(found(engine, 1, BLOCKS)).isEqualTo(BLOCKS);
            saveOthers(engine);
            assertThat(found(engine, 1, BLOCKS)).isEqualTo(BLOCKS - OTHERS);
        }
    }
}
