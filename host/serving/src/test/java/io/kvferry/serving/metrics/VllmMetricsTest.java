// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.metrics;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.EngineStats;
import io.kvferry.engine.RequestListener;
import io.kvferry.engine.Usage;
import io.kvferry.spi.kv.FinishReason;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.observe.Distribution;
import io.kvferry.spi.observe.Stats;

import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;

/// Every metric of vLLM 0.33.0, as its source defines them: here with the same type, labels and
/// bounds, or named in the page for operators as one that does not apply.
class VllmMetricsTest {
    /// @param type empty for one that is not served
    private record Row(String name, String type, Set<String> labels, List<Double> bounds) {
        boolean isServed() {
            return !type.isEmpty();
        }

        boolean covers(String metric) {
            return name.endsWith("*")
                    ? metric.startsWith(name.substring(0, name.length() - 1))
                    : metric.equals(name);
        }
    }

    private static List<Row> rows() throws IOException {
        var rows = new ArrayList<Row>();
        try (var in = VllmMetricsTest.class.getResourceAsStream("/vllm-0.33.0-metrics.txt")) {
            var text =
                    new String(Objects.requireNonNull(in).readAllBytes(), StandardCharsets.UTF_8);
            for (var line : text.lines().filter(each -> !each.startsWith("#")).toList()) {
                var parts = List.of(line.split(" "));
                var labels = new TreeSet<String>();
                var more = parts.size() > 2 ? parts.get(2).replace("\"", "") : "";
                if (!more.startsWith("=")) {
                    labels.addAll(List.of("model_name", "engine"));
                }
                Arrays.stream(more.replace("=", "").split(","))
                        .filter(each -> !each.isEmpty())
                        .forEach(labels::add);
                var bounds =
                        parts.size() > 3
                                ? Arrays.stream(parts.get(3).split(",")).map(Double::valueOf)
                                : Stream.<Double>empty();
                rows.add(
                        new Row(
                                parts.get(0),
                                parts.get(1).equals("-") ? "" : parts.get(1),
                                labels,
                                bounds.toList()));
            }
        }
        assertThat(rows).hasSizeGreaterThan(50);
        return rows;
    }

    @Test
    void areServedOrNamedAsNotServed() throws Exception {
        var page = page();
        var rows = rows();
        var operating = operatingPage();
        for (var row : rows) {
            if (!row.isServed()) {
                assertThat(operating).as("says why not").contains("`" + row.name + "`");
                assertThat(page.metrics()).noneMatch(row::covers);
                continue;
            }
            assertThat(page.type(row.name)).as(row.name).isEqualTo(row.type);
            assertThat(page.labelNames(row.name)).as(row.name).isEqualTo(row.labels);
            if (!row.bounds.isEmpty()) {
                assertThat(page.bounds(row.name)).as(row.name).isEqualTo(row.bounds);
            }
        }
        assertThat(page.metrics())
                .filteredOn(metric -> metric.startsWith("vllm:"))
                .allSatisfy(metric ->
                        assertThat(rows)
                                .as("%s is vLLM's", metric)
                                .anyMatch(row -> row.covers(metric)));
    }

    private static String operatingPage() throws IOException {
        var folder = Path.of("").toAbsolutePath();
        while (!Files.exists(folder.resolve("docs/operating.md"))) {
            folder = Objects.requireNonNull(folder.getParent(), "docs/operating.md");
        }
        return Files.readString(folder.resolve("docs/operating.md"));
    }

    @Test
    void waitingRequestsAreThoseOfAllReasons() throws Exception {
        var page = page();
        var reasons = "vllm:num_requests_waiting_by_reason";
        assertThat(page.value(reasons, "reason", "capacity")).isEqualTo(4 - 2);
        assertThat(page.value(reasons, "reason", "deferred")).isEqualTo(2 + 3);
        assertThat(page.value("vllm:num_requests_waiting")).isEqualTo(page.value(reasons));
        var stages = "vllm:num_requests_kv_fetch_by_stage";
        assertThat(page.value(stages, "stage", "waiting_to_start")).isEqualTo(2);
        assertThat(page.value(stages, "stage", "in_progress")).isEqualTo(3);
        assertThat(page.value(stages, "stage", "completed_waiting")).isEqualTo(1);
    }

    @Test
    void cachedTokensAreCountedByWhereTheyLay() throws Exception {
        var page = page();
        var sources = "vllm:prompt_tokens_cached_by_source_total";
        assertThat(page.value(sources, "source", "device")).isEqualTo(16);
        assertThat(page.value(sources, "source", "disk")).isEqualTo(32);
        assertThat(page.value(sources, "source", "p2p")).isEqualTo(8);
        assertThat(page.value(sources, "source", "host")).isZero();
        assertThat(page.value(sources, "source", "external_unspecified")).isZero();
    }

    @Test
    void callsOfTheStoreHaveOperationAndStatus() throws Exception {
        var page = page();
        String[] puts = {"operation", "save_put", "status", "partial_failure"};
        assertThat(page.value("vllm:mooncake_store_operation_total", puts)).isEqualTo(3);
        assertThat(page.value("vllm:mooncake_store_operation_failed_keys_total", puts))
                .isEqualTo(5);
        assertThat(page.value("vllm:mooncake_store_operation_time_seconds_sum", puts))
                .isEqualTo(0.25);
        assertThat(page.value("vllm:mooncake_store_operation_total", "operation", "load_get"))
                .isEqualTo(1);
    }

    /// All that an engine with both of Mooncake's connectors has to tell.
    private static ScrapedPage page() throws IOException {
        var metrics = new EngineMetrics("m", 2048);
        metrics.cache(16, 1000);
        metrics.asked(2, 100);
        metrics.longestAnswer(40);
        metrics.rejected();
        var stats = stats();
        metrics.watch(() -> stats, "MultiConnector", "");
        var listener = metrics.listener();
        listener.firstToken(1);
        listener.nextToken(1);
        listener.step(3);
        var shares =
                List.of(
                        new LookupResult.Share("disk", LookupResult.Tier.DISK, 32),
                        new LookupResult.Share("p2p", LookupResult.Tier.PEER, 8));
        listener.ended(
                FinishReason.LENGTH,
                new Usage(100, 40, 16, shares, 44, 1),
                new RequestListener.Times(1, 1, 1, 3));
        return new ScrapedPage(new String(metrics.page().write("").body(), StandardCharsets.UTF_8));
    }

    private static EngineStats stats() {
        var counters = new HashMap<String, Long>();
        for (var name :
                List.of("num_failed_transfers", "num_failed_recvs", "num_kv_expired_reqs")) {
            counters.put("p2p/mooncake_" + name, 1L);
        }
        var times = new HashMap<String, Distribution>();
        for (var name : List.of("xfer_time_us", "bytes_transferred", "num_descriptors")) {
            times.put("p2p/mooncake_" + name, Distribution.of(7));
        }
        var put = "store/mooncake_store_save_put_partial_failure_";
        counters.putAll(
                Map.of(
                        put + "total",
                        3L,
                        put + "keys_total",
                        9L,
                        put + "bytes_total",
                        4096L,
                        put + "failed_keys_total",
                        5L,
                        "store/mooncake_store_load_get_ok_total",
                        1L));
        times.put(put + "time_us", Distribution.of(250_000));
        var engine = new HashMap<String, Long>();
        for (var name :
                List.of(
                        "prompt_tokens",
                        "generated_tokens",
                        "preemptions",
                        "local_queried_tokens",
                        "local_hit_tokens",
                        "external_queried_tokens",
                        "external_delivered_tokens")) {
            engine.put(name, 1L);
        }
        return new EngineStats(
                4,
                3,
                1,
                2,
                5,
                0,
                0,
                10,
                1000,
                0,
                0,
                0,
                0,
                1,
                engine,
                new Stats(counters, Map.of(), times),
                Stats.EMPTY,
                "",
                "");
    }
}
