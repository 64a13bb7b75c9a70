// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static io.kvferry.backend.disk.kv.HeldDiskEngine.awaitSaves;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.BlockFiles;
import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.engine.Engine;
import io.kvferry.engine.Outcome;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.LookupResult.Tier;
import io.kvferry.spi.observe.CacheEvent;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;

/// Engines on a folder whose files are damaged, cannot be changed, or are slow to open. The model
/// verifies every byte, and the engines have no prefix cache.
class FolderFaultsTest {
    private static final int BLOCKS = 6;

    @TempDir Path root;

    private final HeldDisk disk = new HeldDisk();

    private Engine open(KvRole role, Map<String, Object> more) {
        return open(disk, role, more);
    }

    private Engine open(HeldDisk disk, KvRole role, Map<String, Object> more) {
        return Engine.open(HeldDiskEngine.config(disk, root, role, more, false)).start();
    }

    private static int[] prompt(int number) {
        return prompt(number, BLOCKS);
    }

    private static int[] prompt(int number, int blocks) {
        return HeldDiskEngine.prompt(1 + 100 * number, blocks);
    }

    private static Outcome ask(Engine engine, int number) {
        return HeldDiskEngine.ask(engine, prompt(number));
    }

    /// Blocks of the prompt that came from the folder.
    private static int found(Engine engine, int number) {
        return HeldDiskEngine.found(engine, prompt(number));
    }

    private static long counted(Engine engine, String name) {
        return engine.stats().kvConnector().counters().getOrDefault(name, 0L);
    }

    @Test
    void promisesADamagedBlockOfAReadOnlyFolderOnceUntilItIsSavedAgain() throws Exception {
        try (var engine = open(KvRole.BOTH, Map.of())) {
            assertThat(found(engine, 0)).isZero();
            awaitSaves(engine);
            assertThat(found(engine, 0)).isEqualTo(BLOCKS);
            for (var file : BlockFiles.under(root)) {
                byte[] bytes = Files.readAllBytes(file);
                bytes[4096 + 1] ^= 1;
                Files.write(file, bytes);
            }
            disk.readOnly(true);
            assertThat(ask(engine, 0)).as("its load fails").isNotInstanceOf(Outcome.Finished.class);
            awaitSaves(engine);
            long corrupt = counted(engine, "disk_corrupt_blocks");
            assertThat(corrupt).isPositive();
            for (int i = 0; i < 3; i++) {
                assertThat(found(engine, 0)).isZero();
                awaitSaves(engine);
            }
            assertThat(counted(engine, "disk_corrupt_blocks")).isEqualTo(corrupt);
            disk.readOnly(false);
            assertThat(found(engine, 0)).isZero();
            awaitSaves(engine);
            assertThat(found(engine, 0)).isEqualTo(BLOCKS);
        }
    }

    /// However long the files take: the answer of the prefill engine comes after them.
    @Test
    void aDecodeEngineFindsWhatAPrefillEngineHasAnswered() {
        try (var prefill = open(KvRole.PRODUCER, Map.of("save_wait", "60s"));
                var decode = open(KvRole.CONSUMER, Map.of())) {
            for (int i = 0; i < 5; i++) {
                disk.holdSaves();
                var release =
                        Thread.ofVirtual()
                                .unstarted(() -> {
                                    LockSupport.parkNanos(20_000_000); // a slow disk
                                    disk.release();
                                });
                release.start();
                assertThat(found(prefill, i)).isZero();
                assertThat(found(decode, i)).as("of prompt %d", i).isEqualTo(BLOCKS);
            }
        }
    }

    @Test
    void answersAlthoughItsSavesHang() {
        var options =
                Map.<String, Object>of("save_wait", "50ms", "io_timeout", "300s", "lease", "300s");
        try (var prefill = open(KvRole.PRODUCER, options)) {
            disk.holdSaves();
            for (int i = 0; i < 3; i++) {
                assertThat(found(prefill, i)).isZero();
            }
            assertThat(counted(prefill, "disk_save_wait_timeouts")).isPositive();
            disk.release();
            awaitSaves(prefill);
            assertThat(BlockFiles.under(root)).hasSize(3 * BLOCKS);
        } finally {
            disk.release();
        }
    }

    /// A save that finds existing files must not offer them again, because they still cannot be
    /// read. The worker half that fails to read another engine's files does not have them in its
    /// catalog.
    @ParameterizedTest
    @CsvSource({"own, refused", "own, late", "other, refused", "other, late"})
    void doesNotPromiseAgainAtOnceWhatCannotBeRead(String files, String trouble) {
        try (var engine = open(KvRole.BOTH, Map.of("io_timeout", "1s"));
                var other = open(new HeldDisk(), KvRole.BOTH, Map.of())) {
            var saver = files.equals("own") ? engine : other;
            assertThat(found(saver, 0)).isZero();
            awaitSaves(saver);
            long began = System.nanoTime();
            if (trouble.equals("refused")) {
                disk.unreadable(_ -> true);
            } else {
                disk.hold();
            }
            assertThat(ask(engine, 0)).as("its load fails").isNotInstanceOf(Outcome.Finished.class);
            for (int i = 0; i < 3; i++) {
                var outcome = ask(engine, 0);
                awaitSaves(engine);
                if (System.nanoTime() - began
                        < StoreConfig.Times.DEFAULT_SUPPRESSION.toNanos()) { // else it is over
                    assertThat(outcome)
                            .as("request %d after it", i)
                            .isInstanceOfSatisfying(
                                    Outcome.Finished.class,
                                    finished ->
                                            assertThat(finished.usage().cachedTokens()).isZero());
                }
            }
            assertThat(BlockFiles.under(root)).hasSize(BLOCKS);
            disk.release(); // else closing waits
        } finally {
            disk.release();
        }
    }

    /// Otherwise nobody is told of blocks that the folder holds, until they are saved once more.
    @Test
    void announcesTheBlocksOfASaveBesideOneThatCannotBeRead() throws Exception {
        var stored = new ConcurrentLinkedQueue<CacheEvent.Stored>();
        try (var engine = open(KvRole.BOTH, Map.of())) {
            engine.onCacheEvent(event -> {
                if (event instanceof CacheEvent.Stored each && each.tier() == Tier.DISK) {
                    stored.add(each);
                }
            });
            assertThat(HeldDiskEngine.ask(engine, prompt(0, BLOCKS - 1)))
                    .isInstanceOf(Outcome.Finished.class);
            awaitSaves(engine);
            var before = BlockFiles.under(root);
            assertThat(found(engine, 0)).isEqualTo(BLOCKS - 1);
            awaitSaves(engine);
            var last = new ArrayList<>(BlockFiles.under(root));
            last.removeAll(before);
            assertThat(last).hasSize(1);
            disk.unreadable(path -> path.endsWith(last.getFirst().getFileName().toString()));
            assertThat(ask(engine, 0)).as("its load fails").isNotInstanceOf(Outcome.Finished.class);
            awaitSaves(engine);
            var lastHash = stored.stream().toList().getLast().blocks().getLast();
            stored.clear();
            assertThat(HeldDiskEngine.ask(engine, prompt(0, 2 * BLOCKS)))
                    .isInstanceOf(Outcome.Finished.class);
            awaitSaves(engine);
            assertThat(BlockFiles.under(root)).hasSize(2 * BLOCKS);
            assertThat(stored).hasSize(1);
            assertThat(stored.element().parent()).hasValue(lastHash);
            assertThat(stored.element().blocks()).hasSize(BLOCKS);
        }
    }
}
