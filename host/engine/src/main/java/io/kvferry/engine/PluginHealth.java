// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine;

import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.TraceEvent;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

/// Forwards events and remembers which plugins report that they are unhealthy, including plugins in
/// worker processes, for the engine's health.
///
/// Threading: any thread.
final class PluginHealth implements EventSink {
    private static final int MOST = 64;

    private final EventSink sink;
    private final Map<String, String> troubles = new ConcurrentHashMap<>();

    PluginHealth(EventSink sink) {
        this.sink = sink;
    }

    @Override
    public void emit(TraceEvent event) {
        if (event instanceof TraceEvent.Incident(_, String kind, String by, var details)) {
            if (kind.equals(TraceEvent.Incident.OUT_OF_ORDER) && troubles.size() < MOST) {
                troubles.put(by, details.getOrDefault("detail", "out of order"));
            } else if (kind.equals(TraceEvent.Incident.IN_ORDER)) {
                troubles.remove(by);
            } else if (kind.equals(TraceEvent.Incident.REOPENED)) {
                forget(by);
            }
        }
        sink.emit(event);
    }

    /// A connector is opened again: what was wrong with its halves ended with them.
    ///
    /// @param instance the connector's instance path; its halves and children have longer ones
    void forget(String instance) {
        troubles.keySet().removeIf(by -> by.equals(instance) || by.startsWith(instance + "/"));
    }

    /// What is wrong; empty while all is well.
    String reason() {
        return troubles.isEmpty()
                ? ""
                : new TreeMap<>(troubles)
                        .entrySet().stream()
                                .map(entry -> entry.getKey() + ": " + entry.getValue())
                                .collect(Collectors.joining("; "));
    }
}
