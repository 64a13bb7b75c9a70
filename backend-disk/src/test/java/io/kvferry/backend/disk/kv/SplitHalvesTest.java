// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static io.kvferry.backend.disk.kv.HeldDiskEngine.awaitSaves;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.BlockFiles;
import io.kvferry.engine.Engine;
import io.kvferry.spi.config.KvRole;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;

/// Which blocks go when the worker half, which evicts, shares nothing with the scheduler half,
/// which knows what belongs together: as with worker processes.
class SplitHalvesTest {
    private static final int BLOCKS = 8;
    private static final int OTHERS = 3;
    private static final long FILE = 8192; // header and payload of a small block

    @TempDir Path root;

    private final HeldDisk disk = new HeldDisk();

    /// Computes, and saves, a block in each step.
    private Engine open() {
        var options =
                Map.<String, Object>of(
                        "capacity",
                        BLOCKS * FILE,
                        "high_watermark",
                        1,
                        "read_threads",
                        1,
                        "write_threads",
                        1);
        return Engine.open(
                        HeldDiskEngine.config(disk, root, KvRole.BOTH, options, false)
                                .stepTokens(HeldDiskEngine.BLOCK))
                .start();
    }

    /// Blocks of a prompt of so many that were loaded.
    private static int found(Engine engine, int first, int blocks) {
        return HeldDiskEngine.found(engine, HeldDiskEngine.prompt(first, blocks));
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
