// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;

import java.util.ArrayList;
import java.util.List;

/// The facts about a model that shape its KV cache and its cache namespace.
///
/// A block of one layer on one rank is `[blockTokens][kvHeads / tpSize][2 (K then V)][headDim]` for
/// [KvLayout#LBNHC] and `[kvHeads / tpSize][blockTokens][2][headDim]` for [KvLayout#LBHNC],
/// little-endian.
///
/// @param name for people and for the `model` field of the HTTP API
/// @param digest identity of weights and tokenizer (a content digest); part of the cache namespace
/// @param runner name and version of what computes, `llama-1`; part of the cache namespace
/// @param groups layers by KV cache group, in model order; nearly always one group
/// @param kvHeads KV heads of the whole model
/// @param headDim elements of one head's K (or V) vector
/// @param dtype element type of the cache
/// @param layoutVersion changes when the runner changes the meaning of the bytes within a block
/// @param contextTokens most tokens of a request, prompt and generated
/// @param eosTokens ids that end a generation
/// @param embeddingWidth elements per row of an encoder output, 0 for a model without encoder
public record ModelInfo(
        String name,
        String digest,
        String runner,
        List<LayerGroup> groups,
        int kvHeads,
        int headDim,
        DType dtype,
        KvLayout layout,
        int layoutVersion,
        int vocabSize,
        int contextTokens,
        List<Integer> eosTokens,
        int embeddingWidth) {
    public ModelInfo {
        eosTokens = List.copyOf(eosTokens);
        if (groups.isEmpty()
                || kvHeads < 1
                || headDim < 1
                || vocabSize < 1
                || contextTokens < 1
                || embeddingWidth < 0) {
            throw new IllegalArgumentException(
                    "model "
                            + name
                            + ": groups "
                            + groups.size()
                            + ", kvHeads "
                            + kvHeads
                            + ", headDim "
                            + headDim
                            + ", vocabSize "
                            + vocabSize
                            + ", contextTokens "
                            + contextTokens
                            + ", embeddingWidth "
                            + embeddingWidth);
        }
        long tokenBytes = 2L * kvHeads * headDim * dtype.bytes();
        groups = groups.stream().map(group -> group.orElse(tokenBytes)).toList();
    }

    /// The same model with another cache layout.
    public ModelInfo withLayout(KvLayout other) {
        return new ModelInfo(
                name,
                digest,
                runner,
                groups,
                kvHeads,
                headDim,
                dtype,
                other,
                layoutVersion,
                vocabSize,
                contextTokens,
                eosTokens,
                embeddingWidth);
    }

    /// One group of layers `model.layers.N.self_attn.attn`, as Hugging Face Llama models have them.
    public static List<LayerGroup> llamaLayers(int layers) {
        var names = new ArrayList<String>(layers);
        for (int i = 0; i < layers; i++) {
            names.add("model.layers." + i + ".self_attn.attn");
        }
        return List.of(LayerGroup.attention(names));
    }

    /// Layers of all groups.
    public int layers() {
        return groups.stream().mapToInt(group -> group.layers().size()).sum();
    }

    /// Bytes of one block of one layer of the first group on one rank.
    public long blockBytes(int blockTokens, int tpSize) {
        return groups.getFirst().blockBytes(blockTokens, tpSize);
    }

    /// The cache that an engine of this shape keeps on each rank.
    public KvCacheSpec cacheSpec(int blockTokens, int blockCount, int tpSize) {
        checkSplit(tpSize);
        var heads = new KvFormat.Heads(dtype, layout, kvHeads, headDim);
        var shapes = new ArrayList<KvCacheGroup>(groups.size());
        for (int g = 0; g < groups.size(); g++) {
            shapes.add(groups.get(g).cacheGroup(g, blockTokens, tpSize, heads));
        }
        return new KvCacheSpec(shapes, blockCount);
    }

    private void checkSplit(int tpSize) {
        if (kvHeads % tpSize != 0 && groups.stream().anyMatch(group -> !group.replicated())) {
            throw new IllegalArgumentException(
                    kvHeads
                            + " KV heads of "
                            + name
                            + " cannot be split over "
                            + tpSize
                            + " ranks");
        }
    }

    /// The namespace of this model's blocks.
    public CacheNamespace namespace(int blockTokens, int tpSize, String salt) {
        return new CacheNamespace(
                digest, runner, dtype, layout, layoutVersion, blockTokens, tpSize, 1, salt);
    }
}
