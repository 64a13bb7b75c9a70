// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.observe;

import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.RequestView.ItemKey;
import io.kvferry.spi.memory.BlockHash;

import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/// A change of what a cache holds, for routers that follow it (vLLM's KV events, and the same for
/// encoder items).
///
/// A block counts as stored once every rank has it: halves of which each rank stores its own part
/// report from the scheduler half.
public sealed interface CacheEvent {
    /// Where: the connector instance, or `engine` for the engine's own blocks.
    String source();

    /// These blocks can be loaded from now on; each is the parent of the next one.
    ///
    /// @param group KV cache group
    /// @param parent the block before the first of them; empty at the start of a prompt or when
    ///   unknown
    /// @param blockTokens tokens per block; 0 when unknown
    /// @param tokens the token ids of all the blocks, so that a router that hashes tokens itself
    ///   can follow; empty when unknown
    /// @param extraKeys the items that the hash of each block covers beside its tokens and its
    ///   parent; empty when no block has any
    /// @param salt the tenant's, which the hash of the first block covers where that begins a
    ///   prompt; empty for none
    record Stored(
            String source,
            LookupResult.Tier tier,
            int group,
            Optional<BlockHash> parent,
            List<BlockHash> blocks,
            int blockTokens,
            int[] tokens,
            List<List<ItemKey>> extraKeys,
            String salt)
            implements CacheEvent {
        private static final int[] UNKNOWN = {};

        public Stored {
            blocks = List.copyOf(blocks);
            extraKeys = List.copyOf(extraKeys);
            Objects.requireNonNull(salt, "salt");
            if (!extraKeys.isEmpty() && extraKeys.size() != blocks.size()) {
                throw new IllegalArgumentException(
                        "extra keys of " + extraKeys.size() + " blocks, not " + blocks.size());
            }
            if (tokens.length > 0 && tokens.length != blocks.size() * blockTokens) {
                throw new IllegalArgumentException(
                        tokens.length
                                + " tokens for "
                                + blocks.size()
                                + " blocks of "
                                + blockTokens);
            }
        }

        /// Blocks without extra keys and salt.
        public Stored(
                String source,
                LookupResult.Tier tier,
                int group,
                Optional<BlockHash> parent,
                List<BlockHash> blocks,
                int blockTokens,
                int[] tokens) {
            this(source, tier, group, parent, blocks, blockTokens, tokens, List.of(), "");
        }

        /// Blocks whose tokens are not known.
        public Stored(
                String source,
                LookupResult.Tier tier,
                int group,
                Optional<BlockHash> parent,
                List<BlockHash> blocks) {
            this(source, tier, group, parent, blocks, 0, UNKNOWN);
        }

        /// Blocks of group 0 whose parent and tokens are not known.
        public Stored(String source, LookupResult.Tier tier, List<BlockHash> blocks) {
            this(source, tier, 0, Optional.empty(), blocks);
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Stored stored
                    && source.equals(stored.source)
                    && tier == stored.tier
                    && group == stored.group
                    && parent.equals(stored.parent)
                    && blocks.equals(stored.blocks)
                    && blockTokens == stored.blockTokens
                    && Arrays.equals(tokens, stored.tokens)
                    && extraKeys.equals(stored.extraKeys)
                    && salt.equals(stored.salt);
        }

        @Override
        public int hashCode() {
            return Objects.hash(source, tier, group, parent, blocks, blockTokens);
        }
    }

    /// These blocks can no longer be loaded from this tier; another may still have them.
    record Removed(String source, LookupResult.Tier tier, int group, List<BlockHash> blocks)
            implements CacheEvent {
        public Removed {
            Objects.requireNonNull(source, "source");
            Objects.requireNonNull(tier, "tier");
            blocks = List.copyOf(blocks);
        }

        /// Blocks of group 0.
        public Removed(String source, LookupResult.Tier tier, List<BlockHash> blocks) {
            this(source, tier, 0, blocks);
        }
    }

    /// These encoder items (by content hash) can be loaded from now on.
    record ItemsStored(String source, LookupResult.Tier tier, List<String> items)
            implements CacheEvent {
        public ItemsStored {
            Objects.requireNonNull(source, "source");
            Objects.requireNonNull(tier, "tier");
            items = List.copyOf(items);
        }
    }

    /// These encoder items can no longer be loaded from this tier.
    record ItemsRemoved(String source, LookupResult.Tier tier, List<String> items)
            implements CacheEvent {
        public ItemsRemoved {
            Objects.requireNonNull(source, "source");
            Objects.requireNonNull(tier, "tier");
            items = List.copyOf(items);
        }
    }

    /// All blocks were removed; none can be loaded any more.
    record Cleared(String source) implements CacheEvent {
        public Cleared {
            Objects.requireNonNull(source, "source");
        }
    }
}
