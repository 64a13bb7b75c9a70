// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.embedded;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.embedded.objects.SegmentTable;
import io.kvferry.backend.mooncake.store.embedded.objects.StoreConfig;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.backend.mooncake.store.tier.DiskTier;
import io.kvferry.backend.mooncake.store.tier.TierConfig;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/// A store over a disk tier that is opened while the system refuses threads.
class RefusedThreadTest {
    @TempDir Path folder;

    private DiskTier tier() {
        var config =
                TierConfig.of(folder.resolve("tier"), 1 << 20)
                        .withIo(
                                DirectIo.OFF,
                                Duration.ZERO,
                                Duration.ofSeconds(60),
                                Duration.ofSeconds(10));
        return DiskTier.open(config, SegmentMemory.PRIVATE, FileCalls.ofPlatform());
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1})
    void leavesNoThreadAndNoLockedFolderBehind(int granted) throws InterruptedException {
        List<Thread> started = new ArrayList<>();
        assertThatThrownBy(() ->
                        EmbeddedStore.open(
                                StoreConfig.DEFAULT,
                                new SegmentTable(),
                                tier(),
                                run -> {
                                    if (started.size() == granted) {
                                        throw new OutOfMemoryError("no thread, says the test");
                                    }
                                    Thread thread = Thread.ofPlatform().daemon().unstarted(run);
                                    started.add(thread);
                                    return thread;
                                }))
                .isInstanceOf(OutOfMemoryError.class);
        assertThat(started).hasSize(granted);
        for (Thread thread : started) {
            assertThat(thread.join(Duration.ofSeconds(60))).as("thread ended").isTrue();
        }
        try (var store = EmbeddedStore.open(StoreConfig.DEFAULT, tier())) {
            assertThat(store.keyCount()).isZero();
        }
    }
}
