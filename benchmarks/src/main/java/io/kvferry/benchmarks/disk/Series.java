// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

import java.util.ArrayList;
import java.util.List;

/// The same work by the store and by fio, round by round.
final class Series {
    final List<StoreRun.Result> ours = new ArrayList<>();
    final List<Fio.Result> fio = new ArrayList<>();

    List<Double> fioRate() {
        return fio.stream().map(Fio.Result::rate).toList();
    }

    /// Of each round, least first.
    List<Double> ratios() {
        var ratios = new ArrayList<Double>();
        for (int i = 0; i < fio.size(); i++) {
            ratios.add(ours.get(i).rate() / fio.get(i).rate());
        }
        return ratios.stream().sorted().toList();
    }

    static double median(List<Double> values) {
        return values.stream().sorted().toList().get(values.size() / 2);
    }
}
