// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static io.kvferry.backend.disk.kv.HeldDiskEngine.awaitSaves;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.BlockFiles;
import io.kvferry.engine.Engine;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.config.KvRole;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/// A prompt whose beginning the engine has itself, and whose rest it loads.
class LoadedPrefixTest {
    private static final int BLOCKS = 6;
    private static final int OWN = 2;
    private static final long MILLI = TimeUnit.MILLISECONDS.toNanos(1);
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    @TempDir Path root;

    private final HeldDisk disk = new HeldDisk();

    /// One file is loaded at a time.
    private Engine open() {
        var options =
                Map.<String, Object>of("recency", "50ms", "read_threads", 1, "write_threads", 1);
        return Engine.open(HeldDiskEngine.config(disk, root, KvRole.BOTH, options, true)).start();
    }

    /// Blocks that were not computed of a prompt of so many.
    private static int found(Engine engine, int blocks) {
        return HeldDiskEngine.found(engine, HeldDiskEngine.prompt(1, blocks));
    }

    private static long modified(Path file) {
        try {
            return Files.getLastModifiedTime(file).to(TimeUnit.NANOSECONDS);
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    /// The files by the positions of their blocks, which their times carry.
    private List<Path> files() {
        return BlockFiles.under(root).stream()
                .sorted(Comparator.comparingLong(file -> -(modified(file) % MILLI)))
                .toList();
    }

    @BeforeEach
    void saveThePrompt() {
        try (var engine = open()) {
            assertThat(found(engine, BLOCKS)).isZero();
            awaitSaves(engine);
            assertThat(files()).hasSize(BLOCKS);
        }
    }

    /// However long the load takes, the end of the prompt must not look more recently used than its
    /// beginning.
    @Test
    void whatIsLoadedLastIsEvictedBeforeTheBeginningOfThePrompt() {
        try (var engine = open()) {
            disk.slowReads(Duration.ofMillis(100));
            assertThat(found(engine, OWN)).isEqualTo(OWN);
            assertThat(found(engine, BLOCKS)).isEqualTo(BLOCKS);
            var limit = Deadline.in(PATIENCE);
            var files = files();
            while (!limit.passed() && !files.equals(byLastUse())) {
                LockSupport.parkNanos(1_000_000);
            }
            assertThat(byLastUse()).isEqualTo(files);
        }
    }

    /// Those used last first.
    private List<Path> byLastUse() {
        return BlockFiles.under(root).stream()
                .sorted(Comparator.comparingLong(file -> -modified(file)))
                .toList();
    }

    @Test
    void savesTheBeginningAgainThatTheFolderHasLost() throws Exception {
        try (var engine = open()) {
            assertThat(found(engine, OWN)).isEqualTo(OWN);
            for (var file : files().subList(0, OWN)) {
                Files.delete(file);
            }
            assertThat(found(engine, BLOCKS)).isEqualTo(BLOCKS);
            awaitSaves(engine);
            assertThat(files()).hasSize(BLOCKS);
        }
    }
}
