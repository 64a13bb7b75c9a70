// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvFormat;

import java.util.List;

/// Layers of a model whose caches have one form: what becomes a [KvCacheGroup] once the engine's
/// block size and rank count are known.
///
/// @param layers names as the model calls them, in model order
/// @param blockMultiple tokens per block in units of the engine's block size; 1 for the first group
/// @param windowTokens tokens a SLIDING_WINDOW group looks back; 0 for other kinds
/// @param tokenBytes bytes of one token in one layer over all ranks: what MLA or a quantised cache
///   keeps, or K and V of all heads, which [ModelInfo] puts here for 0
/// @param fixedBytes bytes of a block in one layer over all ranks that do not grow with its tokens:
///   a recurrent state
/// @param replicated whether each rank keeps all those bytes (MLA) and not its share of them
public record LayerGroup(
        KvCacheGroup.Kind kind,
        List<String> layers,
        int blockMultiple,
        int windowTokens,
        long tokenBytes,
        long fixedBytes,
        boolean replicated) {
    public LayerGroup {
        layers = List.copyOf(layers);
        if (layers.isEmpty() || blockMultiple < 1 || tokenBytes < 0 || fixedBytes < 0) {
            throw new IllegalArgumentException(
                    "layer group "
                            + kind
                            + " of "
                            + layers.size()
                            + " layers: blockMultiple "
                            + blockMultiple
                            + ", tokenBytes "
                            + tokenBytes
                            + ", fixedBytes "
                            + fixedBytes);
        }
        if (kind == KvCacheGroup.Kind.SLIDING_WINDOW ? windowTokens < 1 : windowTokens != 0) {
            throw new IllegalArgumentException(
                    "layer group " + kind + " with a window of " + windowTokens + " tokens");
        }
    }

    /// Layers that keep K and V of every token, split over the ranks by heads.
    public static LayerGroup attention(List<String> layers) {
        return new LayerGroup(KvCacheGroup.Kind.FULL_ATTENTION, layers, 1, 0, 0, 0, false);
    }

    /// This group with that many bytes per token, unless it says itself what it keeps.
    LayerGroup orElse(long bytes) {
        return tokenBytes + fixedBytes > 0
                ? this
                : new LayerGroup(kind, layers, blockMultiple, windowTokens, bytes, 0, replicated);
    }

    /// Bytes of one block of one layer on one rank.
    ///
    /// @param blockTokens the engine's block size
    public long blockBytes(int blockTokens, int tpSize) {
        int parts = replicated ? 1 : tpSize;
        if (tokenBytes % parts != 0 || fixedBytes % parts != 0) {
            throw new IllegalArgumentException(
                    tokenBytes
                            + " and "
                            + fixedBytes
                            + " bytes cannot be split over "
                            + tpSize
                            + " ranks");
        }
        long tokens = Math.multiplyExact((long) blockTokens, blockMultiple);
        return Math.addExact(Math.multiplyExact(tokens, tokenBytes / parts), fixedBytes / parts);
    }

    /// This group at position `index` of an engine's cache.
    ///
    /// @param heads what an attention layer of the model keeps
    KvCacheGroup cacheGroup(int index, int blockTokens, int tpSize, KvFormat.Heads heads) {
        return new KvCacheGroup(
                index,
                kind,
                format(heads),
                layers,
                Math.multiplyExact(blockTokens, blockMultiple),
                blockBytes(blockTokens, tpSize),
                windowTokens);
    }

    private KvFormat format(KvFormat.Heads heads) {
        if (fixedBytes > 0) {
            return new KvFormat.Opaque(heads.dtype());
        }
        int elementBytes = heads.dtype().bytes();
        if (tokenBytes == 2L * heads.kvHeads() * heads.headDim() * elementBytes) {
            return heads;
        }
        return replicated && tokenBytes % elementBytes == 0
                ? new KvFormat.Vectors(heads.dtype(), Math.toIntExact(tokenBytes / elementBytes))
                : new KvFormat.Opaque(heads.dtype());
    }
}
