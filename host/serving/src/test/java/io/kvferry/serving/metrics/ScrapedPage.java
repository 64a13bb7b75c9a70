// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.metrics;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/// A page in Prometheus' text format 0.0.4, read as strictly as its specification says: each metric
/// once, HELP and TYPE before its samples, no sample twice, counters named `_total`, histograms
/// whose buckets grow to a `+Inf` that equals their count.
final class ScrapedPage {
    private static final Pattern META =
            Pattern.compile("# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)");
    private static final Pattern SAMPLE =
            Pattern.compile("([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\\{(.*)})? (\\S+)");
    private static final Pattern LABEL =
            Pattern.compile("([a-zA-Z_][a-zA-Z0-9_]*)=\"((?:[^\"\\\\]|\\\\[\\\\n\"])*)\"(,|$)");

    private final Map<String, String> types = new LinkedHashMap<>();
    private final Map<String, Map<Map<String, String>, Double>> samples = new HashMap<>();

    ScrapedPage(String text) {
        assertThat(text).endsWith("\n");
        String family = "";
        Set<String> closed = new HashSet<>();
        for (var line : text.split("\n", -1)) {
            if (line.isEmpty()) {
                continue;
            }
            var meta = META.matcher(line);
            if (meta.matches()) {
                if (!meta.group(2).equals(family)) {
                    closed.add(family);
                    family = meta.group(2);
                    assertThat(closed).as("metric in two places").doesNotContain(family);
                }
                if (meta.group(1).equals("TYPE")) {
                    assertThat(types.put(family, meta.group(3))).as(line).isNull();
                }
                continue;
            }
            var sample = SAMPLE.matcher(line);
            assertThat(sample.matches()).as(line).isTrue();
            add(family, sample);
        }
        histograms();
    }

    private void add(String family, Matcher sample) {
        var type = types.get(family);
        var name = sample.group(1);
        switch (type) {
            case "counter" -> assertThat(name).isEqualTo(family).endsWith("_total");
            case "gauge" -> assertThat(name).isEqualTo(family);
            case "histogram" ->
                    assertThat(name).isIn(family + "_bucket", family + "_count", family + "_sum");
            case null, default -> throw new AssertionError(name + " of type " + type);
        }
        var labels = labels(sample.group(2));
        var before =
                samples.computeIfAbsent(name, _ -> new HashMap<>())
                        .put(labels, Double.valueOf(sample.group(3).replace("+Inf", "Infinity")));
        assertThat(before).as("%s%s twice", name, labels).isNull();
    }

    private static Map<String, String> labels(String text) {
        var labels = new TreeMap<String, String>();
        if (text == null) {
            return labels;
        }
        var label = LABEL.matcher(text);
        int at = 0;
        while (at < text.length()) {
            assertThat(label.find(at) && label.start() == at).as("labels {%s}", text).isTrue();
            assertThat(labels.put(label.group(1), label.group(2))).as(text).isNull();
            at = label.end();
        }
        return labels;
    }

    private void histograms() {
        types.forEach((family, type) -> {
            if (!type.equals("histogram")) {
                return;
            }
            var series = new HashMap<Map<String, String>, TreeMap<Double, Double>>();
            samples(family + "_bucket")
                    .forEach((labels, value) -> {
                        var rest = new TreeMap<>(labels);
                        var bound =
                                Double.valueOf(
                                        Objects.requireNonNull(rest.remove("le"))
                                                .replace("+Inf", "Infinity"));
                        series.computeIfAbsent(rest, _ -> new TreeMap<>()).put(bound, value);
                    });
            series.forEach((labels, buckets) -> {
                double last = 0;
                for (double count : buckets.values()) {
                    assertThat(count).as("%s %s", family, labels).isGreaterThanOrEqualTo(last);
                    last = count;
                }
                assertThat(buckets.lastKey()).isEqualTo(Double.POSITIVE_INFINITY);
                assertThat(samples.get(family + "_count")).containsEntry(labels, last);
                assertThat(samples.get(family + "_sum")).containsKey(labels);
            });
        });
    }

    private Map<Map<String, String>, Double> samples(String name) {
        assertThat(samples).containsKey(name);
        return Objects.requireNonNull(samples.get(name));
    }

    Set<String> metrics() {
        return types.keySet();
    }

    /// counter, gauge or histogram; empty when it is not there.
    String type(String metric) {
        return types.getOrDefault(metric, "");
    }

    /// The labels of its samples, `le` not among them.
    Set<String> labelNames(String metric) {
        boolean histogram = type(metric).equals("histogram");
        var names = new TreeSet<String>();
        samples(histogram ? metric + "_count" : metric)
                .keySet()
                .forEach(labels -> names.addAll(labels.keySet()));
        return names;
    }

    /// The finite bounds of a histogram, in order.
    List<Double> bounds(String histogram) {
        return samples(histogram + "_bucket").keySet().stream()
                .map(labels -> Objects.requireNonNull(labels.get("le")))
                .filter(bound -> !bound.equals("+Inf"))
                .map(Double::valueOf)
                .distinct()
                .sorted()
                .toList();
    }

    /// The sum of the samples whose labels contain these (name, value, ...).
    double value(String name, String... labels) {
        return samples(name).entrySet().stream()
                .filter(entry -> contains(entry.getKey(), labels))
                .mapToDouble(Map.Entry::getValue)
                .sum();
    }

    private static boolean contains(Map<String, String> all, String... labels) {
        for (int i = 0; i < labels.length; i += 2) {
            if (!labels[i + 1].equals(all.get(labels[i]))) {
                return false;
            }
        }
        return true;
    }
}
