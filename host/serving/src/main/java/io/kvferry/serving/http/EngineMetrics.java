// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.EngineStats;
import io.kvferry.spi.observe.Stats;

import java.util.Map;

/// An engine's figures as Prometheus text. Connector figures keep their names and get the instance
/// path of the connector as label: `MultiConnector`'s child figure `disk/load_bytes` becomes
/// `kvferry_kv_load_bytes_total` with `connector="disk"`, and its own `waits` gets
/// `connector="MultiConnector"`.
final class EngineMetrics {
    private EngineMetrics() {}

    static String write(EngineAccess engine, int httpRunning, PromptSources sources) {
        EngineStats stats = engine.stats().get();
        var text = new PrometheusText();
        String requests = "Requests by state.";
        text.gauge("kvferry_requests", requests, stats.waiting(), "state", "waiting")
                .gauge("kvferry_requests", requests, stats.loading(), "state", "loading")
                .gauge("kvferry_requests", requests, stats.running(), "state", "running")
                .gauge("kvferry_requests", requests, stats.preempted(), "state", "preempted")
                .gauge("kvferry_requests", requests, stats.held(), "state", "held");
        String blocks =
                "KV blocks of the pool; free ones may still be cached, total is all of them.";
        text.gauge("kvferry_blocks", blocks, stats.totalBlocks(), "kind", "total")
                .gauge("kvferry_blocks", blocks, stats.freeBlocks(), "kind", "free")
                .gauge("kvferry_blocks", blocks, stats.cachedBlocks(), "kind", "cached")
                .gauge("kvferry_blocks", blocks, stats.leasedBlocks(), "kind", "leased")
                .gauge("kvferry_blocks", blocks, stats.quarantinedBlocks(), "kind", "quarantined");
        text.gauge(
                        "kvferry_encoder_free_rows",
                        "Free rows of the encoder cache.",
                        stats.encoderFree())
                .gauge("kvferry_http_running", "HTTP requests being worked on.", httpRunning)
                .gauge(
                        "kvferry_healthy",
                        "1 while the engine takes requests.",
                        stats.health().isEmpty() ? 1 : 0)
                .gauge(
                        "kvferry_degraded",
                        "1 while the engine does without workers or a connector for now.",
                        stats.degraded().isEmpty() ? 0 : 1);
        stats.counters().entrySet().stream()
                .sorted(Map.Entry.comparingByKey())
                .forEach(entry ->
                        text.counter(
                                "kvferry_" + entry.getKey() + "_total",
                                "Engine counter.",
                                entry.getValue().doubleValue()));
        sources.write(text);
        connector(text, "kvferry_kv_", engine.kvConnector(), stats.kvConnector());
        connector(text, "kvferry_ec_", engine.ecConnector(), stats.ecConnector());
        return text.toString();
    }

    private static void connector(PrometheusText text, String prefix, String whole, Stats stats) {
        stats.counters()
                .forEach((path, value) ->
                        text.counter(
                                prefix + name(path) + "_total",
                                "Connector counter.",
                                (double) value,
                                "connector",
                                owner(path, whole)));
        stats.gauges()
                .forEach((path, value) ->
                        text.gauge(
                                prefix + name(path),
                                "Connector gauge.",
                                (double) value,
                                "connector",
                                owner(path, whole)));
        stats.distributions()
                .forEach((path, d) ->
                        text.summary(
                                prefix + name(path),
                                "Connector figure.",
                                d.count(),
                                (double) d.sum(),
                                "connector",
                                owner(path, whole)));
    }

    private static String name(String path) {
        return path.substring(path.lastIndexOf('/') + 1);
    }

    private static String owner(String path, String whole) {
        int slash = path.lastIndexOf('/');
        return slash < 0 ? whole : path.substring(0, slash);
    }
}
