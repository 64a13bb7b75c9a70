// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.observe;

import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;

/// Counters and distributions since the last report. Merging is associative and commutative, so
/// that ranks, children and steps may be folded in any order. Names are Prometheus-like:
/// `disk_load_bytes`, units in the name.
///
/// Threading: immutable.
public record Stats(Map<String, Long> counters, Map<String, Distribution> distributions) {
    public static final Stats EMPTY = new Stats(Map.of(), Map.of());

    public Stats {
        counters = Collections.unmodifiableMap(new TreeMap<>(counters));
        distributions = Collections.unmodifiableMap(new TreeMap<>(distributions));
    }

    public static Stats counter(String name, long value) {
        return new Stats(Map.of(name, value), Map.of());
    }

    public boolean isEmpty() {
        return counters.isEmpty() && distributions.isEmpty();
    }

    /// The value of a counter, 0 when it never moved.
    public long counter(String name) {
        return counters.getOrDefault(name, 0L);
    }

    public Stats merge(Stats other) {
        if (other.isEmpty()) {
            return this;
        }
        if (isEmpty()) {
            return other;
        }
        var sums = new TreeMap<>(counters);
        other.counters.forEach((name, value) -> sums.merge(name, value, Long::sum));
        var folded = new TreeMap<>(distributions);
        other.distributions.forEach(
                (name, value) -> folded.merge(name, value, Distribution::merge));
        return new Stats(sums, folded);
    }

    /// The same figures under `prefix/name`: how a composite keeps its children apart.
    public Stats prefixed(String prefix) {
        var renamed = new TreeMap<String, Long>();
        counters.forEach((name, value) -> renamed.put(prefix + "/" + name, value));
        var moved = new TreeMap<String, Distribution>();
        distributions.forEach((name, value) -> moved.put(prefix + "/" + name, value));
        return new Stats(renamed, moved);
    }

    public void write(WireWriter out) {
        out.i32(counters.size());
        counters.forEach((name, value) -> out.string(name).i64(value));
        out.i32(distributions.size());
        distributions.forEach((name, d) -> {
            out.string(name);
            d.write(out);
        });
    }

    public static Stats read(WireReader in) {
        var counters = new TreeMap<String, Long>();
        for (int n = in.count(12); n > 0; n--) {
            counters.put(in.string(), in.i64());
        }
        var distributions = new TreeMap<String, Distribution>();
        for (int n = in.count(36); n > 0; n--) {
            distributions.put(in.string(), Distribution.read(in));
        }
        return counters.isEmpty() && distributions.isEmpty()
                ? EMPTY
                : new Stats(counters, distributions);
    }
}
