// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/// Figures from an instance's `/metrics` at the end of the demo.
///
/// @param promptTokens prompt tokens by where their KV came from: own cache, a connector, computed
/// @param connectors counters of the connectors, and sums of their distributions, by `connector
///   figure`, and by what their further labels say, such as an operation and its status
public record InstanceFigures(
        SortedMap<String, Long> promptTokens, SortedMap<String, Double> connectors) {
    static final String COMPUTED = "computed";

    private static final Pattern SOURCE =
            Pattern.compile(
                    "kvferry_prompt_tokens_by_source_total\\{connector=\"([^\"]*)\",source=\"([^\"]*)\"} (.+)");

    private static final Pattern FIGURE =
            Pattern.compile(
                    "(?:kvferry_kv_|vllm:)(.+?)_(?:total|sum)\\{connector=\"([^\"]*)\",([^}]*)} (.+)");

    private static final Pattern LABEL = Pattern.compile("([^=,]+)=\"([^\"]*)\"");

    /// Labels that are the same for all figures of an instance.
    private static final Set<String> OF_INSTANCE = Set.of("engine", "model_name");

    static InstanceFigures parse(String metrics) {
        var sources = new TreeMap<String, Long>();
        var connectors = new TreeMap<String, Double>();
        metrics.lines()
                .forEach(line -> {
                    var source = SOURCE.matcher(line);
                    var figure = FIGURE.matcher(line);
                    if (source.matches()) {
                        var name = source.group(1).isEmpty() ? source.group(2) : source.group(1);
                        sources.put(name, (long) Double.parseDouble(source.group(3)));
                    } else if (figure.matches()) {
                        connectors.put(
                                figure.group(2)
                                        + " "
                                        + figure.group(1)
                                        + furtherLabels(figure.group(3)),
                                Double.valueOf(figure.group(4)));
                    }
                });
        return new InstanceFigures(sources, connectors);
    }

    private static String furtherLabels(String labels) {
        return LABEL.matcher(labels)
                .results()
                .filter(label -> !OF_INSTANCE.contains(label.group(1)))
                .map(label -> " " + label.group(2))
                .collect(Collectors.joining());
    }

    long allPromptTokens() {
        return promptTokens.values().stream().mapToLong(Long::longValue).sum();
    }

    /// Share of the prompt tokens that needed no computing.
    double hitRate() {
        long all = allPromptTokens();
        return all == 0 ? 0 : 1.0 - (double) promptTokens.getOrDefault(COMPUTED, 0L) / all;
    }
}
