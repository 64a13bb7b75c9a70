// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.metrics;

import java.util.Map;
import java.util.function.Supplier;

/// The metrics of an HTTP service.
public final class HttpMetrics {
    private HttpMetrics() {}

    /// Counters of a service.
    ///
    /// @param running calls being worked on
    /// @param connections open ones
    /// @param responses by status; those that were cut short have 0
    public record Figures(int running, int connections, Map<Integer, Long> responses) {}

    /// Adds a service to a page.
    public static void watch(MetricsPage page, Supplier<Figures> service) {
        page.collect(samples -> {
            var figures = service.get();
            samples.gauge("kvferry_http_running", "Calls being worked on.", figures.running())
                    .gauge("kvferry_http_connections", "Open connections.", figures.connections());
            figures.responses()
                    .forEach((status, count) ->
                            samples.counter(
                                    "kvferry_http_responses",
                                    "Responses by status; 0 for those that were cut short.",
                                    count.doubleValue(),
                                    "status",
                                    status.toString()));
        });
    }
}
