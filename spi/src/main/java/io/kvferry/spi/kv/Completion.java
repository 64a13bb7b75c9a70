// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.Failure;

import java.util.List;
import java.util.Objects;

/// One transfer of a connector ended on one rank; each (id, rank) is reported once.
///
/// @param rank the reporting rank, or [#ALL_RANKS] once merged
public record Completion(TransferId id, int rank, Result result) {
    /// The rank of a merged completion.
    public static final int ALL_RANKS = -1;

    public Completion {
        Objects.requireNonNull(id, "id");
        Objects.requireNonNull(result, "result");
    }

    /// How it ended, on one rank or (in a [MergedReport]) on all.
    public sealed interface Result permits Completed, Failed, Revoked {}

    /// Every block is in place (LOAD) or no longer needed (SAVE).
    public record Completed(long bytes) implements Result {}

    /// Some blocks were not moved.
    ///
    /// For a LOAD, `blocks` names every block that does not hold its data. The request keeps the
    /// longest prefix that is valid in all groups ([LoadAssignment#validTo]), that is, the tokens
    /// before the first failed block. If the cache has a window or state group, any failed block
    /// voids the hit, because the blocks such a group needs for a shorter prefix were not loaded.
    /// All blocks count as failed if the list is empty, names no position, or names a block that
    /// was not to be loaded (the rest of such a list cannot be trusted either).
    ///
    /// For a SAVE, the source blocks are no longer needed in any case. The named blocks may be
    /// missing at the destination; if none is named, any block may be.
    public record Failed(Failure failure, List<FailedBlocks> blocks) implements Result {
        public Failed {
            Objects.requireNonNull(failure, "failure");
            blocks = List.copyOf(blocks);
        }
    }

    /// The transfer was revoked and no part of it is in flight any more. For one-sided access by a
    /// peer, access has been withdrawn or the agreed grace period has passed.
    public record Revoked() implements Result {}

    /// Blocks of one group, as positions in the request's block table.
    public record FailedBlocks(int group, int[] positions) {
        public FailedBlocks {
            Objects.requireNonNull(positions, "positions");
        }
    }
}
