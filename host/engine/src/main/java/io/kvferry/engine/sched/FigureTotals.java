// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.spi.observe.Stats;

import java.util.Map;
import java.util.TreeMap;

/// What the halves of one connector reported since the engine started: counters and distributions
/// add up, each half's gauges have their last values.
///
/// Threading: one thread adds, any reads.
final class FigureTotals {
    /// The scheduler half as a source.
    static final int SCHEDULER = -1;

    private final Map<Integer, Map<String, Long>> gauges = new TreeMap<>();
    private volatile Stats flows = Stats.EMPTY;
    private volatile Stats levels = Stats.EMPTY;

    /// @param source a rank, or [#SCHEDULER]
    void add(int source, Stats stats) {
        if (stats.isEmpty()) {
            return;
        }
        if (!stats.gauges().isEmpty()) {
            gauges.computeIfAbsent(source, _ -> new TreeMap<>()).putAll(stats.gauges());
            var sum = Stats.EMPTY;
            for (var one : gauges.values()) {
                sum = sum.merge(new Stats(Map.of(), one, Map.of()));
            }
            levels = sum;
        }
        flows = flows.merge(new Stats(stats.counters(), Map.of(), stats.distributions()));
    }

    Stats sum() {
        return flows.merge(levels);
    }
}
