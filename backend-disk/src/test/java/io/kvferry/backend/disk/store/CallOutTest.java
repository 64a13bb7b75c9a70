// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static io.kvferry.backend.disk.store.StoreDriver.block;
import static io.kvferry.backend.disk.store.StoreDriver.empty;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FaultInjectingCalls;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.space.KeyDigest;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/// Errors out of calls and callbacks, and calls that hang after the bytes were moved.
class CallOutTest {
    @TempDir Path root;

    private final FaultInjectingCalls calls = new FaultInjectingCalls(FileCalls.ofPlatform());

    private StoreConfig buffered() {
        return StoreDriver.config(root).withMedium(Durability.NONE, DirectIo.OFF);
    }

    @ParameterizedTest
    @ValueSource(longs = {5000, 600_000})
    void closesTheFileOfALoadWhoseMemoryIsGone(long bytes) {
        BlockKey key = BlockKey.of("k");
        try (var store = BlockStore.open(buffered(), StoreListener.NONE, calls)) {
            var driver = new StoreDriver(store);
            driver.save(key, block(1, bytes));
            MemorySegment gone;
            try (Arena arena = Arena.ofShared()) {
                gone = arena.allocate(bytes);
            }
            calls.log.clear();
            assertThat(driver.load(key, List.of(gone)).failedWith(ErrorCode.INTERNAL)).isTrue();
            assertThat(Collections.frequency(calls.log, "openRead")).isEqualTo(1);
            assertThat(Collections.frequency(calls.log, "close")).isEqualTo(1);
            assertThat(driver.load(key, empty(bytes))).isEqualTo(BlockResult.Done.LOADED);
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            if (!latch.await(40, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the test forgot to open the latch");
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
