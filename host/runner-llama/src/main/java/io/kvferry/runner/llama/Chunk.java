// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.llama;

/// Consecutive tokens of one sequence that are to be computed: a whole prompt, a part of one, or
/// one decoded token.
///
/// The KV of positions `0 .. start - 1` must already be in the pages that `blockTable` names; the
/// KV of the chunk is written there.
///
/// @param tokens ids at positions `start, start + 1, ...`
/// @param start position of the first of them
/// @param blockTable pages of the sequence: position `p` lies in block `blockTable[p / blockSize]`
/// @param wantLogits whether the logits behind the last token are asked for
/// @param promptLogits how many tokens, from the first one on, are to give the logits behind them
///   beside that
@SuppressWarnings("ArrayRecordComponent") // made for one call, never changed
record Chunk(int[] tokens, int start, int[] blockTable, boolean wantLogits, int promptLogits) {
    /// Without those of the prompt.
    Chunk(int[] tokens, int start, int[] blockTable, boolean wantLogits) {
        this(tokens, start, blockTable, wantLogits, 0);
    }

    Chunk {
        if (tokens.length == 0 || start < 0) {
            throw new IllegalArgumentException("chunk of " + tokens.length + " tokens at " + start);
        }
    }

    int end() {
        return start + tokens.length;
    }
}
