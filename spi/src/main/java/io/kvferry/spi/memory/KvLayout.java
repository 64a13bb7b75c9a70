// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

/// Order of the dimensions of a KV cache in memory, outermost first, in vLLM 0.33.0's names: L
/// layer, B block, H head, N token, C content (one head's K vector, then its V vector). A block of
/// [#LBNHC] is `[N][H][2][headDim]`, of [#LBHNC] `[H][N][2][headDim]`: peers compare only the
/// label, so no other form may carry it.
public enum KvLayout {
    /// vLLM's NHD.
    LBNHC,
    /// vLLM's HND.
    LBHNC,
    LHBNC,
    BLHNC,
    BLNHC,
    BHLNC
}
