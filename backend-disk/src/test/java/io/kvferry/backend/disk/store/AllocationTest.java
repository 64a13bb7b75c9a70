// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.management.ThreadMXBean;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.FleetKey;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.DirectProbe;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.disk.FileCalls;
import io.kvferry.toolkit.disk.PathText;
import io.kvferry.toolkit.secret.FleetSecret;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/// Saves, evictions and loads make no garbage once everything has been used once.
@Tag("optimized")
class AllocationTest {
    private static final int BLOCKS = 32;

    /// Limit for a store without a fleet key; one object of 16 bytes per save or per load, half of
    /// the calls, would exceed it. In C1-compiled code every call into libc allocates 40 bytes: the
    /// JDK's `checkCaptureSegment` slices the memory for errno. C2 eliminates the allocation.
    private static final long PLAIN = 7;

    /// Of a store with a fleet's key: `Mac.doFinal` answers a new array of 32 bytes, also where it
    /// is to fill one that is there.
    private static final long SEALED = 48 + PLAIN;

    private static final long BYTES = 16 << 10;

    /// Of each of two segments that are read in three pieces together.
    private static final long PIECES = 300 << 10;

    private static final int LOADS = 50;

    @TempDir Path root;

    /// Of a store with room for half of the blocks, kept free ahead of need, and of one with room
    /// for two, in which each save writes over the file of another block.
    @ParameterizedTest
    @CsvSource({
        "16, 0.8, 0.9, OFF, false",
        "2, 1, 1, OFF, false",
        "16, 0.8, 0.9, ON, false",
        "2, 1, 1, AUTO, false",
        "2, 1, 1, OFF, true",
        "2, 1, 1, ON, true"
    })
    void allocatesNothingPerBlockInSteadyState(
            int room, double low, double high, DirectIo direct, boolean sealed) throws Exception {
        Assumptions.assumeTrue(
                FileCalls.ofPlatform().gatherLimit() > 0,
                "needs libc of 64-bit Linux: FileChannel allocates per file");
        Assumptions.assumeTrue(
                direct != DirectIo.ON || takesDirectIo(),
                "the folder of temporary files takes no O_DIRECT");
        var config =
                StoreDriver.config(root)
                        .withMedium(Durability.NONE, direct)
                        .withKey(sealed ? key() : FleetKey.NONE)
                        .withQuota(room * (BYTES + 4096), low, high)
                        .with(new StoreConfig.Pools(1, 1, 64));
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            var keys = new ArrayList<BlockKey>();
            for (int i = 0; i < BLOCKS; i++) {
                keys.add(BlockKey.of("k" + i));
            }
            List<MemorySegment> segments = StoreDriver.block(1, BYTES / 4, BYTES / 4, BYTES / 2);
            var finished = new AtomicLong();
            BlockCallback callback = (_, _) -> finished.incrementAndGet();
            Deadline deadline = Deadline.in(StoreDriver.PATIENCE.multipliedBy(3));
            double least =
                    least(
                            2 * BLOCKS,
                            sealed ? SEALED : PLAIN,
                            () -> round(store, keys, segments, finished, callback, deadline));
            assertThat(least)
                    .as("bytes per save or load")
                    .isLessThanOrEqualTo(sealed ? SEALED : PLAIN);
        }
    }

    private boolean takesDirectIo() {
        try (Arena arena = Arena.ofConfined()) {
            var probe = PathText.of(arena, root.resolve("probe"));
            return DirectProbe.probe(FileCalls.ofPlatform(), probe) == 0;
        }
    }

    private FleetKey key() throws IOException {
        var file = Files.writeString(root.resolve("secret"), "the secret of one fleet");
        return FleetKey.of(FleetSecret.read(file));
    }

    @Test
    void allocatesNothingPerLoadInPieces() {
        Assumptions.assumeTrue(
                FileCalls.ofPlatform().gatherLimit() > 0,
                "needs libc of 64-bit Linux: FileChannel allocates per file");
        var config =
                StoreDriver.config(root)
                        .withMedium(Durability.NONE, DirectIo.OFF)
                        .with(new StoreConfig.Pools(1, 1, 64));
        try (var store = BlockStore.open(config, StoreListener.NONE)) {
            var key = BlockKey.of("k");
            var segments = StoreDriver.block(1, PIECES, PIECES);
            var finished = new AtomicLong();
            BlockCallback callback = (_, _) -> finished.incrementAndGet();
            Deadline deadline = Deadline.in(StoreDriver.PATIENCE.multipliedBy(3));
            mustBeAccepted(store.save(key, segments, deadline, callback, 0));
            await(finished, 1);
            double least =
                    least(
                            LOADS,
                            PLAIN,
                            () -> {
                                for (int i = 0; i < LOADS; i++) {
                                    long done = finished.get();
                                    mustBeAccepted(
                                            store.load(key, segments, deadline, callback, i));
                                    await(finished, done + 1);
                                }
                            });
            assertThat(store.stats().loads()).as("loaded, not missed").isGreaterThan(LOADS);
            assertThat(least).as("bytes per load").isLessThanOrEqualTo(PLAIN);
        }
    }

    /// Heap bytes per call: the minimum of many samples. Until the hot methods are compiled, a call
    /// into libc allocates; how long that takes depends on the load. The samples themselves do not
    /// allocate, and are so short that periodic work of other threads is not in every one.
    private static double least(int calls, long limit, Runnable sample) {
        double least = Double.MAX_VALUE;
        var threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        var patience = Deadline.in(StoreDriver.PATIENCE.multipliedBy(2));
        while (least > limit && !patience.passed()) {
            long before = threads.getTotalThreadAllocatedBytes();
            sample.run();
            least =
                    Math.min(
                            least,
                            (double) (threads.getTotalThreadAllocatedBytes() - before) / calls);
        }
        return least;
    }

    /// A small store writes as much as it holds in no time; looking at its folder each time, to see
    /// what others did, made hundreds of kilobytes of garbage twice a second.
    @Test
    void doesNotScanForWhatItWroteItselfWhileNobodyElseUsesTheFolder() {
        Assumptions.assumeTrue(
                FileCalls.ofPlatform().gatherLimit() > 0, "needs flock of 64-bit Linux");
        var config = StoreDriver.config(root).withQuota(2 * (BYTES + 4096), 1, 1);
        try (var store = BlockStore.open(config, StoreListener.NONE, FileCalls.ofPlatform())) {
            var driver = new StoreDriver(store);
            var segments = StoreDriver.block(1, BYTES);
            var threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
            long janitor = store.core().janitorThread().threadId();
            driver.save(BlockKey.of("first"), segments);
            long before = threads.getThreadAllocatedBytes(janitor);
            // Longer than the janitor waits between two scans that were asked for.
            long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(1800);
            for (int i = 0; System.nanoTime() < end; i++) {
                driver.save(BlockKey.of("k" + i), segments);
            }
            assertThat(threads.getThreadAllocatedBytes(janitor) - before).isLessThan(16_384);
        }
    }

    /// Loads what is there and saves the rest; some blocks are always evicted.
    private static void round(
            BlockStore store,
            List<BlockKey> keys,
            List<MemorySegment> segments,
            AtomicLong finished,
            BlockCallback callback,
            Deadline deadline) {
        long done = finished.get();
        for (int i = 0; i < keys.size(); i++) {
            BlockKey key = keys.get(i);
            mustBeAccepted(store.save(key, segments, deadline, callback, i));
            await(finished, ++done);
            mustBeAccepted(store.load(key, segments, deadline, callback, i));
            await(finished, ++done);
        }
    }

    /// Unlike a lock or a semaphore, parking allocates no queue node.
    private static void await(AtomicLong finished, long count) {
        while (finished.get() < count) {
            LockSupport.parkNanos(1_000);
        }
    }

    private static void mustBeAccepted(boolean accepted) {
        if (!accepted) {
            throw new AssertionError("the queue is full");
        }
    }
}
