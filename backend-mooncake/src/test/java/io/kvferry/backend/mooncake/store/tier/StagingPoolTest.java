// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.FileCalls;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;

/// Memory that objects from disk go through, and what becomes of it.
class StagingPoolTest {
    private static final long MEGABYTE = 1 << 20;

    /// Memory that is never touched.
    @SuppressWarnings("restricted")
    private static SegmentMemory counted(AtomicLong held) {
        return bytes -> {
            held.addAndGet(bytes);
            return new SegmentMemory.Taken(
                    MemorySegment.ofAddress(1 << 20).reinterpret(bytes),
                    () -> held.addAndGet(-bytes));
        };
    }

    /// Each piece is longer than all slabs that were there before it.
    @Test
    void slabsThatAreTooShortGiveWayToALongerOne() throws InterruptedException {
        var held = new AtomicLong();
        long budget = 400 * MEGABYTE;
        try (var pool = new StagingPool(counted(held), budget)) {
            for (long size = 65; size < 400; size += 15) {
                var buffer = pool.take(size * MEGABYTE - (1 << 16), 0);
                assertThat(buffer).as("%d MiB with nothing lent", size).isNotNull();
                if (buffer != null) {
                    buffer.close();
                }
                assertThat(held.get()).isLessThanOrEqualTo(2 * budget + 64 * MEGABYTE);
            }
        }
        assertThat(held.get()).isZero();
    }

    @Test
    void aReadForWhichNoThreadCanBeHadGivesItsMemoryBack(@TempDir Path path)
            throws InterruptedException {
        var config =
                TierConfig.of(path, MEGABYTE)
                        .withIo(
                                DirectIo.OFF,
                                Duration.ZERO,
                                Duration.ofSeconds(60),
                                Duration.ofSeconds(10));
        var object =
                new DiskObject(
                        new Bucket(1),
                        0,
                        new StoreIdentity("", "model", "layout"),
                        "k",
                        null,
                        false,
                        0,
                        100,
                        0);
        try (var folder = BucketFolder.open(FileCalls.ofPlatform(), config);
                var pool = new StagingPool(SegmentMemory.PRIVATE, 64 << 10);
                var reads =
                        new DiskReads(
                                folder,
                                Duration.ofSeconds(60),
                                1,
                                new AtomicLong(),
                                _ -> {
                                    throw new OutOfMemoryError("unable to create native thread");
                                })) {
            var buffer = pool.take(100, 0);
            assertThat(buffer).isNotNull();
            if (buffer != null) {
                try (StagedRead read = reads.start(object, buffer)) {
                    assertThat(read.await()).isNegative();
                }
            }
            assertThat(pool.lentBytes()).isZero();
            assertThat(reads.run(() -> {})).isFalse();
        }
    }
}
