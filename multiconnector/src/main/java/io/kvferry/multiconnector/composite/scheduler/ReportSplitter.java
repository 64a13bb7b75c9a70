// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.composite.wire.ChildNames;
import io.kvferry.multiconnector.composite.wire.CompositePayload;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.observe.Stats;

import java.util.ArrayList;
import java.util.List;

/// Extracts each child's part of a report, as if the child were the only connector. Stats and cache
/// events are omitted; they go to the engine, not to a scheduler half.
final class ReportSplitter {
    private final ChildNames names;

    ReportSplitter(ChildNames names) {
        this.names = names;
    }

    /// The frames that the ranks' payloads hold; empty when no rank had anything to say.
    List<CompositePayload> frames(MergedReport report) {
        boolean silent = true;
        for (var rank : report.ranks()) {
            silent &= rank.payload().isEmpty();
        }
        if (silent) {
            return List.of();
        }
        return report.ranks().stream()
                .map(rank -> CompositePayload.decode(rank.payload(), names.count()))
                .toList();
    }

    /// Whether nothing happened that concerns a scheduler half: every child may then be shown the
    /// same report.
    static boolean nothing(MergedReport report) {
        if (!report.completions().isEmpty()) {
            return false;
        }
        for (var rank : report.ranks()) {
            if (!rank.completions().isEmpty() || !rank.payload().isEmpty()) {
                return false;
            }
        }
        return true;
    }

    MergedReport of(int child, MergedReport report, List<CompositePayload> frames) {
        var ranks = new ArrayList<StepReport>(report.ranks().size());
        for (int rank = 0; rank < report.ranks().size(); rank++) {
            var whole = report.ranks().get(rank);
            var payload = frames.isEmpty() ? whole.payload() : frames.get(rank).children()[child];
            ranks.add(
                    new StepReport(
                            whole.rank(),
                            whole.step(),
                            inward(child, whole.completions()),
                            payload,
                            Stats.EMPTY,
                            List.of()));
        }
        return new MergedReport(report.step(), inward(child, report.completions()), ranks);
    }

    private List<Completion> inward(int child, List<Completion> completions) {
        List<Completion> own = List.of();
        for (var completion : completions) {
            if (names.childOf(completion.id()) == child) {
                own = own.isEmpty() ? new ArrayList<>() : own;
                own.add(
                        new Completion(
                                names.inward(completion.id()),
                                completion.rank(),
                                completion.result()));
            }
        }
        return own;
    }
}
