// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.metrics;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.kvferry.engine.EngineStats;
import io.kvferry.serving.ServedEngine;
import io.kvferry.serving.TestSettings;
import io.kvferry.serving.http.TestClient;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.observe.Distribution;
import io.kvferry.spi.observe.Stats;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;

class EngineMetricsTest {
    private static final String PROMPT = "a prompt of thirty-two tokens...";

    @Test
    void figuresAreWhatTheRequestsDid(@TempDir Path folder) throws Exception {
        try (var engine = new ServedEngine(TestSettings.synthetic().disk(folder).get())) {
            engine.complete(PROMPT, 8);
            engine.awaitSaved();
            engine.complete(PROMPT, 8);
            assertThat(TestClient.post(engine.port(), "/v1/completions", "{").statusCode())
                    .isEqualTo(400);
            engine.awaitSaved();
            var limit = Deadline.in(Duration.ofSeconds(30));
            while (engine.metric("kvferry_http_responses_total", "status=\"400\"") == 0) {
                assertThat(limit.passed()).as("counted once it is out").isFalse();
            }

            var page = new ScrapedPage(engine.metrics());

            int prompt = 32;
            assertThat(page.value("vllm:prompt_tokens_total")).isEqualTo(2 * prompt);
            assertThat(page.value("vllm:generation_tokens_total")).isEqualTo(16);
            assertThat(page.value("vllm:request_success_total", "finished_reason", "length"))
                    .isEqualTo(2);
            assertThat(page.value("vllm:request_success_total")).isEqualTo(2);
            assertThat(page.value("vllm:time_to_first_token_seconds_count")).isEqualTo(2);
            assertThat(page.value("vllm:inter_token_latency_seconds_count")).isEqualTo(14);
            assertThat(page.value("vllm:request_time_per_output_token_seconds_count")).isEqualTo(2);
            for (var histogram :
                    new String[] {
                        "e2e_request_latency_seconds",
                        "request_queue_time_seconds",
                        "request_inference_time_seconds",
                        "request_prefill_time_seconds",
                        "request_decode_time_seconds"
                    }) {
                assertThat(page.value("vllm:" + histogram + "_count")).isEqualTo(2);
            }
            assertThat(page.value("vllm:request_prompt_tokens_sum")).isEqualTo(2 * prompt);
            assertThat(page.value("vllm:request_generation_tokens_sum")).isEqualTo(16);
            // A request's parts are not longer than the whole.
            assertThat(
                            page.value("vllm:request_queue_time_seconds_sum")
                                    + page.value("vllm:request_inference_time_seconds_sum"))
                    .isLessThanOrEqualTo(page.value("vllm:e2e_request_latency_seconds_sum"));
            assertThat(page.value("vllm:prefix_cache_queries_total")).isEqualTo(2 * prompt);
            assertThat(page.value("vllm:prefix_cache_hits_total"))
                    .isEqualTo(
                            page.value(
                                    "kvferry_prompt_tokens_by_source_total", "source", "own cache"))
                    .isEqualTo(16); // all full blocks but the one with the last token
            var sources = "vllm:prompt_tokens_by_source_total";
            assertThat(page.value(sources, "source", "local_cache_hit")).isEqualTo(16);
            double computed = page.value(sources, "source", "local_compute");
            double external = page.value(sources, "source", "external_kv_transfer");
            assertThat(computed).isBetween(prompt + 1.0, 2.0 * prompt - 16);
            // The last token of a prompt that is cached as a whole is computed again.
            double again = page.value("kvferry_prompt_tokens_recomputed_total");
            assertThat(again).isBetween(0.0, 1.0);
            assertThat(page.value(sources) - again).isEqualTo(2 * prompt);
            assertThat(page.value("vllm:prompt_tokens_cached_total"))
                    .isEqualTo(16 + external - again);
            assertThat(page.value("vllm:request_prefill_kv_computed_tokens_sum"))
                    .isEqualTo(computed);
            assertThat(page.value("vllm:prompt_tokens_cached_by_source_total"))
                    .isEqualTo(16 + external);
            assertThat(page.value("vllm:request_params_n_sum")).isEqualTo(2);
            assertThat(page.value("vllm:request_params_max_tokens_sum")).isEqualTo(16);
            assertThat(page.value("vllm:request_max_num_generation_tokens_sum")).isEqualTo(16);
            assertThat(page.value("vllm:request_num_preemptions_count")).isEqualTo(2);
            assertThat(page.value("vllm:cache_config_info", "block_size", "16")).isEqualTo(1);
            assertThat(page.value("vllm:admission_rejections_total")).isZero();
            assertThat(page.value("vllm:num_requests_waiting_by_reason")).isZero();
            assertThat(page.value("vllm:num_requests_kv_fetch_by_stage")).isZero();
            assertThat(page.value("vllm:num_requests_running")).isZero();
            assertThat(page.value("vllm:num_requests_waiting")).isZero();
            assertThat(page.value("vllm:kv_cache_usage_perc")).isZero();
            assertThat(page.value("vllm:prompt_tokens_total", "engine", "0")).isEqualTo(64);
            assertThat(
                            page.value(
                                    "kvferry_kv_disk_save_blocks_total",
                                    "connector",
                                    "DiskConnector"))
                    .isPositive();
            assertThat(page.value("kvferry_http_responses_total", "status", "400")).isEqualTo(1);
            assertThat(page.value("kvferry_http_responses_total", "status", "200"))
                    .isGreaterThanOrEqualTo(2);
        }
    }

    @Test
    void scrapersGetTheFormatThatTheyAskFor() throws Exception {
        try (var engine = new ServedEngine(TestSettings.synthetic().get());
                var client = HttpClient.newHttpClient()) {
            var request =
                    HttpRequest.newBuilder(TestClient.uri(engine.port(), "/metrics"))
                            .header("Accept", "application/openmetrics-text;version=1.0.0")
                            .build();
            var response = client.send(request, BodyHandlers.ofString());
            assertThat(response.headers().firstValue("Content-Type"))
                    .hasValueSatisfying(type -> assertThat(type).contains("openmetrics-text"));
            assertThat(response.body()).endsWith("# EOF\n");
            var plain = TestClient.get(engine.port(), "/metrics");
            assertThat(plain.headers().firstValue("Content-Type"))
                    .hasValueSatisfying(type -> assertThat(type).startsWith("text/plain"));
        }
    }

    @Test
    void figuresOfConnectorsKeepTheirKindAndGetSeconds() throws Exception {
        var stats =
                new Stats(
                        Map.of("p2p/mooncake_num_failed_recvs", 3L, "disk/wait_ms", 1500L),
                        Map.of("disk/used_bytes", 7L),
                        Map.of(
                                "p2p/mooncake_xfer_time_us",
                                Distribution.of(2_000_000).merge(Distribution.of(1))));
        var page = page(stats);
        assertThat(page.value("vllm:mooncake_num_failed_recvs_total", "connector", "p2p"))
                .isEqualTo(3);
        assertThat(page.value("kvferry_kv_wait_seconds_total", "connector", "disk")).isEqualTo(1.5);
        assertThat(page.value("kvferry_kv_used_bytes", "connector", "disk")).isEqualTo(7);
        assertThat(page.value("vllm:mooncake_xfer_time_seconds_count")).isEqualTo(2);
        assertThat(page.value("vllm:mooncake_xfer_time_seconds_sum"))
                .isCloseTo(2.000001, within(1e-9));
        assertThat(page.value("vllm:mooncake_xfer_time_seconds_bucket", "le", "1.0E-6"))
                .isEqualTo(1);
    }

    @Test
    void noNameThatAPluginChoosesSpoilsThePage() throws Exception {
        var stats =
                new Stats(
                        Map.of(
                                "a/loads",
                                1L,
                                "b/loads",
                                2L,
                                "c/9 läuse\n{",
                                1L,
                                "a/x_total",
                                4L,
                                "a/y_bucket",
                                1L),
                        Map.of("c/loads", 9L, "a/x_total", 4L, "\"\\\n/level", 1L),
                        Map.of("d/loads", Distribution.of(4)));
        var page = page(stats);
        assertThat(page.value("kvferry_kv_loads_total")).isEqualTo(3);
        assertThat(page.value("kvferry_kv_loads_gauge")).isEqualTo(9);
        assertThat(page.value("kvferry_kv_loads_histogram_count")).isEqualTo(1);
    }

    private static ScrapedPage page(Stats connector) throws Exception {
        var metrics = new EngineMetrics("model \"with\" quotes", 4096);
        var stats =
                new EngineStats(
                        0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        0,
                        1,
                        1,
                        0,
                        0,
                        0,
                        0,
                        0,
                        Map.of(),
                        connector,
                        Stats.EMPTY,
                        "",
                        "");
        metrics.watch(() -> stats, "MultiConnector", "");
        return new ScrapedPage(new String(metrics.page().write("").body(), StandardCharsets.UTF_8));
    }
}
