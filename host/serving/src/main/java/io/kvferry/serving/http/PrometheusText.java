// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;

/// Writes Prometheus' text format, version 0.0.4. Samples of one metric may be added in any order;
/// they come out together under one HELP and TYPE, as the format demands.
///
/// Threading: one thread.
public final class PrometheusText {
    /// What the Content-Type header says.
    public static final String CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

    private final Map<String, StringBuilder> families = new LinkedHashMap<>();

    /// A count that only grows. `labels` are name, value, name, value, ...
    public PrometheusText counter(String name, String help, double value, String... labels) {
        return sample(name, "counter", help, "", value, labels);
    }

    /// A value that goes up and down.
    public PrometheusText gauge(String name, String help, double value, String... labels) {
        return sample(name, "gauge", help, "", value, labels);
    }

    /// Count and sum of a quantity.
    public PrometheusText summary(
            String name, String help, long count, double sum, String... labels) {
        sample(name, "summary", help, "_count", (double) count, labels);
        return sample(name, "summary", help, "_sum", sum, labels);
    }

    private PrometheusText sample(
            String name, String type, String help, String suffix, double value, String... labels) {
        var metric = clean(name);
        var family =
                families.computeIfAbsent(
                        metric,
                        _ ->
                                new StringBuilder()
                                        .append("# HELP ")
                                        .append(metric)
                                        .append(' ')
                                        .append(help.replace("\\", "\\\\").replace("\n", "\\n"))
                                        .append("\n# TYPE ")
                                        .append(metric)
                                        .append(' ')
                                        .append(type)
                                        .append('\n'));
        family.append(metric).append(suffix);
        for (int i = 0; i + 1 < labels.length; i += 2) {
            family.append(i == 0 ? '{' : ',')
                    .append(clean(labels[i]))
                    .append("=\"")
                    .append(escape(labels[i + 1]))
                    .append('"');
        }
        if (labels.length > 1) {
            family.append('}');
        }
        family.append(' ').append(number(value)).append('\n');
        return this;
    }

    private static String clean(String name) {
        return name.replaceAll("[^a-zA-Z0-9_:]", "_");
    }

    private static String escape(String value) {
        return value.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n");
    }

    private static String number(double value) {
        return value == Math.rint(value) && Math.abs(value) < 1e15
                ? Long.toString((long) value)
                : Double.toString(value);
    }

    /// The first sample of `metric` whose label part contains `labelPart`, out of a text that some
    /// server wrote.
    public static Optional<Double> find(String text, String metric, String labelPart) {
        return text.lines()
                .filter(line -> line.startsWith(metric + " ") || line.startsWith(metric + "{"))
                .filter(line -> line.contains(labelPart))
                .map(line -> Double.valueOf(line.substring(line.lastIndexOf(' ') + 1)))
                .findFirst();
    }

    @Override
    public String toString() {
        var out = new StringBuilder();
        families.values().forEach(out::append);
        return out.toString();
    }
}
