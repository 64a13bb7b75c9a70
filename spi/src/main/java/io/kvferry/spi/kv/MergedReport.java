// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import java.util.List;

/// The reports of all ranks for one step, completions merged.
///
/// @param completions transfers that the LAST outstanding rank reported in this step, with rank
///   [Completion#ALL_RANKS]. Completed when all ranks completed. Failed when a rank failed: with
///   the union of the failed blocks where every other rank completed or named its own, else with an
///   empty list, which means all blocks (a rank that was revoked may have written any part of them,
///   or nothing). Else Revoked
/// @param ranks the reports as they came, by rank; their completions are those of single ranks
public record MergedReport(long step, List<Completion> completions, List<StepReport> ranks) {
    public MergedReport {
        completions = List.copyOf(completions);
        ranks = List.copyOf(ranks);
    }
}
