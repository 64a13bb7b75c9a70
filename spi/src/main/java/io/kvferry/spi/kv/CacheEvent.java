// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
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

    /// These blocks can be loaded from now on.
    ///
    /// @param group KV cache group
    /// @param parent the block before the first of them; empty at the start of a prompt or when
    ///   unknown
    record Stored(
            String source,
            LookupResult.Tier tier,
            int group,
            Optional<BlockHash> parent,
            List<BlockHash> blocks)
            implements CacheEvent {
        public Stored {
            Objects.requireNonNull(source, "source");
            Objects.requireNonNull(tier, "tier");
            Objects.requireNonNull(parent, "parent");
            blocks = List.copyOf(blocks);
        }

        /// Blocks of group 0 whose parent is not known.
        public Stored(String source, LookupResult.Tier tier, List<BlockHash> blocks) {
            this(source, tier, 0, Optional.empty(), blocks);
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

    /// Nothing can be loaded any more.
    record Cleared(String source) implements CacheEvent {
        public Cleared {
            Objects.requireNonNull(source, "source");
        }
    }

    default void write(WireWriter out) {
        switch (this) {
            case Stored(var source, var tier, int group, var parent, var blocks) -> {
                out.u8(0).string(source).u8(tier.wire()).i32(group).bool(parent.isPresent());
                parent.ifPresent(hash -> out.raw(hash.toBytes(), 0, BlockHash.BYTES));
                writeHashes(out, blocks);
            }
            case Removed(var source, var tier, int group, var blocks) -> {
                out.u8(1).string(source).u8(tier.wire()).i32(group);
                writeHashes(out, blocks);
            }
            case Cleared(var source) -> out.u8(2).string(source);
            case ItemsStored(var source, var tier, var items) -> {
                out.u8(3).string(source).u8(tier.wire()).i32(items.size());
                items.forEach(out::string);
            }
            case ItemsRemoved(var source, var tier, var items) -> {
                out.u8(4).string(source).u8(tier.wire()).i32(items.size());
                items.forEach(out::string);
            }
        }
    }

    static CacheEvent read(WireReader in) {
        int kind = in.u8();
        var source = in.string();
        return switch (kind) {
            case 0 -> {
                var tier = LookupResult.Tier.ofWire(in.u8());
                int group = in.i32();
                var parent = in.bool() ? Optional.of(readHash(in)) : Optional.<BlockHash>empty();
                yield new Stored(source, tier, group, parent, readHashes(in));
            }
            case 1 ->
                    new Removed(
                            source, LookupResult.Tier.ofWire(in.u8()), in.i32(), readHashes(in));
            case 2 -> new Cleared(source);
            case 3 -> new ItemsStored(source, LookupResult.Tier.ofWire(in.u8()), readItems(in));
            case 4 -> new ItemsRemoved(source, LookupResult.Tier.ofWire(in.u8()), readItems(in));
            default ->
                    throw new KvFerryException(
                            ErrorCode.PROTOCOL, "cache event of unknown kind " + kind);
        };
    }

    private static void writeHashes(WireWriter out, List<BlockHash> hashes) {
        out.i32(hashes.size());
        for (var hash : hashes) {
            out.raw(hash.toBytes(), 0, BlockHash.BYTES);
        }
    }

    private static BlockHash readHash(WireReader in) {
        return BlockHash.of(in.raw(BlockHash.BYTES), 0);
    }

    private static List<BlockHash> readHashes(WireReader in) {
        int count = in.count(BlockHash.BYTES);
        var hashes = new ArrayList<BlockHash>(count);
        for (int i = 0; i < count; i++) {
            hashes.add(readHash(in));
        }
        return hashes;
    }

    private static List<String> readItems(WireReader in) {
        int count = in.count(4);
        var items = new ArrayList<String>(count);
        for (int i = 0; i < count; i++) {
            items.add(in.string());
        }
        return items;
    }
}
