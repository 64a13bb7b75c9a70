// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;

import java.util.ArrayList;
import java.util.List;

/// The cache that a [ConnectorHarness] pretends to have.
///
/// @param ranks worker ranks, tensor parallel
/// @param layerGroups the KV cache groups
/// @param blockTokens tokens per block of the first group
/// @param blocks blocks in the pool
/// @param paddingBytes bytes between two blocks, guarded by the harness
/// @param inDevice whether connectors are told that the regions are in device memory
/// @param model identity of the model; harnesses of different models must never share blocks
public record HarnessShape(
        int ranks,
        List<Group> layerGroups,
        int blockTokens,
        int blocks,
        int paddingBytes,
        boolean inDevice,
        DType dtype,
        KvLayout layout,
        String model) {
    /// One KV cache group.
    ///
    /// @param layers how many layers it has
    /// @param tokenBytes bytes of one token of one layer on one rank
    /// @param blockMultiple tokens per block, in units of the first group's
    /// @param windowTokens tokens that a sliding-window group keeps; 0 for full attention
    public record Group(int layers, int tokenBytes, int blockMultiple, int windowTokens) {
        /// A group of full attention with blocks like the first group's.
        public static Group full(int layers, int tokenBytes) {
            return new Group(layers, tokenBytes, 1, 0);
        }

        /// A group that keeps only the last tokens.
        public static Group sliding(int layers, int tokenBytes, int windowTokens) {
            return new Group(layers, tokenBytes, 1, windowTokens);
        }
    }

    public HarnessShape {
        layerGroups = List.copyOf(layerGroups);
    }

    /// One rank, three layers, 4 tokens and 128 bytes per block, 96 blocks.
    public static HarnessShape small() {
        return new HarnessShape(
                1,
                List.of(Group.full(3, 32)),
                4,
                96,
                0,
                false,
                DType.FLOAT32,
                KvLayout.LBNHC,
                "tck-model");
    }

    public HarnessShape withRanks(int count) {
        return new HarnessShape(
                count,
                layerGroups,
                blockTokens,
                blocks,
                paddingBytes,
                inDevice,
                dtype,
                layout,
                model);
    }

    /// Other groups of layers.
    public HarnessShape withGroups(Group... groups) {
        return new HarnessShape(
                ranks,
                List.of(groups),
                blockTokens,
                blocks,
                paddingBytes,
                inDevice,
                dtype,
                layout,
                model);
    }

    public HarnessShape withBlocks(int tokensPerBlock, int bytesPerToken, int count) {
        var groups =
                layerGroups.stream()
                        .map(group ->
                                new Group(
                                        group.layers,
                                        bytesPerToken,
                                        group.blockMultiple,
                                        group.windowTokens))
                        .toList();
        return new HarnessShape(
                ranks, groups, tokensPerBlock, count, paddingBytes, inDevice, dtype, layout, model);
    }

    public HarnessShape withPadding(int bytes) {
        return new HarnessShape(
                ranks, layerGroups, blockTokens, blocks, bytes, inDevice, dtype, layout, model);
    }

    /// The same cache, said to be in device memory.
    public HarnessShape inDeviceMemory() {
        return new HarnessShape(
                ranks, layerGroups, blockTokens, blocks, paddingBytes, true, dtype, layout, model);
    }

    public HarnessShape withDType(DType type) {
        return new HarnessShape(
                ranks,
                layerGroups,
                blockTokens,
                blocks,
                paddingBytes,
                inDevice,
                type,
                layout,
                model);
    }

    public HarnessShape withLayout(KvLayout other) {
        return new HarnessShape(
                ranks,
                layerGroups,
                blockTokens,
                blocks,
                paddingBytes,
                inDevice,
                dtype,
                other,
                model);
    }

    public HarnessShape withModel(String other) {
        return new HarnessShape(
                ranks,
                layerGroups,
                blockTokens,
                blocks,
                paddingBytes,
                inDevice,
                dtype,
                layout,
                other);
    }

    public int groups() {
        return layerGroups.size();
    }

    /// Tokens per block of a group.
    int blockTokens(int group) {
        return blockTokens * layerGroups.get(group).blockMultiple;
    }

    /// What every hit is a multiple of.
    int grain() {
        int most = 1;
        for (var group : layerGroups) {
            most = Math.max(most, group.blockMultiple);
        }
        return most * blockTokens;
    }

    int tokenBytes(int group) {
        return layerGroups.get(group).tokenBytes;
    }

    /// The first position of a group that keeps its block once `tokens` are computed: the next
    /// token looks back on all of its window but itself.
    int firstKept(int group, int tokens) {
        int window = layerGroups.get(group).windowTokens;
        return window == 0 ? 0 : Math.max(0, tokens - window + 1) / blockTokens(group);
    }

    long blockBytes(int group) {
        return (long) blockTokens(group) * tokenBytes(group);
    }

    long strideBytes(int group) {
        return blockBytes(group) + paddingBytes;
    }

    /// As the connector sees it.
    public KvCacheSpec spec() {
        var groups = new ArrayList<KvCacheGroup>();
        int layer = 0;
        for (int index = 0; index < layerGroups.size(); index++) {
            var group = layerGroups.get(index);
            var names = new ArrayList<String>();
            for (int i = 0; i < group.layers; i++) {
                names.add("model.layers." + layer++ + ".self_attn.attn");
            }
            groups.add(
                    new KvCacheGroup(
                            index,
                            group.windowTokens == 0
                                    ? KvCacheGroup.Kind.FULL_ATTENTION
                                    : KvCacheGroup.Kind.SLIDING_WINDOW,
                            new KvFormat.Heads(dtype, layout, ranks, headDim(index)),
                            names,
                            blockTokens(index),
                            blockBytes(index),
                            group.windowTokens));
        }
        return new KvCacheSpec(groups, blocks);
    }

    /// Head count and width only have to agree with the block size: K and V of one head per rank.
    private int headDim(int group) {
        return Math.max(1, tokenBytes(group) / 2 / dtype.bytes());
    }

    /// The engine of this shape.
    ///
    /// @param incarnation of its start
    public EngineInfo engine(long incarnation) {
        return new EngineInfo(model, namespace(), spec(), ranks, 0, incarnation);
    }

    /// The namespace of such an engine.
    public CacheNamespace namespace() {
        return new CacheNamespace(model, "tck 1", dtype, layout, 1, blockTokens, ranks, 1, "");
    }
}
