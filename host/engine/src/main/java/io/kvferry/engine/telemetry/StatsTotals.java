// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.telemetry;

import io.kvferry.spi.observe.Distribution;
import io.kvferry.spi.observe.Stats;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/// What the halves of one connector reported since the engine started: counters and distributions
/// add up, each half's gauges have their last values.
///
/// Threading: one thread adds, any reads.
public final class StatsTotals {
    /// The scheduler half as a source.
    public static final int SCHEDULER = -1;

    private final Map<String, AtomicLong> counters = new ConcurrentHashMap<>();
    private final Map<String, Distribution> distributions = new ConcurrentHashMap<>();
    private final Map<Integer, Map<String, Long>> gauges = new ConcurrentHashMap<>();

    /// @param source a rank, or [#SCHEDULER]
    public void add(int source, Stats stats) {
        if (stats.isEmpty()) {
            return;
        }
        for (var entry : stats.counters().entrySet()) {
            var total = counters.get(entry.getKey());
            if (total == null) {
                total = counters.computeIfAbsent(entry.getKey(), _ -> new AtomicLong());
            }
            // one thread adds, so no atomic addition is needed
            total.setRelease(total.getPlain() + entry.getValue());
        }
        if (!stats.distributions().isEmpty()) {
            stats.distributions()
                    .forEach((name, more) -> distributions.merge(name, more, Distribution::merge));
        }
        if (!stats.gauges().isEmpty()) {
            gauges.computeIfAbsent(source, _ -> new ConcurrentHashMap<>()).putAll(stats.gauges());
        }
    }

    public Stats sum() {
        var totals = new TreeMap<String, Long>();
        counters.forEach((name, total) -> totals.put(name, total.getAcquire()));
        var levels = new TreeMap<String, Long>();
        gauges.values()
                .forEach(one -> one.forEach((name, value) -> levels.merge(name, value, Long::sum)));
        return new Stats(totals, levels, distributions);
    }
}
