// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static io.kvferry.backend.disk.store.StoreDriver.block;
import static io.kvferry.backend.disk.store.StoreDriver.empty;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.space.KeyDigest;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/// The threads of a store are never replaced, so they must survive any exception.
class ThreadsGoOnTest {
    @TempDir Path root;

    /// Cannot even be described, as where there is no memory for the description.
    private static final class Indescribable extends RuntimeException {
        private static final long serialVersionUID = 1L;

        @Override
        public String getMessage() {
            throw new OutOfMemoryError("scripted");
        }
    }

    private BlockStore open(StoreListener listener) {
        var base = StoreDriver.config(root).with(new StoreConfig.Pools(1, 1, 8));
        var times = base.times();
        var config =
                base.with(
                        new StoreConfig.Times(
                                times.io(),
                                times.verifyAfter(),
                                times.tempMaxAge(),
                                Duration.ofMillis(50), // from scan to scan
                                times.recency()));
        return BlockStore.open(config, listener, FileCalls.ofPlatform());
    }

    @Test
    void afterALookupThrewWhatCannotBeDescribed() throws Exception {
        try (var store = open(StoreListener.NONE)) {
            var driver = new StoreDriver(store);
            BlockKey key = BlockKey.of("k");
            driver.save(key, block(1, 5000));
            var done = new CompletableFuture<BlockResult>();
            store.locate(
                    _ -> {
                        throw new Indescribable();
                    },
                    Deadline.in(StoreDriver.PATIENCE),
                    (_, result) -> done.complete(result),
                    0);
            assertThat(done.get(60, TimeUnit.SECONDS).failedWith(ErrorCode.NO_MEMORY)).isTrue();
            assertThat(driver.load(key, empty(5000))).isEqualTo(BlockResult.Done.LOADED);
        }
    }

    @Test
    void afterACallbackThrewWhatCannotBeDescribed() {
        try (var store = open(StoreListener.NONE)) {
            var driver = new StoreDriver(store);
            BlockKey key = BlockKey.of("k");
            driver.save(key, block(1, 5000));
            assertThat(
                            store.load(
                                    key,
                                    empty(5000),
                                    Deadline.in(StoreDriver.PATIENCE),
                                    (_, _) -> {
                                        throw new Indescribable();
                                    },
                                    0))
                    .isTrue();
            assertThat(driver.load(key, empty(5000))).isEqualTo(BlockResult.Done.LOADED);
        }
    }

    @Test
    void afterAListenerInterruptedTheJanitor() throws Exception {
        var removed = new CountDownLatch(2);
        var listener =
                new StoreListener() {
                    @Override
                    public void removed(KeyDigest digest) {
                        removed.countDown();
                        Thread.currentThread().interrupt();
                    }
                };
        try (var store = open(listener)) {
            var driver = new StoreDriver(store);
            for (int i = 0; i < 2; i++) {
                BlockKey key = BlockKey.of("k" + i);
                driver.save(key, block(1, 5000));
                long left = removed.getCount();
                Files.delete(StoreDriver.file(store.config(), key));
                var limit = Deadline.in(Duration.ofSeconds(60));
                while (removed.getCount() == left) {
                    assertThat(limit.passed()).as("block %d is found to be gone", i).isFalse();
                    Thread.sleep(Duration.ofMillis(20));
                }
            }
            assertThat(driver.locate(List.of(BlockKey.of("k0")))).isZero();
        }
    }
}
