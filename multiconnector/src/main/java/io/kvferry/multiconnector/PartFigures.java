// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import io.kvferry.spi.observe.Distribution;
import io.kvferry.spi.observe.Stats;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;

/// Collects the statistics of the parts of a whole (children of a composite, backends of an agent)
/// over one step. Statistics of a part are named `part/name`.
///
/// Threading: one thread.
public final class PartFigures {
    /// Most composed names cached per part; the same few names occur in every step.
    private static final int MOST_NAMES = 1_000;

    private final List<String> parts;
    private final List<Map<String, String>> named = new ArrayList<>();
    private final SortedMap<String, Long> counters = new TreeMap<>();
    private final SortedMap<String, Long> gauges = new TreeMap<>();
    private final SortedMap<String, Distribution> distributions = new TreeMap<>();

    public PartFigures(List<String> parts) {
        this.parts = List.copyOf(parts);
        for (int i = 0; i < parts.size(); i++) {
            named.add(new HashMap<>());
        }
    }

    /// Of the whole.
    public void count(String name, long value) {
        counters.merge(name, value, Long::sum);
    }

    public void count(int part, String name, long value) {
        count(named(part, name), value);
    }

    public void gauge(int part, String name, long value) {
        gauges.merge(named(part, name), value, Long::sum);
    }

    /// Adds the figures that a part has measured.
    public void add(int part, Stats stats) {
        if (stats.isEmpty()) {
            return;
        }
        stats.counters().forEach((name, value) -> count(part, name, value));
        stats.gauges().forEach((name, value) -> gauge(part, name, value));
        stats.distributions()
                .forEach((name, value) ->
                        distributions.merge(named(part, name), value, Distribution::merge));
    }

    /// Everything since the last call.
    public Stats drain() {
        if (counters.isEmpty() && gauges.isEmpty() && distributions.isEmpty()) {
            return Stats.EMPTY;
        }
        var drained = new Stats(counters, gauges, distributions);
        counters.clear();
        gauges.clear();
        distributions.clear();
        return drained;
    }

    private String named(int part, String name) {
        var known = named.get(part);
        var found = known.get(name);
        if (found == null) {
            found = parts.get(part) + "/" + name;
            if (known.size() < MOST_NAMES) {
                known.put(name, found);
            }
        }
        return found;
    }
}
