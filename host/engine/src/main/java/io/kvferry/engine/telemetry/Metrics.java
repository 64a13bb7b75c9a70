// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.telemetry;

import io.kvferry.engine.EngineStats;

import java.util.EnumMap;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;

/// The engine's own figures. Written by the scheduler thread alone, read by any.
public final class Metrics {
    /// Counters since the start; the name in lower case is the name in the snapshot.
    public enum Counter {
        REQUESTS_SUBMITTED,
        REQUESTS_FINISHED,
        REQUESTS_ABORTED,
        REQUESTS_FAILED,
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
        WORKERS_LOST,
        WORKER_RESTARTS,
        BLOCKS_CACHED,
        BLOCKS_EVICTED,
        ITEMS_ENCODED,
        ITEMS_LOADED,
        ITEM_LOADS_FAILED
    }

    /// What is now.
    public enum Gauge {
        WAITING,
        LOADING,
        RUNNING,
        PREEMPTED,
        HELD,
        FREE_BLOCKS,
        CACHED_BLOCKS,
        LEASED_BLOCKS,
        QUARANTINED_BLOCKS,
        ENCODER_FREE
    }

    private final Map<Counter, AtomicLong> counters = zeros(Counter.class);
    private final Map<Gauge, AtomicLong> gauges = zeros(Gauge.class);
    private final StatsTotals kv = new StatsTotals();
    private final StatsTotals ec = new StatsTotals();

    private static <K extends Enum<K>> Map<K, AtomicLong> zeros(Class<K> keys) {
        var map = new EnumMap<K, AtomicLong>(keys);
        for (var key : EnumSet.allOf(keys)) {
            map.put(key, new AtomicLong());
        }
        return map;
    }

    private static <K> AtomicLong of(Map<K, AtomicLong> map, K key) {
        return Objects.requireNonNull(map.get(key));
    }

    /// One thread writes, so no atomic addition is needed.
    public void add(Counter counter, long value) {
        var sum = of(counters, counter);
        sum.setRelease(sum.getPlain() + value);
    }

    public void count(Counter counter) {
        add(counter, 1);
    }

    public void set(Gauge gauge, long value) {
        of(gauges, gauge).setRelease(value);
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
        return of(counters, counter).getAcquire();
    }

    private int get(Gauge gauge) {
        return (int) of(gauges, gauge).getAcquire();
    }

    /// All of it at this moment.
    public EngineStats snapshot(int totalBlocks, String health, String degraded) {
        return new EngineStats(
                get(Gauge.WAITING),
                get(Gauge.LOADING),
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
        for (var counter : Counter.values()) {
            all.put(counter.name().toLowerCase(Locale.ROOT), get(counter));
        }
        return all;
    }
}
