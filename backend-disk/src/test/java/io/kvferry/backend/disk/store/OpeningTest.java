// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static io.kvferry.backend.disk.store.StoreDriver.block;
import static io.kvferry.backend.disk.store.StoreDriver.empty;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.IoPool;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// Stores that cannot be opened, and threads that find no memory when they start.
class OpeningTest {
    @TempDir Path root;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());

    /// An engine that cannot open its store tries again and again.
    @Test
    void leavesNothingOpenWhenItCannotBeOpened() throws Exception {
        var config = StoreDriver.config(root);
        Path rubbish;
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            rubbish = store.core().folder().subfolder(7);
        }
        var before = threads();
        Files.delete(rubbish);
        Files.createFile(rubbish); // where a folder should be
        calls.log.clear();
        assertThatThrownBy(() -> BlockStore.open(config, StoreListener.NONE, calls))
                .isInstanceOf(KvFerryException.class);
        Files.delete(rubbish);
        calls.hook =
                (call, _) -> {
                    if (call.equals("createNew")) {
                        throw new LinkageError("scripted");
                    }
                    return 0;
                };
        assertThatThrownBy(() -> BlockStore.open(config, StoreListener.NONE, calls))
                .isInstanceOf(LinkageError.class);
        calls.hook = FaultInjectingCalls.PASS;
        int folders = Collections.frequency(calls.log, "openFolder") - 1; // one is none
        assertThat(Collections.frequency(calls.log, "openLockFile")).isEqualTo(4);
        assertThat(Collections.frequency(calls.log, "close")).isEqualTo(4 + folders);
        assertThat(threads()).isSubsetOf(before);
        try (var store = BlockStore.open(config, StoreListener.NONE, calls)) {
            assertThat(new StoreDriver(store).save(BlockKey.of("k"), block(1, 5000)))
                    .isEqualTo(BlockResult.Done.STORED);
        }
    }

    /// Where there is no memory for what comes after its locks, others would see a user for ever.
    @Test
    void givesItsLocksBackWhenTheNextPartCannotBeMade() {
        var config = StoreDriver.config(root);
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            assertThat(store.stats().blocks()).isZero();
        }
        for (int i = 0; i < 3; i++) {
            calls.log.clear();
            calls.hook =
                    (call, _) -> {
                        if (call.equals("openLockFile")
                                && Collections.frequency(calls.log, "openLockFile") == 2) {
                            throw new OutOfMemoryError("scripted");
                        }
                        return 0;
                    };
            assertThatThrownBy(() -> BlockStore.open(config, StoreListener.NONE, calls))
                    .isInstanceOf(OutOfMemoryError.class);
            int folders = Collections.frequency(calls.log, "openFolder");
            assertThat(Collections.frequency(calls.log, "close")).isEqualTo(1 + folders);
        }
    }

    /// So that loads do not time out, and closing the store does not wait for them.
    @ParameterizedTest
    @ValueSource(classes = {OutOfMemoryError.class, NoClassDefFoundError.class})
    void keepsAThreadThatFindsNoMemoryWhenItStarts(Class<? extends Error> thrown) throws Exception {
        BlockKey key = BlockKey.of("k");
        try (var store = BlockStore.open(StoreDriver.config(root), StoreListener.NONE, calls)) {
            new StoreDriver(store).save(key, block(1, 5000));
            var counters = new StoreCounters();
            var pool = new IoPool<>(4, 1, () -> new BlockTask(counters));
            var refusals = new AtomicInteger(3); // at the start, and of two loads
            var thread =
                    Thread.ofPlatform()
                            .daemon()
                            .start(
                                    new IoWorker(
                                            store.core(),
                                            counters,
                                            pool,
                                            IoPool.Role.READER,
                                            DirectMode.NEVER,
                                            bytes -> {
                                                if (refusals.getAndDecrement() > 0) {
                                                    throw make(thrown);
                                                }
                                                return new AlignedStaging(bytes);
                                            }));
            for (int i = 0; i < 3; i++) {
                var done = new CompletableFuture<BlockResult>();
                var loaded = empty(5000);
                var task = Objects.requireNonNull(pool.claim(true));
                task.prepare(
                        BlockTask.Kind.LOAD,
                        key,
                        loaded,
                        5000,
                        System.nanoTime() + StoreDriver.PATIENCE.toNanos(),
                        (_, result) -> done.complete(result),
                        0);
                pool.submit(task, true);
                var result = done.get(40, TimeUnit.SECONDS);
                if (i < 2) {
                    assertThat(result)
                            .isInstanceOfSatisfying(
                                    BlockResult.Failed.class,
                                    failed ->
                                            assertThat(failed.failure().message())
                                                    .contains("scripted"));
                } else {
                    assertThat(result).isEqualTo(BlockResult.Done.LOADED);
                    assertThat(StoreDriver.same(block(1, 5000), loaded)).isTrue();
                }
            }
            pool.close();
            assertThat(thread.join(Duration.ofSeconds(40))).isTrue();
        }
    }

    private static Error make(Class<? extends Error> thrown) {
        return thrown == OutOfMemoryError.class
                ? new OutOfMemoryError("scripted")
                : new NoClassDefFoundError("scripted");
    }

    private static List<Thread> threads() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().startsWith("disk-"))
                .toList();
    }
}
