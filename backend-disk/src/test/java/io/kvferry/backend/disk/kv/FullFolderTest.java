// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.BlockFiles;
import io.kvferry.backend.disk.DiskConnectorProvider;
import io.kvferry.backend.disk.SmallFileSystem;
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
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// Files of several blocks on a file system that fills up, below a capacity that it does not have.
class FullFolderTest {
    private static final int BLOCK = 4;
    private static final int RUN = 4;
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    @TempDir Path root;

    @Test
    @Timeout(600)
    void servesOnWhenRunsCannotBeSavedAndSavesAgainOnceThereIsRoom() throws Exception {
        try (var _ = SmallFileSystem.mount(root, "size=1m")) {
            try (var engine = open()) {
                int prompts = 25;
                for (int i = 0; i < prompts; i++) {
                    assertThat(found(engine, i)).isZero();
                }
                assertThat(Files.getFileStore(root).getUsableSpace()).isLessThan(16_384);
                int there = 0;
                for (int i = 0; i < prompts; i++) {
                    there += found(engine, i);
                }
                assertThat(there).as("blocks found").isBetween(RUN, prompts * 3 * RUN - 1);
                for (var file : BlockFiles.under(root)) {
                    Files.deleteIfExists(file);
                }
                assertThat(found(engine, prompts)).isZero();
                assertThat(found(engine, prompts)).isEqualTo(3 * RUN);
            }
        }
    }

    private Engine open() {
        var provider = new DiskConnectorProvider();
        var options =
                Map.<String, Object>of(
                        "shared_storage_path",
                        root.resolve("kv").toString(),
                        "run_blocks",
                        RUN,
                        "reserve",
                        0,
                        "direct",
                        "off");
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

    /// Blocks of a prompt of three runs that came from the folder; waits until its saves have
    /// ended, well or not.
    private static int found(Engine engine, int word) {
        var prompt = new int[3 * RUN * BLOCK + 1];
        Arrays.setAll(prompt, i -> 1 + i + 1000 * word);
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
}
