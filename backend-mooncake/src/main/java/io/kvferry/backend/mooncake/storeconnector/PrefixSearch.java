// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.spi.memory.KvCacheGroup;

import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.function.IntFunction;
import java.util.stream.IntStream;

/// Finds the longest prefix that a load can bring. A group that keeps all tokens must have all of
/// its blocks; a sliding window those that it covers at the end of the prefix; a recurrent state
/// the last one. A block is there when every rank has its part.
///
/// Threading: any thread; [#find] blocks where the store does.
final class PrefixSearch {
    /// Keys of one call to a store that is not in this process.
    private static final int FAR_KEYS = 1024;

    private final Store store;
    private final List<KvCacheGroup> groups;
    private final int ranks;
    private final int blocksPerCall;

    PrefixSearch(Store store, List<KvCacheGroup> groups, int ranks) {
        this.store = store;
        this.groups = List.copyOf(groups);
        this.ranks = ranks;
        boolean near = store.features().contains(Store.Feature.IN_PROCESS);
        this.blocksPerCall = near ? 1 : Math.max(1, FAR_KEYS / (ranks * groups.size()));
    }

    /// How many of the blocks can be loaded as a prefix, given that what lies before them is there.
    ///
    /// @param blocks per block the keys of its parts, as of [BlockKeys#all]
    /// @param lease whether what is found must then stay for a while
    int find(IntFunction<String[]> blocks, int count, boolean lease) {
        var present = new BitSet[groups.size()];
        Arrays.setAll(present, _ -> new BitSet());
        int found = 0;
        for (int from = 0; from < count && found == from; from += blocksPerCall) {
            int to = Math.min(count, from + blocksPerCall);
            look(blocks, from, to, lease, present);
            while (found < to && hasAllTokens(present, found)) {
                found++;
            }
        }
        while (found > 0 && !endsAt(present, found)) {
            found--;
        }
        return found;
    }

    private void look(
            IntFunction<String[]> blocks, int from, int to, boolean lease, BitSet[] present) {
        List<String> asked =
                to == from + 1
                        ? Arrays.asList(blocks.apply(from))
                        : IntStream.range(from, to)
                                .mapToObj(blocks)
                                .flatMap(Arrays::stream)
                                .toList();
        var results = new int[asked.size()];
        store.exists(asked, lease, results);
        int at = 0;
        for (int block = from; block < to; block++) {
            for (BitSet group : present) {
                boolean all = true;
                for (int rank = 0; rank < ranks; rank++) {
                    all &= results[at++] == 1;
                }
                group.set(block, all);
            }
        }
    }

    private boolean hasAllTokens(BitSet[] present, int block) {
        for (int group = 0; group < present.length; group++) {
            if (groups.get(group).keepsAllTokens() && !present[group].get(block)) {
                return false;
            }
        }
        return true;
    }

    /// Whether the groups that move on have what a prefix of `end` blocks needs.
    private boolean endsAt(BitSet[] present, int end) {
        for (int group = 0; group < present.length; group++) {
            int from = Math.max(0, end - kept(groups.get(group)));
            if (present[group].nextClearBit(from) < end) {
                return false;
            }
        }
        return true;
    }

    /// Blocks before its end that a prefix needs of a group.
    private static int kept(KvCacheGroup group) {
        return switch (group.kind()) {
            case SLIDING_WINDOW ->
                    group.windowTokens() > 0
                            ? Math.ceilDiv(group.windowTokens() - 1, group.blockTokens())
                            : Integer.MAX_VALUE;
            case RECURRENT_STATE -> 1;
            case FULL_ATTENTION, HIDDEN_STATES -> 0; // looked at block by block
        };
    }
}
