// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.observe;

import java.util.Collections;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.function.BinaryOperator;

/// Measurements of a plugin since its last report: counters and distributions since then, and
/// gauges as they are now. Names are Prometheus-like, units in the name: `disk_load_bytes`.
/// Statistics of ranks and children that were taken at the same time [#merge] in any order. Over
/// time, counters and distributions of one source add up, and its gauges have their last value.
///
/// Threading: immutable.
///
/// @param counters how often, how much; never negative
/// @param gauges values that go up and down, such as bytes in use; sums over ranks and children
/// @param distributions quantities seen many times
public record Stats(
        Map<String, Long> counters,
        Map<String, Long> gauges,
        Map<String, Distribution> distributions) {
    public static final Stats EMPTY = new Stats(Map.of(), Map.of(), Map.of());

    public Stats {
        counters = sorted(counters);
        gauges = sorted(gauges);
        distributions = sorted(distributions);
    }

    private static <V> Map<String, V> sorted(Map<String, V> map) {
        if (map.isEmpty()) {
            return Map.of();
        }
        var copy = new TreeMap<>(map);
        for (var entry : copy.entrySet()) {
            Objects.requireNonNull(entry.getValue(), entry.getKey());
        }
        return Collections.unmodifiableMap(copy);
    }

    public static Stats counter(String name, long value) {
        return new Stats(Map.of(name, value), Map.of(), Map.of());
    }

    public static Stats gauge(String name, long value) {
        return new Stats(Map.of(), Map.of(name, value), Map.of());
    }

    public boolean isEmpty() {
        return counters.isEmpty() && gauges.isEmpty() && distributions.isEmpty();
    }

    /// The statistics of two ranks or children together: everything adds up. Associative and
    /// commutative.
    public Stats merge(Stats other) {
        if (other.isEmpty()) {
            return this;
        }
        if (isEmpty()) {
            return other;
        }
        return new Stats(
                folded(counters, other.counters, Long::sum),
                folded(gauges, other.gauges, Long::sum),
                folded(distributions, other.distributions, Distribution::merge));
    }

    private static <V> Map<String, V> folded(
            Map<String, V> one, Map<String, V> other, BinaryOperator<V> fold) {
        if (one.isEmpty() || other.isEmpty()) {
            return one.isEmpty() ? other : one;
        }
        var both = new TreeMap<>(one);
        other.forEach((name, value) -> both.merge(name, value, fold));
        return both;
    }
}
