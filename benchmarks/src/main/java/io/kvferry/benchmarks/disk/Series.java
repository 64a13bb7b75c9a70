// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/// The same work by the store and by each limit, round by round.
final class Series {
    final List<StoreRun.Result> ours = new ArrayList<>();
    final List<List<FileLimit.Work>> limits = new ArrayList<>();

    Series(int limits) {
        for (int i = 0; i < limits; i++) {
            this.limits.add(new ArrayList<>());
        }
    }

    double rate() {
        return median(ours.stream().map(StoreRun.Result::rate).toList());
    }

    double rate(int limit) {
        return median(limits.get(limit).stream().map(FileLimit.Work::rate).toList());
    }

    double cpuMicros() {
        return median(ours.stream().map(StoreRun.Result::cpuMicros).toList());
    }

    /// Per file.
    double cpuMicros(int limit) {
        return median(limits.get(limit).stream().map(FileLimit.Work::cpuMicros).toList());
    }

    /// Least heap bytes per block of a round.
    long allocated() {
        return Math.round(ours.stream().mapToDouble(StoreRun.Result::allocated).min().orElse(0));
    }

    /// Our rate of each round in terms of the limit's: least, median and greatest.
    String ratios(int limit) {
        var theirs = limits.get(limit);
        var ratios = new ArrayList<Double>();
        for (int i = 0; i < theirs.size(); i++) {
            ratios.add(ours.get(i).rate() / theirs.get(i).rate());
        }
        ratios.sort(null);
        return String.format(
                Locale.ROOT,
                "%.2f, %.2f, %.2f",
                ratios.getFirst(),
                median(ratios),
                ratios.getLast());
    }

    private static double median(List<Double> values) {
        return values.stream().sorted().toList().get(values.size() / 2);
    }
}
