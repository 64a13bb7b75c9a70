// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

/// Order of the dimensions of a KV cache in memory, outermost first, in vLLM 0.33.0's names: L
/// layer, B block, H head, N token, C content (one head's K vector, then its V vector). A block of
/// [#LBNHC] and [#BLNHC] is `[N][H][2][headDim]`, of [#LBHNC] and [#BLHNC] `[H][N][2][headDim]`:
/// peers compare only the label, so no other form may carry it.
///
/// Only orders in which a layer's part of a block is contiguous: others, such as vLLM's LHBNC and
/// BHLNC, cannot be said with one [KvRegion] per layer.
public enum KvLayout {
    /// vLLM's NHD.
    LBNHC,
    /// vLLM's HND.
    LBHNC,
    BLHNC,
    BLNHC;

    /// Whether a block holds the tokens of one head side by side, and not the heads of one token.
    public boolean isHeadMajor() {
        return this == LBHNC || this == BLHNC;
    }
}
