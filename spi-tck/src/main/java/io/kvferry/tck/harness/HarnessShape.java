// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.RankInfo;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;

/// The cache that a [ConnectorHarness] pretends to have.
///
/// @param ranks worker ranks: tensor-parallel ranks times [#stages]
/// @param layerGroups the KV cache groups
/// @param blockTokens tokens per block of the first group
/// @param blocks blocks in the pool
/// @param paddingBytes bytes between two blocks, guarded by the harness
/// @param inDevice whether connectors are told that the regions are in device memory
/// @param stages pipeline stages, over which the layers of each group are divided
/// @param heads KV heads of the model; 0 for one per tensor-parallel rank
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
        String model,
        int stages,
        int heads) {
    /// One KV cache group.
    ///
    /// @param layers how many layers it has
    /// @param tokenBytes bytes of one token of one layer on one rank
    /// @param blockMultiple tokens per block, in units of the first group's
    /// @param windowTokens tokens that a sliding-window group keeps; 0 for full attention
    /// @param isState whether a block holds what all tokens up to its end have made of a state, and
    ///   only the last one stays
    public record Group(
            int layers, int tokenBytes, int blockMultiple, int windowTokens, boolean isState) {
        public Group(int layers, int tokenBytes, int blockMultiple, int windowTokens) {
            this(layers, tokenBytes, blockMultiple, windowTokens, false);
        }

        /// A group of recurrent state.
        public static Group state(int layers, int tokenBytes) {
            return new Group(layers, tokenBytes, 1, 0, true);
        }

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
                "tck-model",
                1,
                0);
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
                model,
                stages,
                heads);
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
                model,
                stages,
                heads);
    }

    public HarnessShape withBlocks(int tokensPerBlock, int bytesPerToken, int count) {
        var groups =
                layerGroups.stream()
                        .map(group ->
                                new Group(
                                        group.layers,
                                        bytesPerToken,
                                        group.blockMultiple,
                                        group.windowTokens,
                                        group.isState))
                        .toList();
        return new HarnessShape(
                ranks,
                groups,
                tokensPerBlock,
                count,
                paddingBytes,
                inDevice,
                dtype,
                layout,
                model,
                stages,
                heads);
    }

    public HarnessShape withPadding(int bytes) {
        return new HarnessShape(
                ranks,
                layerGroups,
                blockTokens,
                blocks,
                bytes,
                inDevice,
                dtype,
                layout,
                model,
                stages,
                heads);
    }

    /// The same cache, said to be in device memory.
    public HarnessShape inDeviceMemory() {
        return new HarnessShape(
                ranks,
                layerGroups,
                blockTokens,
                blocks,
                paddingBytes,
                true,
                dtype,
                layout,
                model,
                stages,
                heads);
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
                model,
                stages,
                heads);
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
                model,
                stages,
                heads);
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
                other,
                stages,
                heads);
    }

    /// The same layers divided over pipeline stages.
    public HarnessShape withStages(int count) {
        return new HarnessShape(
                ranks / stages * count,
                layerGroups,
                blockTokens,
                blocks,
                paddingBytes,
                inDevice,
                dtype,
                layout,
                model,
                count,
                heads);
    }

    /// A model of that many KV heads, divided over that many tensor-parallel ranks: bytes per token
    /// and rank grow and shrink with the heads of a rank.
    public HarnessShape withHeads(int ofModel, int tpSize) {
        int before = headsPerRank();
        int each = ofModel / tpSize;
        var groups =
                layerGroups.stream()
                        .map(group ->
                                new Group(
                                        group.layers,
                                        group.tokenBytes / before * each,
                                        group.blockMultiple,
                                        group.windowTokens,
                                        group.isState))
                        .toList();
        return new HarnessShape(
                tpSize * stages,
                groups,
                blockTokens,
                blocks,
                paddingBytes,
                inDevice,
                dtype,
                layout,
                model,
                stages,
                ofModel);
    }

    int tpSize() {
        return ranks / stages;
    }

    int headsPerRank() {
        return heads == 0 ? 1 : heads / tpSize();
    }

    int stageOf(int rank) {
        return rank / tpSize();
    }

    RankInfo rank(int rank) {
        return new RankInfo(rank, ranks, rank % tpSize(), tpSize(), stageOf(rank), stages);
    }

    boolean isState(int group) {
        return layerGroups.get(group).isState;
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
    /// token looks back on all of its window but itself, or on the last state.
    int firstKept(int group, int tokens) {
        if (isState(group)) {
            return Math.max(0, tokens - 1) / blockTokens(group);
        }
        int window = layerGroups.get(group).windowTokens;
        return window == 0 ? 0 : Math.max(0, tokens - window + 1) / blockTokens(group);
    }

    long blockBytes(int group) {
        return (long) blockTokens(group) * tokenBytes(group);
    }

    long strideBytes(int group) {
        return blockBytes(group) + paddingBytes;
    }

    /// As the scheduler half sees it.
    public KvCacheSpec spec() {
        return spec(0);
    }

    /// As a worker half of a pipeline stage sees it.
    public KvCacheSpec spec(int stage) {
        var groups = new ArrayList<KvCacheGroup>();
        for (int index = 0; index < layerGroups.size(); index++) {
            var group = layerGroups.get(index);
            var names = new ArrayList<String>();
            for (int layer : layersOf(index, stage)) {
                names.add("model.layers." + layer + ".self_attn.attn");
            }
            groups.add(
                    new KvCacheGroup(
                            index,
                            kind(group),
                            group.isState
                                    ? new KvFormat.Opaque(dtype)
                                    : new KvFormat.Heads(
                                            dtype,
                                            layout,
                                            tpSize() * headsPerRank(),
                                            headDim(index)),
                            names,
                            blockTokens(index),
                            blockBytes(index),
                            group.windowTokens));
        }
        return new KvCacheSpec(groups, blocks);
    }

    private static KvCacheGroup.Kind kind(Group group) {
        return group.isState
                ? KvCacheGroup.Kind.RECURRENT_STATE
                : group.windowTokens == 0
                        ? KvCacheGroup.Kind.FULL_ATTENTION
                        : KvCacheGroup.Kind.SLIDING_WINDOW;
    }

    /// Positions in the model of a group's layers on one stage.
    int[] layersOf(int group, int stage) {
        int first = 0;
        for (int before = 0; before < group; before++) {
            first += layerGroups.get(before).layers;
        }
        int count = layerGroups.get(group).layers;
        return IntStream.range(first + count * stage / stages, first + count * (stage + 1) / stages)
                .toArray();
    }

    /// Head width only has to agree with the block size: K and V of every head of a rank.
    private int headDim(int group) {
        return Math.max(1, tokenBytes(group) / headsPerRank() / 2 / dtype.bytes());
    }

    /// The engine of this shape, as its scheduler half sees it.
    ///
    /// @param incarnation of its start
    public EngineInfo engine(long incarnation) {
        return engine(incarnation, 0);
    }

    /// The same as a worker half of a pipeline stage sees it.
    EngineInfo engine(long incarnation, int stage) {
        return new EngineInfo(model, namespace(), spec(stage), ranks, 0, incarnation);
    }

    /// The namespace of such an engine.
    public CacheNamespace namespace() {
        return new CacheNamespace(
                model, "tck 1", dtype, layout, 1, blockTokens, tpSize(), stages, "");
    }
}
