// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.IntToLongFunction;

/// What an owner has of staging memory for blocks that come from its disk, and how a load is split
/// so that it suffices. The arithmetic is that of vLLM's Mooncake connector.
///
/// All ranks of this process that load from one owner share its memory: a batch waits until there
/// is enough.
///
/// Threading: any thread.
final class DiskStaging {
    /// Mooncake's default of an owner.
    static final long DEFAULT_BYTES = 1280L << 20;

    /// Part of it that is planned with.
    static final double DEFAULT_RATIO = 0.9;

    /// For benchmarks alone: splits also by count, as vLLM did at first, which makes two batches of
    /// nearly all loads.
    static final String COUNT_SPLIT = "kvferry.benchmark.count_split";

    private static final long PAGE = 4096;
    private static final long PADDING = 2 * PAGE;
    private static final Map<String, Shared> OWNERS = new ConcurrentHashMap<>();

    private final long raw;
    private final long usable;
    private final double ratio;
    private final boolean splitsByCount;
    private final Shared owner;

    /// @param total pages that it had at first
    private record Shared(Semaphore pages, int total) {
        Shared(long bytes) {
            this(new Semaphore(permits(bytes), true), permits(bytes));
        }
    }

    private DiskStaging(long raw, double ratio, Shared owner, boolean splitsByCount) {
        this.raw = raw;
        this.usable = Math.max(1, (long) (raw * ratio));
        this.ratio = ratio;
        this.splitsByCount = splitsByCount;
        this.owner = owner;
    }

    /// @param address of the owner; who names it first says how much it has
    static DiskStaging of(String address, long raw, double ratio) {
        return new DiskStaging(
                raw,
                ratio,
                OWNERS.computeIfAbsent(address, _ -> new Shared(raw)),
                Boolean.getBoolean(COUNT_SPLIT));
    }

    /// The staging of an owner that has no other users in this process.
    static DiskStaging alone(long raw, double ratio) {
        return alone(raw, ratio, Boolean.getBoolean(COUNT_SPLIT));
    }

    /// @param splitsByCount as of [#COUNT_SPLIT]
    static DiskStaging alone(long raw, double ratio, boolean splitsByCount) {
        return new DiskStaging(raw, ratio, new Shared(raw), splitsByCount);
    }

    private static int permits(long bytes) {
        return (int) Math.min(Integer.MAX_VALUE, Math.max(1, bytes / PAGE));
    }

    /// Staging bytes of a key with so many bytes.
    static long bytesFor(long size) {
        return (size + PAGE - 1) / PAGE * PAGE + PADDING;
    }

    /// All that the owner has; a key that needs more cannot be loaded.
    long raw() {
        return raw;
    }

    /// What a batch of several keys needs at most.
    long usable() {
        return usable;
    }

    /// Most keys of one batch of a load of so many.
    int mostKeys(int keys) {
        return splitsByCount ? Math.max(1, (int) (keys * ratio)) : Integer.MAX_VALUE;
    }

    /// The end of the batch that begins at `from`.
    ///
    /// @param most as of [#mostKeys]
    /// @param staging bytes of each key, none more than [#raw]
    int batchEnd(int from, int to, int most, IntToLongFunction staging) {
        long bytes = 0;
        int end = from;
        while (end < to
                && end - from < most
                && (end == from || bytes + staging.applyAsLong(end) <= usable)) {
            bytes += staging.applyAsLong(end);
            end++;
        }
        return end;
    }

    /// Waits until there is memory for a batch.
    ///
    /// @param bytes at most [#raw]
    /// @return false when there is none in time; else [#give] is due
    boolean take(long bytes, long nanos) throws InterruptedException {
        return owner.pages.tryAcquire(pagesOf(bytes), Math.max(0, nanos), TimeUnit.NANOSECONDS);
    }

    void give(long bytes) {
        owner.pages.release(pagesOf(bytes));
    }

    private int pagesOf(long bytes) {
        return Math.min(permits(bytes), owner.total);
    }
}
