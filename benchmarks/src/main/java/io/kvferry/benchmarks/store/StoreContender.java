// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.benchmarks.ProcessCost;
import io.kvferry.benchmarks.mooncake.Run;
import io.kvferry.toolkit.memory.HostPages;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.function.LongSupplier;

/// A store of ours, in this process or in another one, with memory as an engine has it: registered,
/// and of this process only.
final class StoreContender implements Contender {
    private static final int PATTERNS = 251;

    private final String name;
    private final Store store;
    private final LongSupplier otherSide;
    private final Arena arena = Arena.ofShared();
    private final MemorySegment source;
    private final MemorySegment target;
    private final StoreBatch batch = new StoreBatch();
    private int calls;

    /// @param largest object
    /// @param otherSide processor time of the process that has the memory, so far; 0 without one
    StoreContender(String name, Store store, int largest, LongSupplier otherSide) {
        this.name = name;
        this.store = store;
        this.otherSide = otherSide;
        source = HostPages.allocate((long) BATCH * largest, arena);
        target = HostPages.allocate((long) BATCH * largest, arena);
        for (long at = 0; at < source.byteSize(); at += 1 << 12) {
            source.asSlice(at, 1 << 12).fill((byte) (1 + at % PATTERNS));
        }
        store.register(source);
        store.register(target);
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public Run put(int size, int count) {
        var results = new int[BATCH];
        long nanos = 0;
        long cpu = -otherSide.getAsLong();
        for (int i = 0; i < count; i++) {
            store.removeAll(true);
            calls++;
            fill(source, size);
            long own = ProcessCost.cpuSoFar();
            long begin = System.nanoTime();
            store.put(batch, PutOptions.DEFAULT, results);
            nanos += System.nanoTime() - begin;
            cpu += ProcessCost.cpuSoFar() - own;
            if (Arrays.stream(results).anyMatch(result -> result != 0)) {
                throw new IllegalStateException(
                        name + ": put: " + Arrays.toString(results) + " " + store.noRoom());
            }
        }
        return new Run((double) size * BATCH * count, nanos, cpu + otherSide.getAsLong());
    }

    @Override
    public Run get(int size, int count) {
        var results = new long[BATCH];
        long nanos = 0;
        long cpu = -otherSide.getAsLong();
        fill(target, size);
        for (int i = 0; i < count; i++) {
            long own = ProcessCost.cpuSoFar();
            long begin = System.nanoTime();
            store.get(batch, results);
            nanos += System.nanoTime() - begin;
            cpu += ProcessCost.cpuSoFar() - own;
            if (Arrays.stream(results).anyMatch(result -> result != size)) {
                throw new IllegalStateException(name + ": get: " + Arrays.toString(results));
            }
        }
        cpu += otherSide.getAsLong();
        long bytes = (long) size * BATCH;
        if (MemorySegment.mismatch(source, 0, bytes, target, 0, bytes) >= 0) {
            throw new IllegalStateException(name + ": wrong bytes came back");
        }
        target.asSlice(0, bytes).fill((byte) 0);
        return new Run((double) bytes * count, nanos, cpu);
    }

    private void fill(MemorySegment memory, int size) {
        batch.clear();
        for (int i = 0; i < BATCH; i++) {
            batch.add("bandwidth-" + calls + "-" + i).buffer(memory, (long) i * size, size);
        }
    }

    @Override
    public void close() {
        store.unregister(source);
        store.unregister(target);
        store.close();
        arena.close();
    }
}
