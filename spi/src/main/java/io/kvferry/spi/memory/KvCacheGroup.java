// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

import java.util.List;
import java.util.Objects;

/// Layers that share one block table: a KV cache group of vLLM's hybrid cache manager.
///
/// @param index position in [KvCacheSpec#groups()]
/// @param format what its layers keep
/// @param layers names as the model calls them (`model.layers.0.self_attn.attn`), in model order
/// @param blockTokens tokens per block
/// @param blockBytes bytes of one block of ONE layer on one rank
/// @param windowTokens tokens a SLIDING_WINDOW group keeps; 0 for other kinds
public record KvCacheGroup(
        int index,
        Kind kind,
        KvFormat format,
        List<String> layers,
        int blockTokens,
        long blockBytes,
        int windowTokens) {
    /// The kind of state that the group's layers keep.
    public enum Kind {
        FULL_ATTENTION,
        SLIDING_WINDOW,
        RECURRENT_STATE,
        HIDDEN_STATES
    }

    public KvCacheGroup {
        Objects.requireNonNull(format, "format");
        layers = List.copyOf(layers);
        if (layers.isEmpty() || blockTokens < 1 || blockBytes < 1 || windowTokens < 0) {
            throw new IllegalArgumentException(
                    "group "
                            + index
                            + ": needs layers, blockTokens and blockBytes, got "
                            + layers.size()
                            + ", "
                            + blockTokens
                            + ", "
                            + blockBytes);
        }
    }

    /// A group without a window.
    public KvCacheGroup(
            int index,
            Kind kind,
            KvFormat format,
            List<String> layers,
            int blockTokens,
            long blockBytes) {
        this(index, kind, format, layers, blockTokens, blockBytes, 0);
    }

    /// Whether the blocks of all tokens are kept. Blocks before a sliding window and past recurrent
    /// states are not; in such a group a hit is usable only as a whole.
    public boolean keepsAllTokens() {
        return kind == Kind.FULL_ATTENTION || kind == Kind.HIDDEN_STATES;
    }
}
