// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.RequestView.ItemKey;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.observe.CacheEvent;

import org.msgpack.core.MessageBufferPacker;
import org.msgpack.core.MessagePack;

import java.io.IOException;
import java.math.BigInteger;
import java.util.List;

/// Encodes batches of events in vLLM's msgpack: an array of time, events and data-parallel rank,
/// each event a map with its type. Block hashes are reduced to their last 64 bits, as an unsigned
/// number (vLLM's default). vLLM has no event for encoder items, nor for a single connector that
/// was emptied; both are omitted.
///
/// Threading: any thread.
final class KvEventWriter {
    /// vLLM publishes one batch per rank; there is one.
    private static final int RANK = 0;

    private static final String ENGINE = "engine";

    /// The engine's cache was emptied.
    static final CacheEvent CLEARED = new CacheEvent.Cleared(ENGINE);

    static {
        MsgpackBuffers.useNoUnsafe();
    }

    private KvEventWriter() {}

    static boolean hasForm(CacheEvent event) {
        return switch (event) {
            case CacheEvent.Stored _, CacheEvent.Removed _ -> true;
            case CacheEvent.Cleared(String source) -> source.equals(ENGINE);
            case CacheEvent.ItemsStored _, CacheEvent.ItemsRemoved _ -> false;
        };
    }

    /// @param events all of which [#hasForm]
    /// @param seconds since 1970
    static byte[] write(List<CacheEvent> events, double seconds) {
        try (var out = MessagePack.newDefaultBufferPacker()) {
            out.packArrayHeader(3).packDouble(seconds).packArrayHeader(events.size());
            for (var event : events) {
                write(out, event);
            }
            out.packInt(RANK);
            return out.toByteArray();
        } catch (IOException e) {
            throw new IllegalStateException("memory takes all bytes", e);
        }
    }

    private static void write(MessageBufferPacker out, CacheEvent event) throws IOException {
        switch (event) {
            case CacheEvent.Stored stored -> write(out, stored);
            case CacheEvent.Removed(String _, var tier, int group, var blocks) -> {
                type(out, 4, "BlockRemoved");
                hashes(out, blocks);
                out.packString("medium").packString(medium(tier));
                out.packString("group_idx").packInt(group);
            }
            case CacheEvent.Cleared _ -> type(out, 1, "AllBlocksCleared");
            case CacheEvent.ItemsStored _, CacheEvent.ItemsRemoved _ ->
                    throw new IllegalArgumentException("no form in vLLM: " + event);
        }
    }

    private static void write(MessageBufferPacker out, CacheEvent.Stored stored)
            throws IOException {
        boolean plain = stored.extraKeys().isEmpty() && stored.salt().isEmpty();
        type(out, plain ? 9 : 10, "BlockStored");
        hashes(out, stored.blocks());
        out.packString("parent_block_hash");
        if (stored.parent().isPresent()) {
            hash(out, stored.parent().get());
        } else {
            out.packNil();
        }
        out.packString("token_ids").packArrayHeader(stored.tokens().length);
        for (int token : stored.tokens()) {
            out.packInt(token);
        }
        out.packString("block_size").packInt(stored.blockTokens());
        out.packString("lora_id").packNil();
        out.packString("medium").packString(medium(stored.tier()));
        out.packString("lora_name").packNil();
        if (!plain) { // else left out, as in vLLM
            extraKeys(out, stored);
        }
        out.packString("group_idx").packInt(stored.group());
    }

    /// For each block its items, as pairs of hash and offset, and behind those of the first one the
    /// salt; nil for none.
    private static void extraKeys(MessageBufferPacker out, CacheEvent.Stored stored)
            throws IOException {
        out.packString("extra_keys").packArrayHeader(stored.blocks().size());
        for (int i = 0; i < stored.blocks().size(); i++) {
            var items =
                    stored.extraKeys().isEmpty() ? List.<ItemKey>of() : stored.extraKeys().get(i);
            boolean salted = i == 0 && !stored.salt().isEmpty();
            if (items.isEmpty() && !salted) {
                out.packNil();
                continue;
            }
            out.packArrayHeader(items.size() + (salted ? 1 : 0));
            for (var item : items) {
                out.packArrayHeader(2).packString(item.hash()).packInt(item.offset());
            }
            if (salted) {
                out.packString(stored.salt());
            }
        }
    }

    private static void type(MessageBufferPacker out, int fields, String name) throws IOException {
        out.packMapHeader(fields).packString("type").packString(name);
    }

    private static void hashes(MessageBufferPacker out, List<BlockHash> blocks) throws IOException {
        out.packString("block_hashes").packArrayHeader(blocks.size());
        for (var block : blocks) {
            hash(out, block);
        }
    }

    private static void hash(MessageBufferPacker out, BlockHash block) throws IOException {
        if (block.w3() >= 0) {
            out.packLong(block.w3());
        } else {
            out.packBigInteger(new BigInteger(Long.toUnsignedString(block.w3())));
        }
    }

    private static String medium(LookupResult.Tier tier) {
        return switch (tier) {
            case DEVICE -> "GPU";
            case HOST -> "CPU";
            case DISK -> "STORAGE";
            case PEER -> "p2p";
            case OTHER -> "external_unspecified";
        };
    }
}
