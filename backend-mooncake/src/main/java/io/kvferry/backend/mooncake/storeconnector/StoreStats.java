// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreUsage;
import io.kvferry.spi.observe.Stats;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/// Figures of a scheduler half: its lookups, and how full the store is. An engine sums up what its
/// halves report, so this half alone reports the store, and does so now and then.
///
/// Threading: the scheduler thread.
final class StoreStats {
    private static final long INTERVAL_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final Store store;
    private final OperationStats lookups = new OperationStats("lookup_exists");
    private long next = System.nanoTime();
    private long lookupTimeouts;

    StoreStats(Store store) {
        this.store = store;
    }

    /// A lookup that was given up.
    void lookupTimedOut() {
        lookupTimeouts++;
    }

    void lookedUp(long nanos, long keys) {
        lookups.done(nanos, keys, 0, 0);
    }

    Stats drain(long deferredSaves) {
        Stats stats = lookups.drain();
        if (lookupTimeouts > 0) {
            stats =
                    stats.merge(
                            Stats.counter("mooncake_store_lookup_timeouts_total", lookupTimeouts));
            lookupTimeouts = 0;
        }
        if (deferredSaves > 0) {
            stats =
                    stats.merge(
                            Stats.counter("mooncake_store_saves_deferred_total", deferredSaves));
        }
        if (System.nanoTime() - next >= 0) {
            next = System.nanoTime() + INTERVAL_NANOS;
            stats =
                    stats.merge(
                            Stats.gauge(
                                    "mooncake_store_available", store.healthCheck() == 0 ? 1 : 0));
            var usage = store.usage();
            if (usage.isPresent()) {
                stats = stats.merge(new Stats(Map.of(), gauges(usage.get()), Map.of()));
            }
        }
        return stats;
    }

    private static Map<String, Long> gauges(StoreUsage usage) {
        var gauges = new TreeMap<String, Long>();
        gauges.put("mooncake_store_capacity_bytes", usage.capacity());
        gauges.put("mooncake_store_allocated_bytes", usage.used());
        gauges.put("mooncake_store_keys", usage.objects());
        gauges.put("mooncake_store_leased_bytes", usage.leased());
        gauges.put("mooncake_store_soft_pinned_bytes", usage.softPinned());
        gauges.put("mooncake_store_hard_pinned_bytes", usage.hardPinned());
        gauges.put("mooncake_store_evictable_bytes", usage.evictable());
        return gauges;
    }
}
