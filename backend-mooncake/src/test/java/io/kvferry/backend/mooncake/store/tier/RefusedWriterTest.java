// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;

import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/// A disk tier for whose writes no thread can be had.
class RefusedWriterTest {
    private static final StoreIdentity ONE = new StoreIdentity("", "model", "layout");

    @TempDir Path folder;

    private final Arena arena = Arena.ofShared();
    private final AtomicInteger refusals = new AtomicInteger();

    private DiskTier open() {
        var config =
                TierConfig.of(folder.resolve("t"), 1 << 20)
                        .withStaging(64 << 10)
                        .withIo(
                                DirectIo.OFF,
                                Duration.ZERO,
                                Duration.ofSeconds(60),
                                Duration.ofSeconds(10));
        return DiskTier.open(
                config,
                SegmentMemory.PRIVATE,
                FileCalls.ofPlatform(),
                run -> {
                    if (refusals.getAndDecrement() > 0) {
                        throw new OutOfMemoryError("no thread, says the test");
                    }
                    return Thread.ofPlatform().daemon().unstarted(run);
                });
    }

    private static int write(DiskTier tier, MemorySegment value) {
        var written = new ArrayList<@Nullable DiskObject>();
        int rc =
                tier.write(
                        List.of(new BucketSource(ONE, "k", null, false, value, false, 0)),
                        _ -> true,
                        written);
        assertThat(written).hasSize(rc == 0 ? 1 : 0);
        return rc;
    }

    @Test
    void failsThatBucketAndWritesTheNextOne() {
        try (arena;
                var tier = open()) {
            var value = arena.allocate(5000);
            refusals.set(2);
            assertThat(write(tier, value)).isEqualTo(-Errno.ENOMEM);
            assertThat(write(tier, value)).isEqualTo(-Errno.ENOMEM);
            assertThat(tier.bucketCount()).isZero();
            assertThat(write(tier, value)).isZero();
            assertThat(tier.bucketCount()).isEqualTo(1);
            refusals.set(Integer.MAX_VALUE);
            assertThat(write(tier, value)).as("by the thread that there is").isZero();
        }
    }

    @Test
    void closesAllTheSame() {
        refusals.set(Integer.MAX_VALUE);
        try (arena;
                var tier = open()) {
            assertThat(write(tier, arena.allocate(5000))).isEqualTo(-Errno.ENOMEM);
        }
        refusals.set(0);
        try (var tier = open()) {
            assertThat(tier.recover(identity -> identity)).isEmpty();
        }
    }
}
