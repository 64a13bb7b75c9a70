// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.backend.disk.store.StoreStats;
import io.kvferry.spi.observe.Stats;

import org.jspecify.annotations.Nullable;

import java.util.Map;
import java.util.TreeMap;
import java.util.function.ToLongFunction;

/// What a store counted since the last report, how many of its threads hang, and how much of its
/// folder is used, under names that metrics can carry.
final class StoreFigures {
    private static final Map<String, ToLongFunction<StoreStats>> COUNTERS =
            Map.ofEntries(
                    Map.entry("disk_load_blocks", StoreStats::loads),
                    Map.entry("disk_load_bytes", StoreStats::loadedBytes),
                    Map.entry("disk_save_blocks", StoreStats::saves),
                    Map.entry("disk_save_bytes", StoreStats::savedBytes),
                    Map.entry("disk_present_blocks", StoreStats::alreadyPresent),
                    Map.entry("disk_missed_blocks", StoreStats::misses),
                    Map.entry("disk_corrupt_blocks", StoreStats::corrupt),
                    Map.entry("disk_incompatible_blocks", StoreStats::incompatible),
                    Map.entry("disk_timeouts", StoreStats::timeouts),
                    Map.entry("disk_no_space", StoreStats::noSpace),
                    Map.entry("disk_failures", StoreStats::failures),
                    Map.entry("disk_evicted_blocks", StoreStats::evicted),
                    Map.entry("disk_reaped_temps", StoreStats::reapedTemps));

    private static final Map<String, ToLongFunction<StoreStats>> GAUGES =
            Map.of(
                    "disk_blocks", StoreStats::blocks,
                    "disk_used_bytes", StoreStats::usedBytes,
                    "disk_quota_bytes", StoreStats::quotaBytes);

    private final BlockStore store;
    private final boolean ofFolder;

    /// Null before the first report, which tells also what opening the store found.
    private @Nullable StoreStats before;

    /// @param ofFolder whether to report what the folder holds: an engine sums up what its halves
    ///   report, so only one of them, the scheduler's, does
    StoreFigures(BlockStore store, boolean ofFolder) {
        this.store = store;
        this.ofFolder = ofFolder;
    }

    Stats drain() {
        StoreStats now = store.stats();
        if (now.equals(before)) {
            return Stats.EMPTY;
        }
        var moved = new TreeMap<String, Long>();
        var last = before;
        COUNTERS.forEach((name, read) -> {
            long delta = read.applyAsLong(now) - (last == null ? 0 : read.applyAsLong(last));
            if (delta != 0) {
                moved.put(name, delta);
            }
        });
        before = now;
        var gauges = new TreeMap<String, Long>();
        gauges.put("disk_stalled_threads", now.stalledNow());
        if (ofFolder) {
            GAUGES.forEach((name, read) -> gauges.put(name, read.applyAsLong(now)));
        }
        return new Stats(moved, gauges, Map.of());
    }
}
