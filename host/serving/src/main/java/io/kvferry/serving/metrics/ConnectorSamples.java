// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.metrics;

import io.kvferry.spi.observe.Stats;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;

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

    /// Calls of Mooncake's store; operation and status are labels in vLLM.
    private static final Pattern STORE_CALL =
            Pattern.compile(
                    "mooncake_store_(lookup_exists|save_put|load_get)_(ok|partial_failure|error)_(.+)");

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
        var call = STORE_CALL.matcher(name);
        if (call.matches()) {
            return EngineMetrics.VLLM + "mooncake_store_operation_" + call.group(3);
        }
        return (VLLM.contains(name) ? EngineMetrics.VLLM : prefix) + name;
    }

    private String[] labels(String path) {
        int slash = path.lastIndexOf('/');
        var all = new ArrayList<>(List.of(labels));
        all.add("connector");
        all.add(slash < 0 ? whole : path.substring(0, slash));
        var call = STORE_CALL.matcher(figure(path));
        if (call.matches()) {
            all.addAll(List.of("operation", call.group(1), "status", call.group(2)));
        }
        return all.toArray(String[]::new);
    }
}
