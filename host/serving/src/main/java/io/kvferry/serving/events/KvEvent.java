// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import java.util.OptionalLong;

/// A change of an engine's prefix cache, as its subscribers see it. Blocks are named by the last 64
/// bits of their hashes.
@SuppressWarnings("ArrayRecordComponent") // read once
public sealed interface KvEvent {
    /// These blocks can be reused from now on; each is the parent of the next one.
    ///
    /// @param parent the block before the first; empty at the start of a prompt
    /// @param tokens of all the blocks
    /// @param blockTokens tokens per block
    /// @param salt the tenant's, where the first block begins a prompt; empty for none
    record Stored(long[] blocks, OptionalLong parent, int[] tokens, int blockTokens, String salt)
            implements KvEvent {}

    /// These blocks cannot be reused any more.
    record Removed(long[] blocks) implements KvEvent {}

    /// No block can be loaded any more.
    record Cleared() implements KvEvent {}
}
