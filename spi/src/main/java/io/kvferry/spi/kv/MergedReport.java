// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import java.util.List;

/// The reports of all ranks for one step, completions merged.
///
/// @param completions transfers whose LAST outstanding rank reported in this step, with rank
///   [Completion#ALL_RANKS]. Completed if all ranks completed. Failed if any rank failed: with the
///   union of the failed blocks if every other rank completed or named its failed blocks; otherwise
///   with an empty list, which means all blocks, because a revoked rank may have written any of
///   them. Otherwise Revoked
/// @param ranks the reports as they came, by rank; their completions are those of single ranks
public record MergedReport(long step, List<Completion> completions, List<StepReport> ranks) {
    public MergedReport {
        completions = List.copyOf(completions);
        ranks = List.copyOf(ranks);
    }
}
