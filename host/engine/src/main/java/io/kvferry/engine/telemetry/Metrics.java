// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.telemetry;

import io.kvferry.engine.EngineStats;

import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLongArray;

/// The engine's own figures. Written by the scheduler thread alone, read by any.
public final class Metrics {
    /// Counters since the start; the name in lower case is the name in the snapshot.
    public enum Counter {
        REQUESTS_SUBMITTED,
        REQUESTS_FINISHED,
        REQUESTS_ABORTED,
        REQUESTS_FAILED,
        REQUESTS_KEPT_OUT_BY_HOLDS,
        STEPS,
        PROMPT_TOKENS,
        GENERATED_TOKENS,
        COMPUTED_TOKENS,
        LOCAL_QUERIED_TOKENS,
        LOCAL_HIT_TOKENS,
        EXTERNAL_QUERIED_TOKENS,
        EXTERNAL_PROMISED_TOKENS,
        EXTERNAL_DELIVERED_TOKENS,
        LOOKUPS,
        LOOKUPS_PENDING_TIMEOUT,
        LOADS_STARTED,
        LOADS_COMPLETED,
        LOADS_FAILED,
        LOADS_RECOMPUTED,
        HOLDS_STARTED,
        HOLDS_COMPLETED,
        HOLDS_EXPIRED,
        LEASES_EXPIRED,
        REVOCATIONS,
        PREEMPTIONS,
        COMPLETIONS_UNMATCHED,
        COMPLETIONS_DUPLICATE,
        CONNECTOR_DEFECTS,
        CONNECTORS_GIVEN_UP,
        CONNECTORS_REOPENED,
        CONNECTORS_UNCLOSED,
        WORKERS_LOST,
        WORKER_RESTARTS,
        BLOCKS_CACHED,
        BLOCKS_EVICTED,
        ITEMS_ENCODED,
        ITEMS_LOADED,
        ITEM_LOADS_FAILED;

        /// Its name among the figures.
        private final String figure = name().toLowerCase(Locale.ROOT);
    }

    private static final Counter[] COUNTERS = Counter.values();

    /// What is now.
    public enum Gauge {
        WAITING,
        LOADING,
        READY,
        DEFERRED,
        RUNNING,
        PREEMPTED,
        HELD,
        FREE_BLOCKS,
        CACHED_BLOCKS,
        LEASED_BLOCKS,
        QUARANTINED_BLOCKS,
        ENCODER_FREE
    }

    private final AtomicLongArray counters = new AtomicLongArray(Counter.values().length);
    private final AtomicLongArray gauges = new AtomicLongArray(Gauge.values().length);
    private final StatsTotals kv = new StatsTotals();
    private final StatsTotals ec = new StatsTotals();

    /// One thread writes, so no atomic addition is needed.
    public void add(Counter counter, long value) {
        int at = counter.ordinal();
        counters.setRelease(at, counters.getPlain(at) + value);
    }

    public void count(Counter counter) {
        add(counter, 1);
    }

    public void set(Gauge gauge, long value) {
        gauges.setRelease(gauge.ordinal(), value);
    }

    /// What the KV connector reported.
    public StatsTotals kv() {
        return kv;
    }

    /// What the encoder-cache connector reported.
    public StatsTotals ec() {
        return ec;
    }

    private long get(Counter counter) {
        return counters.getAcquire(counter.ordinal());
    }

    private int get(Gauge gauge) {
        return (int) gauges.getAcquire(gauge.ordinal());
    }

    /// All of it at this moment.
    public EngineStats snapshot(int totalBlocks, String health, String degraded) {
        return new EngineStats(
                get(Gauge.WAITING),
                get(Gauge.LOADING),
                get(Gauge.READY),
                get(Gauge.DEFERRED),
                get(Gauge.RUNNING),
                get(Gauge.PREEMPTED),
                get(Gauge.HELD),
                get(Gauge.FREE_BLOCKS),
                totalBlocks,
                get(Gauge.CACHED_BLOCKS),
                get(Gauge.LEASED_BLOCKS),
                get(Gauge.QUARANTINED_BLOCKS),
                get(Gauge.ENCODER_FREE),
                get(Counter.STEPS),
                counters(),
                kv.sum(),
                ec.sum(),
                health,
                degraded);
    }

    private Map<String, Long> counters() {
        var all = new LinkedHashMap<String, Long>();
        for (var counter : COUNTERS) {
            all.put(counter.figure, get(counter));
        }
        return all;
    }
}
