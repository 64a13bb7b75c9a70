// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.TransferId;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;

/// Folds the completions of all ranks: an id comes out once, when its last rank reported.
///
/// Threading: one thread at a time.
public final class ReportMerger {
    private final int ranks;
    private final Map<TransferId, Open> open = new HashMap<>();
    private final List<String> duplicates = new ArrayList<>();
    private final Map<TransferId, BitSet> seen = new HashMap<>();

    /// What is known of an id so far.
    private static final class Open {
        final BitSet reported = new BitSet();
        final TreeMap<Integer, TreeSet<Integer>> failedBlocks = new TreeMap<>();
        Optional<Failure> failure = Optional.empty();
        boolean wholeFailure;
        boolean revoked;
        long bytes;
    }

    /// @param ranks reports that end an id
    public ReportMerger(int ranks) {
        this.ranks = ranks;
    }

    /// Merges the reports of one step.
    public MergedReport merge(long step, List<StepReport> reports) {
        var merged = new ArrayList<Completion>();
        for (var report : reports) {
            for (var completion : report.completions()) {
                add(completion).ifPresent(merged::add);
            }
        }
        return new MergedReport(step, merged, reports);
    }

    /// Completions that came twice from one rank since the last call.
    public List<String> drainDuplicates() {
        var drained = List.copyOf(duplicates);
        duplicates.clear();
        return drained;
    }

    private Optional<Completion> add(Completion completion) {
        var ofId = seen.computeIfAbsent(completion.id(), _ -> new BitSet());
        if (ofId.get(completion.rank())) {
            duplicates.add(
                    completion.id()
                            + " by rank "
                            + completion.rank()
                            + " as "
                            + completion.result());
            return Optional.empty();
        }
        ofId.set(completion.rank());
        var state = open.computeIfAbsent(completion.id(), _ -> new Open());
        state.reported.set(completion.rank());
        switch (completion.result()) {
            case Completion.Completed(long bytes) -> state.bytes += bytes;
            case Completion.Failed(Failure failure, var blocks) -> {
                state.failure = Optional.of(state.failure.orElse(failure));
                state.wholeFailure |= blocks.isEmpty();
                for (var failed : blocks) {
                    for (int position : failed.positions()) {
                        state.failedBlocks
                                .computeIfAbsent(failed.group(), _ -> new TreeSet<>())
                                .add(position);
                    }
                }
            }
            case Completion.Revoked() -> {
                state.revoked = true;
                state.wholeFailure = true; // a rank that gave up names no block
            }
        }
        if (state.reported.cardinality() < ranks) {
            return Optional.empty();
        }
        open.remove(completion.id());
        return Optional.of(new Completion(completion.id(), Completion.ALL_RANKS, result(state)));
    }

    private static Completion.Result result(Open state) {
        if (state.failure.isPresent()) {
            var blocks = new ArrayList<Completion.FailedBlocks>();
            if (!state.wholeFailure) {
                state.failedBlocks.forEach((group, positions) ->
                        blocks.add(
                                new Completion.FailedBlocks(
                                        group,
                                        positions.stream().mapToInt(Integer::intValue).toArray())));
            }
            return new Completion.Failed(state.failure.get(), blocks);
        }
        return state.revoked ? new Completion.Revoked() : new Completion.Completed(state.bytes);
    }
}
