// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.observe;

import java.util.List;
import java.util.Map;

/// Something worth a line in a time line. Each begins with the id of the request that it concerns,
/// empty for none.
public sealed interface TraceEvent {
    /// A choice among several ways.
    ///
    /// @param kind what was chosen: `load-source`, `transfer-backend`, ...
    /// @param by who chose, as instance path (`MultiConnector/disk`)
    /// @param chosen the winner, empty when nobody could
    /// @param rejected the others, each with the reason
    /// @param promised tokens or bytes that the winner promised
    record Decision(
            String requestId,
            String kind,
            String by,
            String chosen,
            List<Rejected> rejected,
            long promised)
            implements TraceEvent {
        public Decision {
            rejected = List.copyOf(rejected);
        }
    }

    /// A way not taken.
    record Rejected(String name, String reason) {}

    /// Result of a choice.
    ///
    /// @param source who delivered, or failed to
    /// @param unit of the next two: `tokens`, `bytes`, `items`
    /// @param nanos from the promise to the end of the delivery; 0 when it is not known
    /// @param failure the failure's text; empty when there was none
    record Delivery(
            String requestId,
            String kind,
            String by,
            String source,
            String unit,
            long promised,
            long delivered,
            long nanos,
            String failure)
            implements TraceEvent {}

    /// Anything else: a peer lost, a lease expired, a late completion dropped. Values are plain
    /// text.
    record Incident(String requestId, String kind, String by, Map<String, String> details)
            implements TraceEvent {
        /// Kind of an incident by which a plugin reports that it no longer works, for example
        /// cannot accept connections; `detail` says why. The engine is unhealthy until the same
        /// plugin reports [#IN_ORDER].
        public static final String OUT_OF_ORDER = "out-of-order";

        /// Kind of the incident that ends [#OUT_OF_ORDER].
        public static final String IN_ORDER = "in-order-again";

        /// Kind of the incident by which a composite reports that it has reopened a child, which
        /// ends all incidents of that child's former halves.
        public static final String REOPENED = "reopened";

        public Incident {
            details = Map.copyOf(details);
        }
    }
}
