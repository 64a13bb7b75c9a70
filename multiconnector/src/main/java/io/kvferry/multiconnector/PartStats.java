// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import io.kvferry.spi.observe.Stats;

import java.util.Map;
import java.util.TreeMap;

/// How what is made of parts keeps the figures of its parts apart: children of a composite,
/// backends of the agent.
public final class PartStats {
    private PartStats() {}

    /// The same figures under `part/name`.
    public static Stats of(String part, Stats stats) {
        return new Stats(
                named(part, stats.counters()),
                named(part, stats.gauges()),
                named(part, stats.distributions()));
    }

    private static <V> Map<String, V> named(String part, Map<String, V> figures) {
        var renamed = new TreeMap<String, V>();
        figures.forEach((name, value) -> renamed.put(part + "/" + name, value));
        return renamed;
    }
}
