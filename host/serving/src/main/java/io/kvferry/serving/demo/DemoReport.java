// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.demo;

import io.kvferry.serving.http.Json;

import tools.jackson.databind.node.ObjectNode;

import java.io.PrintWriter;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.regex.Pattern;

/// What the demo prints.
///
/// @param samples of all requests
/// @param connectorFigures by instance name, then by `connector figure`, as `/metrics` has them
public record DemoReport(
        List<Sample> samples, SortedMap<String, SortedMap<String, Double>> connectorFigures) {
    /// A connector's counter, or the sum of one of its distributions.
    private static final Pattern FIGURE =
            Pattern.compile("kvferry_kv_(.+?)_(?:total|sum)\\{connector=\"([^\"]*)\"} (.+)");

    /// Reads the connector figures out of an instance's `/metrics`.
    static SortedMap<String, Double> connectorFigures(String metrics) {
        var figures = new TreeMap<String, Double>();
        metrics.lines()
                .forEach(line -> {
                    var match = FIGURE.matcher(line);
                    if (match.matches()) {
                        var connector =
                                match.group(2).isEmpty() ? "MultiConnector" : match.group(2);
                        figures.put(
                                connector + " " + match.group(1), Double.valueOf(match.group(3)));
                    }
                });
        return figures;
    }

    int expectedTokens() {
        return samples.stream().mapToInt(s -> s.turn().expected().length).sum();
    }

    int identicalTokens() {
        return samples.stream().mapToInt(Sample::identical).sum();
    }

    /// Whether every request ended well with the expected tokens.
    public boolean allMatch() {
        return samples.stream().allMatch(Sample::matches);
    }

    private Latencies ttft() {
        return Latencies.ofNanos(
                samples.stream().filter(s -> s.ttftNanos() > 0).map(Sample::ttftNanos).toList());
    }

    private Latencies tpot() {
        return Latencies.ofNanos(
                samples.stream()
                        .filter(s -> !s.gapNanos().isEmpty())
                        .map(s ->
                                s.gapNanos().stream().mapToLong(Long::longValue).sum()
                                        / s.gapNanos().size())
                        .toList());
    }

    private Latencies itl() {
        return Latencies.ofNanos(samples.stream().flatMap(s -> s.gapNanos().stream()).toList());
    }

    /// Prompt tokens of the decode side by where their KV came from; `computed` is the rest.
    private Map<String, Integer> sources() {
        var sources = new TreeMap<String, Integer>();
        int computed = 0;
        for (var sample : samples) {
            sources.merge("own cache", sample.localTokens(), Integer::sum);
            sample.externalTokens()
                    .forEach((source, tokens) -> sources.merge(source, tokens, Integer::sum));
            computed +=
                    sample.promptTokens()
                            - sample.localTokens()
                            - sample.externalTokens().values().stream()
                                    .mapToInt(Integer::intValue)
                                    .sum();
        }
        sources.put("computed", computed);
        return sources;
    }

    private int promptTokens() {
        return samples.stream().mapToInt(Sample::promptTokens).sum();
    }

    private double hitRate() {
        int prompt = promptTokens();
        return prompt == 0 ? 0 : 1.0 - (double) sources().getOrDefault("computed", 0) / prompt;
    }

    /// For scripts.
    public ObjectNode toJson() {
        var json =
                Json.object()
                        .put("ok", allMatch())
                        .put("requests", samples.size())
                        .put("tokens_expected", expectedTokens())
                        .put("tokens_identical", identicalTokens())
                        .put("prompt_tokens", promptTokens())
                        .put("hit_rate", hitRate());
        json.set("ttft_ms", latencies(ttft()));
        json.set("tpot_ms", latencies(tpot()));
        json.set("itl_ms", latencies(itl()));
        json.set("prompt_tokens_by_source", Json.tree(sources()));
        json.set("connectors", Json.tree(connectorFigures));
        var errors = json.putArray("errors");
        samples.stream()
                .filter(s -> !s.error().isEmpty())
                .forEach(s -> errors.add(where(s) + ": " + s.error()));
        return json;
    }

    private static ObjectNode latencies(Latencies l) {
        return Json.object()
                .put("count", l.count())
                .put("mean", l.meanMs())
                .put("median", l.medianMs())
                .put("p99", l.p99Ms());
    }

    /// For people.
    public void print(PrintWriter out) {
        for (var sample : samples) {
            if (!sample.matches()) {
                out.printf(
                        "%s: %d of %d tokens identical. %s%n",
                        where(sample),
                        sample.identical(),
                        sample.turn().expected().length,
                        sample.error());
            }
        }
        out.printf(
                "tokens identical  %d/%d  (%d requests)%n",
                identicalTokens(), expectedTokens(), samples.size());
        out.printf("%n%-18s %10s %10s %10s%n", "milliseconds", "mean", "median", "P99");
        row(out, "TTFT", ttft());
        row(out, "TPOT", tpot());
        row(out, "ITL", itl());
        out.printf(
                Locale.ROOT,
                "%nprompt tokens at decode: %d, hit rate %.1f %%%n",
                promptTokens(),
                100 * hitRate());
        sources().forEach((source, tokens) -> out.printf("  %-28s %8d%n", source, tokens));
        connectorFigures.forEach((instance, figures) -> {
            out.printf("%nconnectors of %s%n", instance);
            figures.forEach(
                    (figure, value) -> out.printf(Locale.ROOT, "  %-44s %,14.0f%n", figure, value));
        });
        out.flush();
    }

    private static void row(PrintWriter out, String name, Latencies l) {
        out.printf(
                Locale.ROOT,
                "%-18s %10.2f %10.2f %10.2f%n",
                name,
                l.meanMs(),
                l.medianMs(),
                l.p99Ms());
    }

    private static String where(Sample sample) {
        return "conversation " + sample.turn().conversation() + ", turn " + sample.turn().index();
    }
}
