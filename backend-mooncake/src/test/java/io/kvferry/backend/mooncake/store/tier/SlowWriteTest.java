// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.tier;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.memory.SegmentMemory;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
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
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

/// A disk tier that is closed while a bucket is being written.
class SlowWriteTest {
    private static final StoreIdentity ONE = new StoreIdentity("", "model", "layout");

    @TempDir Path folder;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());

    private DiskTier open() {
        var config =
                TierConfig.of(folder.resolve("t"), 1 << 20)
                        .withStaging(64 << 10)
                        .withIo(
                                DirectIo.OFF,
                                Duration.ZERO,
                                Duration.ofSeconds(60),
                                Duration.ofSeconds(10));
        return DiskTier.open(config, SegmentMemory.PRIVATE, calls);
    }

    private static int write(DiskTier tier, MemorySegment value) {
        return tier.write(
                List.of(new BucketSource(ONE, "k", null, false, value, false, 0)),
                _ -> true,
                new ArrayList<@Nullable DiskObject>());
    }

    @Test
    void keepsTheFolderUntilItHasEnded() throws Exception {
        var writing = new CountDownLatch(1);
        var go = new CountDownLatch(1);
        calls.hook =
                (call, _) -> {
                    if (call.equals("write")) {
                        writing.countDown();
                        awaitGo(go);
                    }
                    return 0;
                };
        try (var arena = Arena.ofShared()) {
            MemorySegment value = arena.allocate(5000);
            var tier = open();
            var write = new FutureTask<>(() -> write(tier, value));
            try {
                Thread.ofPlatform().daemon().start(write);
                assertThat(writing.await(60, TimeUnit.SECONDS)).isTrue();
                tier.close();
                assertThatThrownBy(() -> open().close())
                        .hasMessageContaining("is used by another store");
            } finally {
                go.countDown();
            }
            assertThat(write.get(60, TimeUnit.SECONDS)).isZero();
            calls.log.clear();
            tier.close();
            assertThat(write(tier, value)).isEqualTo(-Errno.ECANCELED);
            assertThat(calls.log).as("the lock may be another file by now").isEmpty();
        }
        try (var tier = open()) {
            assertThat(tier.recover(identity -> identity)).hasSize(1);
        }
    }

    private static void awaitGo(CountDownLatch go) {
        try {
            if (!go.await(120, TimeUnit.SECONDS)) {
                throw new IllegalStateException("held for too long");
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
