// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.observe;

import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.Collections;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.function.BinaryOperator;

/// What a plugin measured since its last report: counters and distributions since then, and gauges
/// as they are now. Names are Prometheus-like, units in the name: `disk_load_bytes`. Statistics of
/// ranks and children that were taken at the same time [#merge] in any order; those of one source
/// over time follow each other by [#then].
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

    /// Counters alone.
    public static Stats ofCounters(Map<String, Long> counters) {
        return new Stats(counters, Map.of(), Map.of());
    }

    public static Stats counter(String name, long value) {
        return ofCounters(Map.of(name, value));
    }

    public static Stats gauge(String name, long value) {
        return new Stats(Map.of(), Map.of(name, value), Map.of());
    }

    public boolean isEmpty() {
        return counters.isEmpty() && gauges.isEmpty() && distributions.isEmpty();
    }

    /// The value of a counter, 0 when it never moved.
    public long counter(String name) {
        return counters.getOrDefault(name, 0L);
    }

    /// The value of a gauge, 0 when it was never set.
    public long gauge(String name) {
        return gauges.getOrDefault(name, 0L);
    }

    /// The statistics of two ranks or children together: everything adds up. Associative and
    /// commutative.
    public Stats merge(Stats other) {
        return fold(other, Long::sum);
    }

    /// These statistics, and what the same source said later: counters and distributions add up, a
    /// gauge has its later value. Associative.
    public Stats then(Stats later) {
        return fold(later, (_, now) -> now);
    }

    private Stats fold(Stats other, BinaryOperator<Long> gauge) {
        if (other.isEmpty()) {
            return this;
        }
        if (isEmpty()) {
            return other;
        }
        return new Stats(
                folded(counters, other.counters, Long::sum),
                folded(gauges, other.gauges, gauge),
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

    /// The same figures under `prefix/name`: how a composite keeps its children apart.
    public Stats prefixed(String prefix) {
        return new Stats(
                prefixed(prefix, counters),
                prefixed(prefix, gauges),
                prefixed(prefix, distributions));
    }

    private static <V> Map<String, V> prefixed(String prefix, Map<String, V> figures) {
        var renamed = new TreeMap<String, V>();
        figures.forEach((name, value) -> renamed.put(prefix + "/" + name, value));
        return renamed;
    }

    public void write(WireWriter out) {
        write(out, counters);
        write(out, gauges);
        out.i32(distributions.size());
        distributions.forEach((name, d) -> {
            out.string(name);
            d.write(out);
        });
    }

    private static void write(WireWriter out, Map<String, Long> figures) {
        out.i32(figures.size());
        figures.forEach((name, value) -> out.string(name).i64(value));
    }

    public static Stats read(WireReader in) {
        var counters = readFigures(in);
        var gauges = readFigures(in);
        var distributions = new TreeMap<String, Distribution>();
        for (int n = in.count(36); n > 0; n--) {
            distributions.put(in.string(), Distribution.read(in));
        }
        return counters.isEmpty() && gauges.isEmpty() && distributions.isEmpty()
                ? EMPTY
                : new Stats(counters, gauges, distributions);
    }

    private static Map<String, Long> readFigures(WireReader in) {
        var figures = new TreeMap<String, Long>();
        for (int n = in.count(12); n > 0; n--) {
            figures.put(in.string(), in.i64());
        }
        return figures;
    }
}
