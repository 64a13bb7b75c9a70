// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.metrics;

import io.kvferry.engine.RequestListener;
import io.kvferry.engine.Usage;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.prometheus.metrics.core.datapoints.CounterDataPoint;
import io.prometheus.metrics.core.datapoints.DistributionDataPoint;
import io.prometheus.metrics.core.metrics.Counter;
import io.prometheus.metrics.core.metrics.Histogram;

import java.util.EnumMap;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.stream.IntStream;

/// vLLM's histograms of requests and tokens, with vLLM's names and bounds.
///
/// Threading: any thread.
final class RequestHistograms implements RequestListener {
    private static final double[] FIRST_TOKEN = {
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20,
        40, 80, 160, 640, 2560
    };
    private static final double[] TOKEN = {
        0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40,
        80
    };
    private static final double[] REQUEST = {
        0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680
    };
    private static final double[] STEP = {
        1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384
    };
    private static final double[] CHOICES = {1, 2, 5, 10, 20};
    private static final double[] PREEMPTIONS = {1, 2, 3, 4, 5, 10, 20};

    private final MetricsPage page;
    private final String[] labels;
    private final DistributionDataPoint firstToken;
    private final DistributionDataPoint nextToken;
    private final DistributionDataPoint perOutputToken;
    private final DistributionDataPoint total;
    private final DistributionDataPoint queued;
    private final DistributionDataPoint inference;
    private final DistributionDataPoint prefill;
    private final DistributionDataPoint decode;
    private final DistributionDataPoint promptTokens;
    private final DistributionDataPoint generatedTokens;
    private final DistributionDataPoint computedTokens;
    private final CounterDataPoint localCompute;
    private final CounterDataPoint localCacheHit;
    private final CounterDataPoint externalKvTransfer;
    private final CounterDataPoint cachedTokens;
    private final CounterDataPoint recomputedTokens;
    private final DistributionDataPoint stepTokens;
    private final DistributionDataPoint choices;
    private final DistributionDataPoint maxTokens;
    private final DistributionDataPoint longestAnswer;
    private final DistributionDataPoint preemptions;
    private final CounterDataPoint cachedOnDevice;
    private final Map<LookupResult.Tier, CounterDataPoint> cachedInTier =
            new EnumMap<>(LookupResult.Tier.class);
    private final Map<FinishReason, CounterDataPoint> ended = new EnumMap<>(FinishReason.class);

    /// @param contextTokens most tokens of a request
    /// @param labels values of `model_name` and `engine`
    RequestHistograms(MetricsPage page, int contextTokens, String... labels) {
        var tokens = tokenBounds(contextTokens);
        this.page = page;
        this.labels = labels;
        firstToken =
                histogram(
                        "time_to_first_token_seconds",
                        "From the arrival of a request to its first token.",
                        FIRST_TOKEN);
        nextToken =
                histogram(
                        "inter_token_latency_seconds",
                        "Between two tokens of a request that follow each other.",
                        TOKEN);
        perOutputToken =
                histogram(
                        "request_time_per_output_token_seconds",
                        "Mean time between the tokens of a request.",
                        TOKEN);
        total =
                histogram(
                        "e2e_request_latency_seconds",
                        "From the arrival of a request to its end.",
                        REQUEST);
        queued =
                histogram(
                        "request_queue_time_seconds",
                        "From the arrival of a request to its first step.",
                        REQUEST);
        inference =
                histogram(
                        "request_inference_time_seconds",
                        "From the first step of a request to its last token.",
                        REQUEST);
        prefill =
                histogram(
                        "request_prefill_time_seconds",
                        "From the first step of a request to its first token.",
                        REQUEST);
        decode =
                histogram(
                        "request_decode_time_seconds",
                        "From the first token of a request to its last.",
                        REQUEST);
        promptTokens = histogram("request_prompt_tokens", "Prompt tokens of a request.", tokens);
        generatedTokens =
                histogram("request_generation_tokens", "Generated tokens of a request.", tokens);
        computedTokens =
                histogram(
                        "request_prefill_kv_computed_tokens",
                        "Prompt tokens of a request that the model computed.",
                        tokens);
        maxTokens =
                histogram(
                        "request_params_max_tokens",
                        "Most tokens that a request may generate.",
                        tokens);
        longestAnswer =
                histogram(
                        "request_max_num_generation_tokens",
                        "Tokens of the longest answer to a prompt.",
                        tokens);
        choices = histogram("request_params_n", "Answers wanted to a prompt.", CHOICES);
        preemptions =
                histogram(
                        "request_num_preemptions",
                        "How often a request lost its blocks to another.",
                        PREEMPTIONS);
        var inTier =
                Counter.builder()
                        .name(EngineMetrics.VLLM + "prompt_tokens_cached_by_source")
                        .help("Cached prompt tokens of requests that ended, by where they lay.")
                        .labelNames("model_name", "engine", "source")
                        .register(page.registry);
        cachedOnDevice = inTier.labelValues(labels[0], labels[1], "device");
        for (var tier : LookupResult.Tier.values()) {
            cachedInTier.put(tier, inTier.labelValues(labels[0], labels[1], source(tier)));
        }
        var bySource =
                Counter.builder()
                        .name(EngineMetrics.VLLM + "prompt_tokens_by_source")
                        .help("Prompt tokens of requests that ended, by where their KV came from.")
                        .labelNames("model_name", "engine", "source")
                        .register(page.registry);
        localCompute = bySource.labelValues(labels[0], labels[1], "local_compute");
        localCacheHit = bySource.labelValues(labels[0], labels[1], "local_cache_hit");
        externalKvTransfer = bySource.labelValues(labels[0], labels[1], "external_kv_transfer");
        cachedTokens =
                counter(
                        EngineMetrics.VLLM + "prompt_tokens_cached",
                        "Prompt tokens of requests that ended whose KV was not computed.");
        recomputedTokens =
                counter(
                        "kvferry_prompt_tokens_recomputed",
                        "Prompt tokens of requests that ended that were cached and computed all the same: the last one of a prompt that was cached as a whole.");
        stepTokens = histogram("iteration_tokens_total", "Tokens computed in a step.", STEP);
        var counter =
                Counter.builder()
                        .name(EngineMetrics.VLLM + "request_success_total")
                        .help("Requests that ended, by why they ended.")
                        .labelNames("model_name", "engine", "finished_reason")
                        .register(page.registry);
        for (var reason : FinishReason.values()) {
            ended.put(
                    reason,
                    counter.labelValues(
                            labels[0], labels[1], reason.name().toLowerCase(Locale.ROOT)));
        }
    }

    /// 1, 2, 5, 10, ... up to the longest request.
    private static double[] tokenBounds(int contextTokens) {
        return IntStream.range(0, 30)
                .mapToDouble(i -> new int[] {1, 2, 5}[i % 3] * Math.pow(10, i / 3))
                .takeWhile(bound -> bound <= contextTokens)
                .toArray();
    }

    /// vLLM's name of a tier.
    private static String source(LookupResult.Tier tier) {
        return switch (tier) {
            case DEVICE -> "device";
            case HOST -> "host";
            case DISK -> "disk";
            case PEER -> "p2p";
            case OTHER -> "external_unspecified";
        };
    }

    void asked(int n, int most) {
        choices.observe(n);
        maxTokens.observe(most);
    }

    void longestAnswer(int tokens) {
        longestAnswer.observe(tokens);
    }

    private DistributionDataPoint histogram(String name, String help, double[] bounds) {
        return Histogram.builder()
                .name(EngineMetrics.VLLM + name)
                .help(help)
                .classicOnly()
                .classicUpperBounds(bounds)
                .labelNames("model_name", "engine")
                .register(page.registry)
                .labelValues(labels);
    }

    private CounterDataPoint counter(String name, String help) {
        return Counter.builder()
                .name(name)
                .help(help)
                .labelNames("model_name", "engine")
                .register(page.registry)
                .labelValues(labels);
    }

    private static double seconds(long nanos) {
        return nanos / 1e9;
    }

    @Override
    public void firstToken(long nanos) {
        firstToken.observe(seconds(nanos));
    }

    @Override
    public void nextToken(long nanos) {
        nextToken.observe(seconds(nanos));
    }

    @Override
    public void step(int tokens) {
        stepTokens.observe(tokens);
    }

    @Override
    public void ended(FinishReason reason, Usage usage, Times times) {
        Objects.requireNonNull(ended.get(reason)).inc();
        total.observe(seconds(times.total()));
        queued.observe(seconds(times.queued()));
        prefill.observe(seconds(times.prefill()));
        decode.observe(seconds(times.decode()));
        inference.observe(seconds(times.prefill() + times.decode()));
        promptTokens.observe(usage.promptTokens());
        generatedTokens.observe(usage.generatedTokens());
        computedTokens.observe(usage.computedTokens());
        localCompute.inc(usage.computedTokens());
        localCacheHit.inc(usage.localTokens());
        externalKvTransfer.inc(usage.cachedTokens() - usage.localTokens());
        int recomputed =
                Math.clamp(
                        (long) usage.computedTokens() + usage.cachedTokens() - usage.promptTokens(),
                        0,
                        usage.cachedTokens());
        cachedTokens.inc(usage.cachedTokens() - recomputed);
        recomputedTokens.inc(recomputed);
        preemptions.observe(usage.preemptions());
        cachedOnDevice.inc(usage.localTokens());
        usage.external()
                .forEach(share ->
                        Objects.requireNonNull(cachedInTier.get(share.tier())).inc(share.tokens()));
        if (usage.generatedTokens() > 1) {
            perOutputToken.observe(seconds(times.decode()) / (usage.generatedTokens() - 1));
        }
    }
}
