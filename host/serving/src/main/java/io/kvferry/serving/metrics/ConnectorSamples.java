// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.metrics;

import io.kvferry.spi.observe.Stats;

import java.util.Map;
import java.util.Set;

/// The figures of a connector. They get the instance path of the connector as label:
/// `MultiConnector`'s child figure `disk/load_bytes` becomes `kvferry_kv_load_bytes_total` with
/// `connector="disk"`, and its own `waits` gets `connector="MultiConnector"`. Times become seconds.
final class ConnectorSamples {
    /// Figures that vLLM's connectors have too, by vLLM's name.
    private static final Set<String> VLLM =
            Set.of(
                    "mooncake_xfer_time_seconds",
                    "mooncake_bytes_transferred",
                    "mooncake_num_descriptors",
                    "mooncake_num_failed_transfers",
                    "mooncake_num_failed_recvs",
                    "mooncake_num_kv_expired_reqs");

    private static final Map<String, Double> SECONDS =
            Map.of("_ns", 1e-9, "_nanos", 1e-9, "_us", 1e-6, "_micros", 1e-6, "_ms", 1e-3);

    private final Samples samples;
    private final String prefix;
    private final String whole;
    private final String[] labels;

    /// @param prefix of names that vLLM does not have
    /// @param whole name of the connector that the engine has
    /// @param labels of every sample, name, value, name, value, ...
    ConnectorSamples(Samples samples, String prefix, String whole, String... labels) {
        this.samples = samples;
        this.prefix = prefix;
        this.whole = whole;
        this.labels = labels;
    }

    void add(Stats stats) {
        stats.counters()
                .forEach((path, value) ->
                        samples.counter(
                                name(path),
                                "Connector counter.",
                                value * scale(path),
                                labels(path)));
        stats.gauges()
                .forEach((path, value) ->
                        samples.gauge(
                                name(path), "Connector gauge.", value * scale(path), labels(path)));
        stats.distributions()
                .forEach((path, distribution) ->
                        samples.histogram(
                                name(path),
                                "Connector distribution.",
                                distribution,
                                scale(path),
                                labels(path)));
    }

    private static String figure(String path) {
        return path.substring(path.lastIndexOf('/') + 1);
    }

    private static String unit(String figure) {
        int at = figure.lastIndexOf('_');
        return at < 0 || !SECONDS.containsKey(figure.substring(at)) ? "" : figure.substring(at);
    }

    private static double scale(String path) {
        return SECONDS.getOrDefault(unit(figure(path)), 1.0);
    }

    private String name(String path) {
        var figure = figure(path);
        var unit = unit(figure);
        var name =
                unit.isEmpty()
                        ? figure
                        : figure.substring(0, figure.length() - unit.length()) + "_seconds";
        return (VLLM.contains(name) ? EngineMetrics.VLLM : prefix) + name;
    }

    private String[] labels(String path) {
        int slash = path.lastIndexOf('/');
        var all = new String[labels.length + 2];
        System.arraycopy(labels, 0, all, 0, labels.length);
        all[labels.length] = "connector";
        all[labels.length + 1] = slash < 0 ? whole : path.substring(0, slash);
        return all;
    }
}
