// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.TraceEvent.Incident;

import java.util.Map;
import java.util.Optional;

/// Reports to the engine when a port or data plane of a worker half stops serving, and when it
/// serves again. Ports restart themselves; the reports let load balancers react meanwhile. Not
/// thread-safe.
public final class TroubleReports {
    private final EventSink events;
    private final String who;
    private String told = "";

    /// @param instance of the connector
    public TroubleReports(EventSink events, String instance, int rank) {
        this.events = events;
        this.who = instance + "/" + rank;
    }

    /// Emits an event when `trouble` is not what the last call told.
    ///
    /// @param trouble what does not serve and why, or empty
    public void look(Optional<String> trouble) {
        var detail = trouble.orElse("");
        if (detail.equals(told)) {
            return;
        }
        var kind = detail.isEmpty() ? Incident.IN_ORDER : Incident.OUT_OF_ORDER;
        events.emit(new Incident("", kind, who, Map.of("detail", detail)));
        told = detail;
    }
}
