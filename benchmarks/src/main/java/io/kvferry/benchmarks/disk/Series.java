// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.stream.IntStream;

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
        var ratios = ratios(ours.stream().map(StoreRun.Result::rate).toList(), limit);
        return String.format(
                Locale.ROOT,
                "%.2f, %.2f, %.2f",
                ratios.getFirst(),
                median(ratios),
                ratios.getLast());
    }

    /// The median of what a limit reached of another in each round.
    double ratio(int limit, int other) {
        return median(ratios(limits.get(limit).stream().map(FileLimit.Work::rate).toList(), other));
    }

    /// In ascending order.
    private List<Double> ratios(List<Double> rates, int limit) {
        var theirs = limits.get(limit);
        return IntStream.range(0, theirs.size())
                .mapToObj(i -> rates.get(i) / theirs.get(i).rate())
                .sorted()
                .toList();
    }

    private static double median(List<Double> values) {
        return values.stream().sorted().toList().get(values.size() / 2);
    }
}
