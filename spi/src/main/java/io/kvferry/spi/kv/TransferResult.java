// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.Failure;

import java.util.List;
import java.util.Objects;

/// How a connector's transfer ended on one rank (or on all, in a [MergedReport]).
public sealed interface TransferResult {
    /// Every block is in place (LOAD) or no longer needed (SAVE).
    record Completed(long bytes) implements TransferResult {}

    /// Some blocks were not moved. For a LOAD `blocks` names every block that does not hold its
    /// data, and the request keeps the longest prefix that is valid in all groups: the tokens
    /// before the first failed block of a full-attention group; a failed block of a window or state
    /// group voids the hit. An empty list means all blocks. For a SAVE the source blocks are no
    /// longer needed all the same.
    record Failed(Failure failure, List<FailedBlocks> blocks) implements TransferResult {
        public Failed {
            Objects.requireNonNull(failure, "failure");
            blocks = List.copyOf(blocks);
        }
    }

    /// The right was revoked and nothing of the transfer is in flight any more. Where a peer reads
    /// or writes one-sided, access has been withdrawn or the agreed grace has passed.
    record Revoked() implements TransferResult {}

    /// Blocks of one group, as positions in the request's block table.
    record FailedBlocks(int group, int[] positions) {
        public FailedBlocks {
            Objects.requireNonNull(positions, "positions");
        }
    }
}
