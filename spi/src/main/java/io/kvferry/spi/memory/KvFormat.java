// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

import java.util.Objects;

/// Contents of the layers of one KV cache group. [KvCacheGroup#blockBytes] gives their size in a
/// block on one rank.
public sealed interface KvFormat {
    /// Element type.
    DType dtype();

    /// K and V of every token, for every head.
    ///
    /// @param layout order of a block's bytes, and of the blocks of all layers
    /// @param kvHeads KV heads of the whole model, before they are split over ranks
    /// @param headDim elements of one head's K (or V) vector
    record Heads(DType dtype, KvLayout layout, int kvHeads, int headDim) implements KvFormat {
        public Heads {
            Objects.requireNonNull(dtype, "dtype");
            Objects.requireNonNull(layout, "layout");
            if (kvHeads < 1 || headDim < 1) {
                throw new IllegalArgumentException(
                        "kvHeads " + kvHeads + ", headDim " + headDim + ": both must be positive");
            }
        }
    }

    /// One vector for every token, whole on every rank: the latent cache of MLA, hidden states. A
    /// block is `[N][width]`.
    ///
    /// @param width elements of a token's vector
    record Vectors(DType dtype, int width) implements KvFormat {
        public Vectors {
            Objects.requireNonNull(dtype, "dtype");
            if (width < 1) {
                throw new IllegalArgumentException("width " + width + " must be positive");
            }
        }
    }

    /// Something per block that only the runner can read, such as a recurrent state. Each rank has
    /// its own part.
    record Opaque(DType dtype) implements KvFormat {
        public Opaque {
            Objects.requireNonNull(dtype, "dtype");
        }
    }
}
