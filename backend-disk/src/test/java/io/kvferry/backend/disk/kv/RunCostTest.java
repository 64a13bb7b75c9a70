// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.store.BlockSearch;
import io.kvferry.engine.Engine;
import io.kvferry.engine.EngineConfig;
import io.kvferry.engine.GenerationRequest;
import io.kvferry.engine.Outcome;
import io.kvferry.engine.model.SamplingParams;
import io.kvferry.engine.synthetic.SyntheticProvider;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.memory.BlockHash;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/// What files of several blocks are for: calls of the file system and questions of a lookup per
/// file, not per block.
class RunCostTest {
    private static final int BLOCK = 4;
    private static final int BLOCKS = 64;
    private static final int RUN = 16;
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    @TempDir Path root;

    private record Calls(long save, long load) {}

    /// Calls of a worker half for a prompt of [#BLOCKS] blocks.
    private Calls calls(int run) throws InterruptedException {
        var disk = new HeldDisk();
        var options =
                Map.<String, Object>of(
                        "shared_storage_path",
                        root.resolve("run-" + run).toString(),
                        "run_blocks",
                        run,
                        "reserve",
                        0,
                        "direct",
                        "off");
        var config =
                EngineConfig.of(new SyntheticProvider(), Path.of(""), Map.of("verify", "all"))
                        .blockTokens(BLOCK)
                        .blockCount(2 * BLOCKS)
                        .prefixCache(false)
                        .kvConnector(
                                disk, ConnectorConfig.of(disk.name(), KvRole.BOTH, "e", options));
        try (var engine = Engine.open(config).start()) {
            long opened = disk.fileCalls();
            assertThat(found(engine)).isZero();
            long saved = disk.fileCalls();
            assertThat(found(engine)).isEqualTo(BLOCKS);
            return new Calls(saved - opened, disk.fileCalls() - saved);
        }
    }

    /// Blocks of the prompt that came from the folder; waits until the others are saved.
    private static int found(Engine engine) {
        var prompt = new int[BLOCKS * BLOCK + 1];
        Arrays.setAll(prompt, i -> 1 + i);
        var limit = Deadline.in(PATIENCE);
        var outcome =
                engine.submit(GenerationRequest.of(prompt, SamplingParams.greedy(1)))
                        .await(limit)
                        .orElseThrow();
        assertThat(outcome).isInstanceOf(Outcome.Finished.class);
        engine.submit(GenerationRequest.of(new int[] {7}, SamplingParams.greedy(1))).await(limit);
        while (engine.stats().leasedBlocks() > 0) {
            assertThat(limit.passed()).isFalse();
            LockSupport.parkNanos(1_000_000);
        }
        return ((Outcome.Finished) outcome).usage().cachedTokens() / BLOCK;
    }

    /// As many calls per file as for a single block, but for one that a large file needs more.
    @Test
    void callsOfTheFileSystemFallWithTheBlocksOfARun() throws Exception {
        Calls single = calls(1);
        Calls runs = calls(RUN);
        assertThat(single.save()).isGreaterThanOrEqualTo(BLOCKS * 4L);
        assertThat(single.load()).isGreaterThanOrEqualTo(BLOCKS * 3L);
        assertThat(runs.save()).isLessThanOrEqualTo(single.save() / (RUN / 2));
        assertThat(runs.load()).isLessThanOrEqualTo(single.load() / (RUN / 2));
    }

    /// A finder for which every file of a set is there.
    private static final class Counting implements BlockSearch.Finder {
        private final List<BlockKey> files;
        private int questions;

        Counting(List<BlockKey> files) {
            this.files = files;
        }

        @Override
        public boolean isThere(BlockKey key) {
            questions++;
            return files.stream().anyMatch(file -> file.digest().equals(key.digest()));
        }

        @Override
        public boolean isStillThere(BlockKey key) {
            return isThere(key);
        }

        @Override
        public boolean use(BlockKey key) {
            return true;
        }
    }

    @Test
    void aLookupAsksOncePerRun() {
        var hashes = new ArrayList<BlockHash>();
        for (int i = 0; i < BLOCKS; i++) {
            var bytes = new byte[BlockHash.BYTES];
            bytes[0] = (byte) i;
            hashes.add(BlockHash.of(bytes, 0));
        }
        for (int run : new int[] {1, 4, RUN}) {
            var layout = new FileLayout(1, 1, run);
            var files = new ArrayList<BlockKey>();
            for (int at = 0; at < BLOCKS; at += run) {
                files.addAll(
                        run == 1
                                ? layout.single(hashes.get(at), at)
                                : layout.run(hashes.get(at + run - 1), at));
            }
            var finder = new Counting(files);
            var search = new PrefixSearch(layout, hashes, 0, new RunIndex());
            assertThat(search.search(finder)).isEqualTo(BLOCKS);
            assertThat(finder.questions).as("runs of " + run).isEqualTo(BLOCKS / run);
        }
    }
}
