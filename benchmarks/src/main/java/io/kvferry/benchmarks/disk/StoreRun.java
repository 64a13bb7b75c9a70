// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.block.BlockResult;
import io.kvferry.backend.disk.block.FleetKey;
import io.kvferry.backend.disk.store.BlockCallback;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.backend.disk.store.StoreListener;
import io.kvferry.benchmarks.Allocation;
import io.kvferry.spi.Deadline;
import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.DirectIo;
import io.kvferry.toolkit.disk.Durability;
import io.kvferry.toolkit.memory.HostPages;
import io.kvferry.toolkit.secret.FleetSecret;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/// An open store and blocks to move, gathered from and scattered to as many regions as they have
/// ranges, in which every block of a turn has a place of its own.
final class StoreRun implements AutoCloseable, BlockCallback {
    /// Files in flight for each thread that reads. More are submitted when half of them are done,
    /// so that no thread runs out of work before.
    private static final int WINDOW_OF_THREAD = 4;

    /// Files that one lookup asks for.
    private static final int PROMPT = 64;

    private static final long LOOKUP_NANOS = 300_000_000;

    private static final long HEADER_BYTES = AlignedStaging.ALIGNMENT;

    private final Arena arena = Arena.ofShared();
    private final Path folder;
    private final BlockStore store;
    private final List<BlockKey> keys = new ArrayList<>();
    private final List<List<MemorySegment>> files = new ArrayList<>();
    private final Deadline deadline = Deadline.in(Duration.ofHours(1));
    private final AtomicLong done = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();

    private final Thread caller = Thread.currentThread();
    private volatile long awaited = Long.MAX_VALUE;
    private final int blocks;
    private final int run;
    private final int window;

    /// @param full whether the store has room for these blocks and no more
    StoreRun(
            Path folder,
            Shape shape,
            int blocks,
            DiskRounds.Threads threads,
            boolean direct,
            boolean full) {
        this.folder = folder;
        this.blocks = blocks;
        this.run = shape.run();
        this.window = WINDOW_OF_THREAD * threads.readers();
        long fileBytes = HEADER_BYTES + AlignedStaging.align(shape.fileBytes());
        store =
                BlockStore.open(
                        StoreConfig.of(folder, "benchmark")
                                .withQuota(full ? blocks / run * fileBytes : 1L << 50, 1, 1)
                                .withMedium(Durability.NONE, direct ? DirectIo.ON : DirectIo.OFF)
                                .withKey(key())
                                .with(threads.pools(2 * window))
                                .with(
                                        new StoreConfig.Times(
                                                Duration.ofMinutes(2),
                                                Duration.ZERO, // as the connector: each is looked
                                                // at
                                                Duration.ofHours(1),
                                                Duration.ofHours(1),
                                                Duration.ofMinutes(1))),
                        StoreListener.NONE);
        int ranges = shape.ranges();
        long part = shape.block() / ranges;
        long region = blocks * part;
        var memory = HostPages.allocate(ranges * region, arena); // as the engine does
        int together = shape.scattered() ? 1 : run; // as DiskConnector, which makes one segment
        for (int file = 0; file < blocks / run; file++) {
            var segments = new ArrayList<MemorySegment>();
            for (int range = 0; range < ranges; range++) {
                for (int block = file * run; block < (file + 1) * run; block += together) {
                    long at = range * region + shape.place(block, blocks) * part;
                    segments.add(memory.asSlice(at, together * part));
                }
            }
            files.add(segments);
        }
        touch();
    }

    /// Writes to all memory, as the references do just before their measurement and an engine
    /// before it saves: memory unused for seconds must first be fetched into CPU caches and from
    /// the VM's host.
    void touch() {
        for (int file = 0; file < files.size(); file++) {
            var segments = files.get(file);
            for (int i = 0; i < segments.size(); i++) {
                segments.get(i).fill((byte) (file + i));
            }
        }
    }

    /// Of the fleet's secret if there is one, with which blocks are sealed.
    static FleetKey key() {
        return FleetSecret.configured().map(FleetKey::of).orElse(FleetKey.NONE);
    }

    /// The folders in which the store makes its files.
    List<Path> temporaries() throws IOException {
        try (var namespaces = Files.list(folder);
                var folders = Files.list(namespaces.findFirst().orElseThrow().resolve("tmp"))) {
            return folders.sorted().toList();
        }
    }

    /// Makes the keys of the next run.
    void nameBlocks(String prefix) {
        keys.clear();
        for (int i = 0; i < blocks / run; i++) {
            keys.add(BlockKey.of(prefix + "-" + i));
        }
    }

    /// @param rate payload bytes per second; of lookups 0
    /// @param allocated Java heap bytes per block, all threads of the JVM together
    /// @param cpuMicros processor time per block, all threads of the JVM together
    record Result(double rate, double allocated, double cpuMicros) {}

    Result run(boolean save) {
        long cpuBefore = cpuNanos();
        long allocatedBefore = Allocation.ofAllThreads(); // the clock of the processor allocates
        long start = System.nanoTime();
        long base = done.get();
        for (int i = 0; i < keys.size(); i++) {
            if (done.get() <= base + i - window) { // full: one wake-up for many blocks
                await(base + i - window / 2);
            }
            boolean accepted =
                    save
                            ? store.save(keys.get(i), files.get(i), deadline, this, i)
                            : store.load(keys.get(i), files.get(i), deadline, this, i);
            if (!accepted) {
                throw new IllegalStateException("the store refused a block within its queue");
            }
        }
        await(base + keys.size());
        double seconds = (System.nanoTime() - start) / 1e9;
        double allocated = (double) (Allocation.ofAllThreads() - allocatedBefore) / blocks;
        double cpu = (cpuNanos() - cpuBefore) / 1e3 / blocks;
        if (failed.get() > 0) {
            throw new IllegalStateException(failed + " blocks failed: " + store.stats());
        }
        long bytes =
                files.getFirst().stream().mapToLong(MemorySegment::byteSize).sum() * keys.size();
        return new Result(bytes / seconds, allocated, cpu);
    }

    /// Looks for all blocks, in prompts of [#PROMPT] files, again and again: one time is too short
    /// for the clock of the processor time.
    Result lookUp() {
        long cpuBefore = cpuNanos();
        long allocatedBefore = Allocation.ofAllThreads();
        long start = System.nanoTime();
        long looked = 0;
        do {
            for (int i = 0; i < keys.size(); i += PROMPT) {
                var prompt = keys.subList(i, Math.min(keys.size(), i + PROMPT));
                long base = done.get();
                if (!store.locate(prompt, deadline, this, prompt.size())) {
                    throw new IllegalStateException("the store refused a lookup");
                }
                await(base + 1);
            }
            looked += blocks;
        } while (System.nanoTime() - start < LOOKUP_NANOS);
        if (failed.get() > 0) {
            throw new IllegalStateException(failed + " lookups failed: " + store.stats());
        }
        long allocated = Allocation.ofAllThreads() - allocatedBefore;
        return new Result(0, (double) allocated / looked, (cpuNanos() - cpuBefore) / 1e3 / looked);
    }

    private static long cpuNanos() {
        return ManagementFactory.getOperatingSystemMXBean()
                        instanceof com.sun.management.OperatingSystemMXBean system
                ? system.getProcessCpuTime()
                : 0;
    }

    /// Parks until so many are done; allocates nothing, unlike waiting on a lock.
    private void await(long count) {
        awaited = count;
        while (done.get() < count) {
            LockSupport.park(this);
        }
        awaited = Long.MAX_VALUE;
    }

    @Override
    public void completed(long tag, BlockResult result) {
        boolean well =
                switch (result) {
                    case BlockResult.Located(int found) -> found == tag;
                    case BlockResult.Done end -> end != BlockResult.Done.PRESENT;
                    case BlockResult.Failed _ -> false;
                };
        if (!well) {
            failed.incrementAndGet();
        }
        if (done.incrementAndGet() >= awaited) {
            LockSupport.unpark(caller);
        }
    }

    @Override
    public void close() {
        store.close();
        arena.close();
    }
}
