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
            var done = new CompletableFuture<BlockResult>();
            store.save(
                    BlockKey.of("k"),
                    List.of(Arena.ofAuto().allocate(5000)),
                    Deadline.in(Duration.ofSeconds(20)),
                    (_, result) -> done.complete(result),
                    0);
            assertThat(done.get(30, TimeUnit.SECONDS)).isEqualTo(BlockResult.Done.STORED);
            var both = scheduler.drain().merge(worker.drain());
            assertThat(both.gauges().getOrDefault("disk_blocks", 0L)).isEqualTo(1);
            assertThat(both.gauges().getOrDefault("disk_used_bytes", 0L)).isEqualTo(4096 + 8192);
            assertThat(both.gauges().getOrDefault("disk_quota_bytes", 0L)).isEqualTo(QUOTA);
            assertThat(both.counters().getOrDefault("disk_save_blocks", 0L)).isPositive();
            assertThat(scheduler.drain()).isEqualTo(Stats.EMPTY);
        }
    }
}
