// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.spi.observe.Stats;

import java.util.ArrayList;
import java.util.List;

/// What both halves have told since the start, and the reports of a rank that come late.
final class HarnessNews {
    final List<Completion> completions = new ArrayList<>();
    final List<Completion> ended = new ArrayList<>();
    final List<CacheEvent> events = new ArrayList<>();
    private List<StepReport> delayed = new ArrayList<>();
    private int delayedRank = -1;
    private Stats stats = Stats.EMPTY;

    Stats stats() {
        return stats;
    }

    /// Reports of this rank are kept back until it is another, or -1.
    void delay(int rank) {
        delayedRank = rank;
    }

    /// Takes note of the reports of a step.
    ///
    /// @return those that arrive now, late ones first
    List<StepReport> take(List<StepReport> reports) {
        var now = new ArrayList<StepReport>();
        for (var report : reports) {
            completions.addAll(report.completions());
            stats = stats.merge(report.stats());
            events.addAll(report.events());
            (report.rank() == delayedRank ? delayed : now).add(report);
        }
        if (delayedRank < 0) {
            now.addAll(0, delayed);
            delayed = new ArrayList<>();
        }
        return now;
    }

    void take(SchedulerHalf scheduler, boolean events) {
        stats = stats.merge(scheduler.drainStats());
        if (events) {
            this.events.addAll(scheduler.drainEvents());
        }
    }
}
