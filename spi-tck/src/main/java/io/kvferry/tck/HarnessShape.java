// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvLayout;

import java.util.ArrayList;
import java.util.List;

/// The cache that a [ConnectorHarness] pretends to have.
///
/// @param ranks worker ranks, tensor parallel
/// @param layers layers of each group; one entry per group
/// @param blockTokens tokens per block, in every group
/// @param tokenBytes bytes of one token of one layer on one rank, by group
/// @param blocks blocks in the pool
/// @param paddingBytes bytes between two blocks, guarded by the harness
/// @param model identity of the model; harnesses of different models must never share blocks
public record HarnessShape(
        int ranks,
        List<Integer> layers,
        int blockTokens,
        List<Integer> tokenBytes,
        int blocks,
        int paddingBytes,
        DType dtype,
        KvLayout layout,
        String model) {
    public HarnessShape {
        layers = List.copyOf(layers);
        tokenBytes = List.copyOf(tokenBytes);
        if (layers.size() != tokenBytes.size()) {
            throw new IllegalArgumentException(
                    layers.size() + " groups, " + tokenBytes.size() + " sizes");
        }
    }

    /// One rank, three layers, 4 tokens and 128 bytes per block, 96 blocks.
    public static HarnessShape small() {
        return new HarnessShape(
                1, List.of(3), 4, List.of(32), 96, 0, DType.FLOAT32, KvLayout.LBNHC, "tck-model");
    }

    public HarnessShape withRanks(int count) {
        return new HarnessShape(
                count, layers, blockTokens, tokenBytes, blocks, paddingBytes, dtype, layout, model);
    }

    /// More groups of layers, each with tokens of its own size.
    public HarnessShape withGroups(List<Integer> layerCounts, List<Integer> bytesPerToken) {
        return new HarnessShape(
                ranks,
                layerCounts,
                blockTokens,
                bytesPerToken,
                blocks,
                paddingBytes,
                dtype,
                layout,
                model);
    }

    public HarnessShape withBlocks(int tokensPerBlock, int bytesPerToken, int count) {
        var sizes = tokenBytes.stream().map(_ -> bytesPerToken).toList();
        return new HarnessShape(
                ranks, layers, tokensPerBlock, sizes, count, paddingBytes, dtype, layout, model);
    }

    public HarnessShape withPadding(int bytes) {
        return new HarnessShape(
                ranks, layers, blockTokens, tokenBytes, blocks, bytes, dtype, layout, model);
    }

    public HarnessShape withDType(DType type) {
        return new HarnessShape(
                ranks, layers, blockTokens, tokenBytes, blocks, paddingBytes, type, layout, model);
    }

    public HarnessShape withLayout(KvLayout other) {
        return new HarnessShape(
                ranks, layers, blockTokens, tokenBytes, blocks, paddingBytes, dtype, other, model);
    }

    public HarnessShape withModel(String other) {
        return new HarnessShape(
                ranks, layers, blockTokens, tokenBytes, blocks, paddingBytes, dtype, layout, other);
    }

    public int groups() {
        return layers.size();
    }

    long blockBytes(int group) {
        return (long) blockTokens * tokenBytes.get(group);
    }

    long strideBytes(int group) {
        return blockBytes(group) + paddingBytes;
    }

    /// As the connector sees it.
    public KvCacheSpec spec() {
        var groups = new ArrayList<KvCacheGroup>();
        int layer = 0;
        for (int group = 0; group < layers.size(); group++) {
            var names = new ArrayList<String>();
            for (int i = 0; i < layers.get(group); i++) {
                names.add("model.layers." + layer++ + ".self_attn.attn");
            }
            groups.add(
                    new KvCacheGroup(
                            group,
                            KvCacheGroup.Kind.FULL_ATTENTION,
                            names,
                            blockTokens,
                            blockBytes(group)));
        }
        // Head count and width only have to agree with the block size: K and V of one head per
        // rank.
        int headDim = Math.max(1, tokenBytes.getFirst() / 2 / dtype.bytes());
        return new KvCacheSpec(groups, blocks, dtype, layout, ranks, headDim);
    }

    /// The namespace of such an engine.
    public CacheNamespace namespace() {
        return new CacheNamespace(model, "tck 1", dtype, layout, 1, blockTokens, ranks, 1, "");
    }
}
