// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.ToDoubleFunction;

/// What one contender did in all rounds of a row; empty where it is not installed.
public final class Rounds {
    private final List<Run> runs = new ArrayList<>();

    public void add(Run run) {
        runs.add(run);
    }

    public boolean isEmpty() {
        return runs.isEmpty();
    }

    /// The middle of a quantity, `-` without rounds.
    public Object median(ToDoubleFunction<Run> quantity) {
        return isEmpty() ? "-" : middle(runs.stream().mapToDouble(quantity).sorted().toArray());
    }

    /// Minimum, median and maximum of the ratio of these rates to another contender's, round by
    /// round, because only rounds measured together saw the same load on the machine.
    public String ratios(Rounds other) {
        if (other.isEmpty()) {
            return "-";
        }
        var ratios = new double[Math.min(runs.size(), other.runs.size())];
        for (int i = 0; i < ratios.length; i++) {
            ratios[i] = runs.get(i).rate() / other.runs.get(i).rate();
        }
        return spread(ratios);
    }

    /// Least, median and greatest.
    public static String spread(double... values) {
        var sorted = values.clone();
        Arrays.sort(sorted);
        return "%.2f, %.2f, %.2f".formatted(sorted[0], middle(sorted), sorted[sorted.length - 1]);
    }

    private static double middle(double[] sorted) {
        return sorted[sorted.length / 2];
    }
}
