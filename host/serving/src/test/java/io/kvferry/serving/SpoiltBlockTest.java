// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.serving.cli.MakeModelCommand;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/// Block files that were spoilt while no engine ran: their blocks are computed again, counted, and
/// replaced on disk, and the tokens stay right.
class SpoiltBlockTest {
    private static final int ANSWER = 8;
    private static final String PROMPT =
            "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.";

    @TempDir Path folder;

    private List<Integer> expected = List.of();

    @BeforeEach
    void fillTheFolder() throws Exception {
        MakeModelCommand.makeDefault(folder.resolve("model"));
        try (var engine = new ServedEngine(settings())) {
            expected = engine.tokens(PROMPT, ANSWER);
            engine.awaitSaved();
            assertThat(engine.metric("kvferry_completions_unmatched_total", "")).isZero();
            assertThat(
                            engine.metric(
                                    "kvferry_kv_disk_save_blocks_total",
                                    "connector=\"DiskConnector\""))
                    .isPositive();
        }
    }

    private EngineSettings settings() {
        return TestSettings.llama(folder.resolve("model")).disk(folder.resolve("disk")).get();
    }

    /// The bytes of the block files, by path.
    private Map<Path, byte[]> blocks() throws IOException {
        var blocks = new TreeMap<Path, byte[]>();
        try (var all = Files.walk(folder.resolve("disk"))) {
            for (var file : all.filter(Files::isRegularFile).toList()) {
                if (Files.size(file) > 4096) {
                    blocks.put(file, Files.readAllBytes(file));
                }
            }
        }
        return blocks;
    }

    /// Damages all block files; answers how many.
    private int spoil(Damage damage) throws IOException {
        var paths = blocks().keySet();
        assertThat(paths).isNotEmpty();
        for (var path : paths) {
            try (var file = new RandomAccessFile(path.toFile(), "rw")) {
                damage.doTo(file);
            }
        }
        return paths.size();
    }

    private interface Damage {
        void doTo(RandomAccessFile file) throws IOException;
    }

    private static void flipAByte(RandomAccessFile file) throws IOException {
        long middle = file.length() / 2;
        file.seek(middle);
        int value = file.read();
        file.seek(middle);
        file.write(value ^ 0x55);
    }

    private static void cutShort(RandomAccessFile file) throws IOException {
        file.setLength(file.length() / 2);
    }

    @Test
    void computesAgainAndReplacesBlocksWithAFlippedByte() throws Exception {
        assertThat(healed(SpoiltBlockTest::flipAByte)).isPositive();
    }

    @Test
    void computesAgainAndReplacesBlocksThatAreCutShort() throws Exception {
        assertThat(healed(SpoiltBlockTest::cutShort)).isPositive();
    }

    /// A request that meets damage learns of all of it at once, also when the index was sure of its
    /// blocks.
    @ParameterizedTest
    @ValueSource(strings = {"DiskConnector", "MultiConnector"})
    void replacesEveryDamagedBlockForOneRequest(String connector) throws Exception {
        var disk = TestSettings.llama(folder.resolve("model")).noPrefixCache();
        var settings =
                connector.equals("MultiConnector")
                        ? disk.multi(folder.resolve("disk")).get()
                        : disk.disk(folder.resolve("disk")).get();
        try (var engine = new ServedEngine(settings)) {
            assertThat(engine.tokens(PROMPT, ANSWER)).as("from disk").isEqualTo(expected);
            engine.awaitSaved();
            int files = spoil(SpoiltBlockTest::flipAByte);
            assertThat(engine.tokens(PROMPT, ANSWER)).as("computed again").isEqualTo(expected);
            engine.awaitSaved();
            assertThat(engine.metric("kvferry_kv_disk_corrupt_blocks_total", "")).isEqualTo(files);
            assertThat(blocks()).as("block files").hasSize(files);
            assertThat(engine.tokens(PROMPT, ANSWER)).as("from disk").isEqualTo(expected);
            assertThat(engine.metric("kvferry_kv_disk_corrupt_blocks_total", "")).isEqualTo(files);
        }
    }

    /// Spoils all block files, serves the prompt twice in fresh engines; answers the blocks that
    /// the first of them counted as corrupt.
    private double healed(Damage damage) throws Exception {
        int files = spoil(damage);
        double corrupt;
        try (var engine = new ServedEngine(settings())) {
            assertThat(engine.tokens(PROMPT, ANSWER)).isEqualTo(expected);
            engine.awaitSaved();
            corrupt = engine.metric("kvferry_kv_disk_corrupt_blocks_total", "");
            assertThat(corrupt).isEqualTo(files);
        }
        try (var engine = new ServedEngine(settings())) {
            assertThat(engine.tokens(PROMPT, ANSWER)).isEqualTo(expected);
            assertThat(engine.metric("kvferry_kv_disk_corrupt_blocks_total", "")).isZero();
            assertThat(
                            engine.metric(
                                    "kvferry_prompt_tokens_by_source_total",
                                    "source=\"connector\""))
                    .as("prompt tokens from the replaced blocks")
                    .isPositive();
            engine.awaitSaved();
        }
        assertThat(blocks()).as("block files").hasSize(files);
        return corrupt;
    }
}
