// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.backend.disk.store.StoreListener;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.observe.Stats;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

class StoreFiguresTest {
    private static final long QUOTA = 1 << 20;

    @TempDir Path root;

    @Test
    void reportsWhatTheFolderHoldsOncePerEngine() throws Exception {
        var config = StoreConfig.of(root, "model").withQuota(QUOTA, 1, 1).withReserveBytes(0);
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            var scheduler = new StoreFigures(store, true);
            var worker = new StoreFigures(store, false);
            save(store, 0, 1);
            var both = scheduler.drain().merge(worker.drain());
            assertThat(both.gauges().getOrDefault("disk_blocks", 0L)).isEqualTo(1);
            assertThat(both.gauges().getOrDefault("disk_used_bytes", 0L)).isEqualTo(4096 + 8192);
            assertThat(both.gauges().getOrDefault("disk_quota_bytes", 0L)).isEqualTo(QUOTA);
            assertThat(both.counters().getOrDefault("disk_save_blocks", 0L)).isPositive();
            assertThat(scheduler.drain()).isEqualTo(Stats.EMPTY);
        }
    }

    /// Each count of the folder is reported once: by one store, and by another when that is closed.
    @Test
    void goesOnCountingEvictionsWhenTheStoreThatReportedThemIsClosed() throws Exception {
        var config = StoreConfig.of(root, "model").withQuota(3 * 12_288, 1, 1).withReserveBytes(0);
        try (var stays = BlockStore.open(config, StoreListener.NONE)) {
            long before;
            var figures = new StoreFigures(stays, true);
            try (var first = BlockStore.open(config, StoreListener.NONE)) {
                var firstFigures = new StoreFigures(first, true);
                firstFigures.drain();
                save(first, 0, 10);
                before = evicted(firstFigures) + evicted(figures);
            }
            assertThat(before).isEqualTo(7);
            assertThat(evicted(figures)).as("counted already").isZero();
            save(stays, 10, 14);
            assertThat(evicted(figures)).isEqualTo(4);
        }
    }

    private static long evicted(StoreFigures figures) {
        return figures.drain().counters().getOrDefault("disk_evicted_blocks", 0L);
    }

    private static void save(BlockStore store, int from, int to) throws Exception {
        for (int i = from; i < to; i++) {
            var done = new CompletableFuture<BlockResult>();
            store.save(
                    BlockKey.of("block " + i),
                    List.of(Arena.ofAuto().allocate(5000)),
                    Deadline.in(Duration.ofSeconds(20)),
                    (_, result) -> done.complete(result),
                    0);
            assertThat(done.get(30, TimeUnit.SECONDS)).isEqualTo(BlockResult.Done.STORED);
        }
    }
}
