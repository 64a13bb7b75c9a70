// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.worker;

import io.kvferry.multiconnector.composite.wire.ChildNames;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Distribution;
import io.kvferry.spi.observe.Stats;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/// Stats and events of the children in one report, their names in front of those of their figures.
///
/// Threading: the rank's step thread only.
final class ChildFigures {
    private static final int MOST_NAMES = 1_000;

    private final ChildNames names;
    private final List<Map<String, String>> prefixed = new ArrayList<>();

    ChildFigures(ChildNames names) {
        this.names = names;
        for (int i = 0; i < names.count(); i++) {
            prefixed.add(new HashMap<>());
        }
    }

    /// The figures of one step.
    final class Folded {
        private final TreeMap<String, Long> counters = new TreeMap<>();
        private final TreeMap<String, Long> gauges = new TreeMap<>();
        private final TreeMap<String, Distribution> distributions = new TreeMap<>();
        private List<CacheEvent> events = List.of();

        /// The composite's own count about a child.
        void count(int child, String name) {
            counters.merge(prefixed(child, name), 1L, Long::sum);
        }

        void add(int child, StepReport one) {
            if (!one.stats().isEmpty()) {
                one.stats()
                        .counters()
                        .forEach((name, value) -> counters.put(prefixed(child, name), value));
                one.stats()
                        .gauges()
                        .forEach((name, value) -> gauges.put(prefixed(child, name), value));
                one.stats()
                        .distributions()
                        .forEach((name, value) -> distributions.put(prefixed(child, name), value));
            }
            if (!one.events().isEmpty()) {
                events = new ArrayList<>(events);
                events.addAll(one.events());
            }
        }

        Stats stats() {
            return counters.isEmpty() && gauges.isEmpty() && distributions.isEmpty()
                    ? Stats.EMPTY
                    : new Stats(counters, gauges, distributions);
        }

        List<CacheEvent> events() {
            return events;
        }
    }

    Folded fold() {
        return new Folded();
    }

    /// The same few names come with every step.
    private String prefixed(int child, String name) {
        var known = prefixed.get(child);
        var found = known.get(name);
        if (found == null) {
            found = names.name(child) + "/" + name;
            if (known.size() < MOST_NAMES) {
                known.put(name, found);
            }
        }
        return found;
    }
}
