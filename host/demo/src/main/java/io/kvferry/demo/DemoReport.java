// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import io.kvferry.serving.http.Json;

import tools.jackson.databind.node.ObjectNode;

import java.io.PrintWriter;
import java.util.List;
import java.util.Locale;
import java.util.SequencedMap;
import java.util.TreeSet;

/// What the demo prints.
///
/// @param samples of all requests
/// @param instances what each engine's metrics tell, by instance name, prefill first
public record DemoReport(List<Sample> samples, SequencedMap<String, InstanceFigures> instances) {
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

    /// For scripts.
    public ObjectNode toJson() {
        var json =
                Json.object()
                        .put("ok", allMatch())
                        .put("requests", samples.size())
                        .put("tokens_expected", expectedTokens())
                        .put("tokens_identical", identicalTokens());
        json.set("ttft_ms", latencies(ttft()));
        json.set("tpot_ms", latencies(tpot()));
        json.set("itl_ms", latencies(itl()));
        var engines = json.putObject("engines");
        instances.forEach((name, figures) -> {
            var engine = engines.putObject(name).put("hit_rate", figures.hitRate());
            engine.set("prompt_tokens_by_source", Json.tree(figures.promptTokens()));
            engine.set("connectors", Json.tree(figures.connectors()));
        });
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
        sources(out);
        instances.forEach((name, figures) -> {
            out.printf("%nconnectors of %s%n", name);
            int width =
                    figures.connectors().keySet().stream().mapToInt(String::length).max().orElse(0);
            figures.connectors()
                    .forEach((figure, value) ->
                            out.printf(
                                    Locale.ROOT,
                                    "  %-"
                                            + Math.max(44, width)
                                            + (value == Math.rint(value)
                                                    ? "s %,14.0f%n"
                                                    : "s %,14.3f%n"),
                                    figure,
                                    value));
        });
        out.flush();
    }

    /// A column per engine: where the KV of its prompt tokens came from.
    private void sources(PrintWriter out) {
        out.printf("%n%-28s", "prompt tokens came from");
        instances.keySet().forEach(name -> out.printf(" %12s", name));
        out.println();
        var names = new TreeSet<String>();
        instances.values().forEach(figures -> names.addAll(figures.promptTokens().keySet()));
        for (var source : names) {
            out.printf("  %-26s", source);
            instances
                    .values()
                    .forEach(figures ->
                            out.printf(" %12d", figures.promptTokens().getOrDefault(source, 0L)));
            out.println();
        }
        out.printf("  %-26s", "hit rate");
        instances
                .values()
                .forEach(figures -> out.printf(Locale.ROOT, " %10.1f %%", 100 * figures.hitRate()));
        out.println();
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
