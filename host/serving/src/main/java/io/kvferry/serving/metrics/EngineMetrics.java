// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.metrics;

import io.kvferry.engine.EngineStats;
import io.kvferry.engine.RequestListener;
import io.kvferry.engine.Usage;
import io.prometheus.metrics.core.metrics.Info;

import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Supplier;
import java.util.stream.Stream;

/// The metrics of an engine.
///
/// Threading: any thread.
public final class EngineMetrics {
    static final String VLLM = "vllm:";
    private static final String SOURCES = "kvferry_prompt_tokens_by_source";
    private static final String SOURCES_HELP =
            "Prompt tokens of answered requests by where their KV came from.";

    /// Engine counters that vLLM has too, by vLLM's name.
    private static final Map<String, String> VLLM_COUNTERS =
            Map.of(
                    "prompt_tokens", "prompt_tokens",
                    "generated_tokens", "generation_tokens",
                    "preemptions", "num_preemptions",
                    "local_queried_tokens", "prefix_cache_queries",
                    "local_hit_tokens", "prefix_cache_hits",
                    "external_queried_tokens", "external_prefix_cache_queries",
                    "external_delivered_tokens", "external_prefix_cache_hits");

    private final MetricsPage page = new MetricsPage();
    private final String[] model;
    private final RequestHistograms histograms;
    private final LongAdder rejected = new LongAdder();
    private final LongAdder own = new LongAdder();
    private final LongAdder computed = new LongAdder();

    /// By connector; as many entries as the configuration names connectors.
    private final ConcurrentSkipListMap<String, LongAdder> delivered =
            new ConcurrentSkipListMap<>();

    /// @param modelName what clients call the model
    /// @param contextTokens most tokens of a request
    public EngineMetrics(String modelName, int contextTokens) {
        model = new String[] {"model_name", modelName, "engine", "0"};
        histograms = new RequestHistograms(page, contextTokens, modelName, "0");
        page.collect(this::promptSources);
        page.collect(samples ->
                samples.counter(
                        VLLM + "admission_rejections",
                        "Requests refused because as many were in the engine as may be.",
                        rejected.sum(),
                        "model_name",
                        modelName,
                        "reason",
                        "max_num_queued_reqs"));
    }

    /// How the KV cache is laid out; once.
    public void cache(int blockTokens, int blocks) {
        Info.builder()
                .name(VLLM + "cache_config_info")
                .help("The layout of the KV cache; the value is always 1.")
                .labelNames("engine", "block_size", "num_gpu_blocks")
                .register(page.registry)
                .setLabelValues(model[3], Integer.toString(blockTokens), Integer.toString(blocks));
    }

    /// A client asked for `n` answers to a prompt.
    ///
    /// @param maxTokens most tokens of each
    public void asked(int n, int maxTokens) {
        histograms.asked(n, maxTokens);
    }

    /// A prompt was answered.
    ///
    /// @param tokens how many the longest of its answers has
    public void longestAnswer(int tokens) {
        histograms.longestAnswer(tokens);
    }

    /// A request was refused because the engine has too many.
    public void rejected() {
        rejected.increment();
    }

    /// For [io.kvferry.engine.Engine#onProgress].
    public RequestListener listener() {
        return histograms;
    }

    /// A request was answered.
    public void answered(Usage usage) {
        own.add(usage.localTokens());
        computed.add(usage.computedTokens());
        usage.external()
                .forEach(share ->
                        delivered
                                .computeIfAbsent(share.source(), _ -> new LongAdder())
                                .add(share.tokens()));
    }

    /// Adds an engine's own figures; once.
    ///
    /// @param kvConnector name of the KV connector, empty without one
    /// @param ecConnector name of the encoder-cache connector, empty without one
    public void watch(Supplier<EngineStats> engine, String kvConnector, String ecConnector) {
        page.collect(samples -> {
            var stats = engine.get();
            levels(samples, stats, !kvConnector.isEmpty());
            stats.counters().forEach((name, value) -> counter(samples, name, value.doubleValue()));
            new ConnectorSamples(samples, "kvferry_kv_", kvConnector, model)
                    .add(stats.kvConnector());
            new ConnectorSamples(samples, "kvferry_ec_", ecConnector, model)
                    .add(stats.ecConnector());
        });
    }

    /// The page to which others may add theirs.
    public MetricsPage page() {
        return page;
    }

    private void counter(Samples samples, String name, double value) {
        var vllm = VLLM_COUNTERS.get(name);
        samples.counter(vllm == null ? "kvferry_" + name : VLLM + vllm, help(name), value, model);
    }

    private static String help(String name) {
        return switch (name) {
            case "prompt_tokens" -> "Prompt tokens of requests taken.";
            case "generated_tokens" -> "Tokens generated.";
            case "preemptions" -> "Times that a request lost its blocks to another.";
            case "local_queried_tokens" -> "Tokens looked up in the engine's own prefix cache.";
            case "local_hit_tokens" -> "Of these, tokens found.";
            case "external_queried_tokens" -> "Tokens asked of the KV connector.";
            case "external_delivered_tokens" -> "Of these, tokens that it delivered.";
            default -> "Engine counter: " + name.replace('_', ' ') + ".";
        };
    }

    private void waiting(Samples samples, EngineStats stats, boolean loads) {
        var reasons =
                "Waiting requests by reason: capacity, they wait for room; deferred, for an answer or a load of a connector.";
        var reason = VLLM + "num_requests_waiting_by_reason";
        int deferred = Math.min(stats.deferred(), stats.waiting());
        samples.gauge(reason, reasons, stats.waiting() - deferred, with("reason", "capacity"))
                .gauge(reason, reasons, deferred + stats.loading(), with("reason", "deferred"));
        if (loads) {
            var stages = "Waiting requests by what has become of their load.";
            var stage = VLLM + "num_requests_kv_fetch_by_stage";
            samples.gauge(stage, stages, deferred, with("stage", "waiting_to_start"))
                    .gauge(stage, stages, stats.loading(), with("stage", "in_progress"))
                    .gauge(stage, stages, stats.ready(), with("stage", "completed_waiting"));
        }
    }

    private String[] with(String label, String value) {
        return Stream.concat(Arrays.stream(model), Stream.of(label, value)).toArray(String[]::new);
    }

    private void levels(Samples samples, EngineStats stats, boolean loads) {
        waiting(samples, stats, loads);
        int total = stats.totalBlocks();
        samples.gauge(
                        VLLM + "num_requests_running",
                        "Requests that take part in steps.",
                        stats.running(),
                        model)
                .gauge(
                        VLLM + "num_requests_waiting",
                        "Requests that wait for room, a lookup or a load.",
                        stats.waiting() + stats.loading(),
                        model)
                .gauge(
                        VLLM + "kv_cache_usage_perc",
                        "Share of the KV blocks that are in use; 1 is all.",
                        total == 0 ? 0 : (double) (total - stats.freeBlocks()) / total,
                        model);
        String requests = "Requests by state.";
        samples.gauge("kvferry_requests", requests, stats.waiting(), "state", "waiting")
                .gauge("kvferry_requests", requests, stats.loading(), "state", "loading")
                .gauge("kvferry_requests", requests, stats.running(), "state", "running")
                .gauge("kvferry_requests", requests, stats.preempted(), "state", "preempted")
                .gauge("kvferry_requests", requests, stats.held(), "state", "held");
        String blocks =
                "KV blocks of the pool; free ones may still be cached, total is all of them.";
        samples.gauge("kvferry_blocks", blocks, total, "kind", "total")
                .gauge("kvferry_blocks", blocks, stats.freeBlocks(), "kind", "free")
                .gauge("kvferry_blocks", blocks, stats.cachedBlocks(), "kind", "cached")
                .gauge("kvferry_blocks", blocks, stats.leasedBlocks(), "kind", "leased")
                .gauge("kvferry_blocks", blocks, stats.quarantinedBlocks(), "kind", "quarantined");
        samples.gauge(
                        "kvferry_encoder_free_rows",
                        "Free rows of the encoder cache.",
                        stats.encoderFree())
                .gauge(
                        "kvferry_healthy",
                        "1 while the engine takes requests.",
                        stats.health().isEmpty() ? 1 : 0)
                .gauge(
                        "kvferry_degraded",
                        "1 while the engine does without workers or a connector for now.",
                        stats.degraded().isEmpty() ? 0 : 1);
    }

    private void promptSources(Samples samples) {
        samples.counter(SOURCES, SOURCES_HELP, own.sum(), "source", "own cache", "connector", "")
                .counter(
                        SOURCES,
                        SOURCES_HELP,
                        computed.sum(),
                        "source",
                        "computed",
                        "connector",
                        "");
        delivered.forEach((connector, tokens) ->
                samples.counter(
                        SOURCES,
                        SOURCES_HELP,
                        tokens.sum(),
                        "source",
                        "connector",
                        "connector",
                        connector));
    }
}
