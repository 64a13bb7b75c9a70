// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.memory.KvCacheSpec;

import java.util.List;
import java.util.Objects;
import java.util.Optional;

/// The load that a connector is asked to do: the KV of tokens `fromToken` to `toToken` (exclusive),
/// all groups, into the request's blocks. `fromToken` is a multiple of the block size.
///
/// @param id under which every rank reports it once
public record LoadAssignment(
        TransferId id, int fromToken, int toToken, LookupResult.LoadMode mode) {
    public LoadAssignment {
        Objects.requireNonNull(id, "id");
        if (fromToken < 0 || toToken < fromToken) {
            throw new IllegalArgumentException("load of tokens " + fromToken + " to " + toToken);
        }
    }

    /// An assignment with nothing to load.
    public static LoadAssignment none(TransferId id) {
        return new LoadAssignment(id, 0, 0, LookupResult.LoadMode.ASYNC);
    }

    public int tokens() {
        return toToken - fromToken;
    }

    public boolean isEmpty() {
        return toToken == fromToken;
    }

    /// The end of the usable tokens after a failed load: the longest prefix that is valid in all
    /// groups, in whole blocks of each. Equals [#fromToken] when nothing is usable: `failed` names
    /// no position, or a block that was not to be loaded, or the cache has a group that does not
    /// keep all tokens ([KvCacheGroup#keepsAllTokens]), for which no shorter prefix was loaded.
    public int validTo(KvCacheSpec cache, List<Completion.FailedBlocks> failed) {
        int first = Integer.MAX_VALUE;
        int seam = 1;
        for (var group : cache.groups()) {
            if (!group.keepsAllTokens()) {
                return fromToken;
            }
            seam = Math.max(seam, group.blockTokens());
        }
        if (defect(cache, failed).isPresent()) {
            return fromToken;
        }
        for (var blocks : failed) {
            int tokens = cache.groups().get(blocks.group()).blockTokens();
            for (int position : blocks.positions()) {
                first = Math.min(first, position * tokens);
            }
        }
        return first == Integer.MAX_VALUE ? fromToken : Math.max(fromToken, first - first % seam);
    }

    /// The defect in the blocks that a failed load names; empty when all were to be loaded.
    public Optional<String> defect(KvCacheSpec cache, List<Completion.FailedBlocks> failed) {
        for (var blocks : failed) {
            int group = blocks.group();
            if (group < 0 || group >= cache.groups().size()) {
                return Optional.of("cache group " + group);
            }
            int tokens = cache.groups().get(group).blockTokens();
            int end = Math.ceilDiv(toToken, tokens);
            for (int position : blocks.positions()) {
                if (position < fromToken / tokens || position >= end) {
                    return Optional.of("block " + position + " of group " + group);
                }
            }
        }
        return Optional.empty();
    }
}
