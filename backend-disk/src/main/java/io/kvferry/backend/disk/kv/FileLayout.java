// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvLayout;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/// Which files hold the blocks of a request. Each rank has files of its own for each group. A run
/// of consecutive blocks that begins at a multiple of the run length shares one file; blocks at the
/// end of a prompt that do not fill a run have a file each. So there is one file to find, make and
/// delete for many blocks, and a prompt of any length is found whole.
///
/// @param run blocks of a run; 1 when every block has a file of its own
public record FileLayout(int groups, int ranks, int run) {
    /// So that prompts that differ within a run lose little.
    static final int MOST_BLOCKS = 64;

    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when the store takes no such file
    public static FileLayout of(OptionValues options, KvCacheSpec cache, int ranks) {
        int blocks = (int) options.integer("run_blocks");
        long longest = longestRun(cache);
        if (!cache.groups().stream().allMatch(FileLayout::keepsAll)) {
            blocks = 1; // a block may be gone before its run is complete
        } else if (blocks == 0) {
            long largest =
                    cache.groups().stream()
                            .mapToLong(group -> group.blockBytes() * group.layers().size())
                            .max()
                            .orElseThrow();
            blocks = Math.clamp(DiskOptions.RUN_BYTES / largest, 1, MOST_BLOCKS);
            blocks = Math.clamp(longest, 1, blocks);
        }
        requireSavable(blocks, longest);
        return new FileLayout(cache.groups().size(), ranks, blocks);
    }

    /// Blocks of which the store takes a file in every group.
    private static long longestRun(KvCacheSpec cache) {
        return cache.groups().stream()
                .mapToLong(group ->
                        Math.min(
                                StoreConfig.DEFAULT_MAX_BLOCK_BYTES
                                        / (group.blockBytes() * group.layers().size()),
                                BlockStore.MOST_SEGMENTS / group.layers().size()))
                .min()
                .orElseThrow();
    }

    private static void requireSavable(int blocks, long longest) {
        if (blocks <= longest) {
            return;
        }
        throw new KvFerryException(
                ErrorCode.BAD_CONFIG,
                "kv_connector_extra_config of DiskConnector: a file takes at most "
                        + StoreConfig.DEFAULT_MAX_BLOCK_BYTES
                        + " bytes and "
                        + BlockStore.MOST_SEGMENTS
                        + " segments, one for each block in each layer; "
                        + (longest == 0
                                ? "a single block of this model has more; choose smaller blocks"
                                : "with this model run_blocks "
                                        + blocks
                                        + " is too many, set at most "
                                        + longest));
    }

    private static boolean keepsAll(KvCacheGroup group) {
        return group.kind() == KvCacheGroup.Kind.FULL_ATTENTION && group.windowTokens() == 0;
    }

    /// The memory of the blocks of a file in the order in which the file has it, which is that of
    /// the namespace's layout: layer by layer, or block by block where the layers of a block lie
    /// side by side. So blocks that are neighbours in memory are neighbours in the file.
    ///
    /// @param blocks first to last, each a segment per layer
    public static List<MemorySegment> inOrder(List<List<MemorySegment>> blocks, KvLayout layout) {
        var segments = new ArrayList<MemorySegment>();
        if (isBlockMajor(layout)) {
            blocks.forEach(segments::addAll);
            return segments;
        }
        for (int layer = 0; layer < blocks.getFirst().size(); layer++) {
            for (var block : blocks) {
                segments.add(block.get(layer));
            }
        }
        return segments;
    }

    /// Whether the layers of a block lie side by side, and not the blocks of a layer.
    static boolean isBlockMajor(KvLayout layout) {
        return layout == KvLayout.BLHNC || layout == KvLayout.BLNHC;
    }

    /// Position of the first block of the run that the block at `position` belongs to.
    int start(int position) {
        return position - position % run;
    }

    /// The group of the file at place `index` of a list that [#single] or [#run] made.
    int group(int index) {
        return index % groups;
    }

    /// The files of one block, of all groups and ranks.
    List<BlockKey> single(BlockHash hash, int position) {
        var keys = new ArrayList<BlockKey>(groups * ranks);
        for (int rank = 0; rank < ranks; rank++) {
            for (int group = 0; group < groups; group++) {
                keys.add(KvKeys.of(hash, group, rank, position));
            }
        }
        return keys;
    }

    /// The files of a run.
    List<BlockKey> run(BlockHash last, int start) {
        var keys = new ArrayList<BlockKey>(groups * ranks);
        for (int rank = 0; rank < ranks; rank++) {
            for (int group = 0; group < groups; group++) {
                keys.add(KvKeys.ofRun(last, group, rank, start, run));
            }
        }
        return keys;
    }
}
