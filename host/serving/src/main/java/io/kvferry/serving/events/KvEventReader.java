// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.events;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.msgpack.core.MessageIntegerOverflowException;
import org.msgpack.core.MessagePack;
import org.msgpack.core.MessagePackException;
import org.msgpack.core.MessageUnpacker;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/// Reads batches of KV events. Batches and events are maps or arrays, as vLLM's releases differ.
/// Skips events that do not concern the device memory of the first cache group, blocks of an
/// adapter, blocks that need more than tokens and a salt, and events of an unknown type.
///
/// Threading: any thread.
final class KvEventReader {
    private static final int MAX_DEPTH = 8;
    private static final int MAX_STRING_BYTES = 1 << 16;
    private static final List<String> BATCH_FIELDS = List.of("ts", "events");
    private static final List<String> STORED_FIELDS =
            List.of(
                    "type",
                    "block_hashes",
                    "parent_block_hash",
                    "token_ids",
                    "block_size",
                    "lora_id",
                    "medium",
                    "lora_name",
                    "extra_keys",
                    "group_idx");
    private static final List<String> REMOVED_FIELDS =
            List.of("type", "block_hashes", "medium", "group_idx");

    static {
        MsgpackBuffers.useNoUnsafe();
    }

    private static final MessagePack.UnpackerConfig CONFIG =
            new MessagePack.UnpackerConfig().withStringSizeLimit(MAX_STRING_BYTES);

    private final MessageUnpacker in;
    private final long length;

    private KvEventReader(byte[] message) {
        in = CONFIG.newUnpacker(message);
        length = message.length;
    }

    /// @throws KvFerryException PROTOCOL when it is not a batch
    static List<KvEvent> read(byte[] message) {
        try {
            var batch = fields(new KvEventReader(message).value(0), BATCH_FIELDS);
            var events = new ArrayList<KvEvent>();
            for (var event : list(batch.get("events"))) {
                event(event).ifPresent(events::add);
            }
            return events;
        } catch (IOException | MessagePackException e) {
            throw malformed(e.toString());
        }
    }

    private static KvFerryException malformed(String what) {
        return new KvFerryException(ErrorCode.PROTOCOL, "not a batch of KV events: " + what);
    }

    private static Optional<KvEvent> event(@Nullable Object value) {
        var type =
                value instanceof Map<?, ?> map
                        ? map.get("type")
                        : list(value).isEmpty() ? null : list(value).getFirst();
        return switch (String.valueOf(type)) {
            case "BlockStored" -> stored(fields(value, STORED_FIELDS));
            case "BlockRemoved" -> removed(fields(value, REMOVED_FIELDS));
            case "AllBlocksCleared" -> Optional.of(new KvEvent.Cleared());
            default -> Optional.empty();
        };
    }

    private static Optional<KvEvent> stored(Map<String, @Nullable Object> event) {
        var tokens = list(event.get("token_ids"));
        var blocks = hashes(event.get("block_hashes"));
        long blockTokens = number(event.get("block_size"));
        if (!isPlain(event) || tokens.isEmpty()) {
            return Optional.empty();
        }
        if (blockTokens < 1 || tokens.size() != blocks.length * blockTokens) {
            throw malformed(
                    tokens.size() + " tokens for " + blocks.length + " blocks of " + blockTokens);
        }
        var parent = event.get("parent_block_hash");
        var extraKeys = event.get("extra_keys") == null ? List.of() : list(event.get("extra_keys"));
        var salt = parent == null ? salt(extraKeys) : "";
        int plain = plainBlocks(extraKeys, salt.isEmpty() ? 0 : 1, blocks.length);
        if (plain == 0) {
            return Optional.empty();
        }
        var ids = new int[(int) (plain * blockTokens)];
        for (int i = 0; i < ids.length; i++) {
            ids[i] = (int) number(tokens.get(i));
        }
        return Optional.of(
                new KvEvent.Stored(
                        Arrays.copyOf(blocks, plain),
                        parent == null ? OptionalLong.empty() : OptionalLong.of(hash(parent)),
                        ids,
                        (int) blockTokens,
                        salt));
    }

    /// vLLM folds the salt into the first block of a prompt, as the only text among its extra keys.
    private static String salt(List<?> extraKeys) {
        return !extraKeys.isEmpty()
                        && extraKeys.getFirst() instanceof List<?> keys
                        && keys.size() == 1
                        && keys.getFirst() instanceof String text
                ? text
                : "";
    }

    /// Blocks before the first one with extra keys, from `from` on.
    private static int plainBlocks(List<?> extraKeys, int from, int blocks) {
        for (int i = from; i < Math.min(blocks, extraKeys.size()); i++) {
            if (extraKeys.get(i) != null && !list(extraKeys.get(i)).isEmpty()) {
                return i;
            }
        }
        return blocks;
    }

    private static Optional<KvEvent> removed(Map<String, @Nullable Object> event) {
        return isPlain(event)
                ? Optional.of(new KvEvent.Removed(hashes(event.get("block_hashes"))))
                : Optional.empty();
    }

    private static boolean isPlain(Map<String, @Nullable Object> event) {
        var medium = event.get("medium");
        var group = event.get("group_idx");
        return (medium == null || "GPU".equalsIgnoreCase(medium.toString()))
                && (group == null || number(group) == 0)
                && event.get("lora_id") == null
                && event.get("lora_name") == null;
    }

    private static long[] hashes(@Nullable Object value) {
        return list(value).stream().mapToLong(KvEventReader::hash).toArray();
    }

    /// A number, or the last 8 of some bytes.
    private static long hash(@Nullable Object value) {
        if (value instanceof byte[] bytes && bytes.length >= Long.BYTES) {
            return ByteBuffer.wrap(bytes).getLong(bytes.length - Long.BYTES);
        }
        return number(value);
    }

    private static long number(@Nullable Object value) {
        if (value instanceof Long number) {
            return number;
        }
        throw malformed("a number was expected, not " + value);
    }

    private static List<?> list(@Nullable Object value) {
        if (value instanceof List<?> list) {
            return list;
        }
        throw malformed("an array was expected, not " + value);
    }

    /// A struct as a map by the names of its fields, whichever way it is written.
    private static Map<String, @Nullable Object> fields(
            @Nullable Object value, List<String> names) {
        var fields = new HashMap<String, @Nullable Object>();
        if (value instanceof Map<?, ?> map) {
            map.forEach((key, field) -> fields.put(String.valueOf(key), field));
        } else {
            var list = list(value);
            for (int i = 0; i < Math.min(list.size(), names.size()); i++) {
                fields.put(names.get(i), list.get(i));
            }
        }
        return fields;
    }

    private @Nullable Object value(int depth) throws IOException {
        if (depth > MAX_DEPTH) {
            throw malformed("nested more than " + MAX_DEPTH + " deep");
        }
        return switch (in.getNextFormat().getValueType()) {
            case NIL, EXTENSION -> {
                in.skipValue();
                yield null;
            }
            case BOOLEAN -> in.unpackBoolean();
            case FLOAT -> in.unpackDouble();
            case INTEGER -> integer();
            case STRING -> in.unpackString();
            case BINARY -> in.readPayload(possible(in.unpackBinaryHeader(), 1));
            case ARRAY -> {
                int count = possible(in.unpackArrayHeader(), 1);
                var list = new ArrayList<@Nullable Object>(count);
                for (int i = 0; i < count; i++) {
                    list.add(value(depth + 1));
                }
                yield list;
            }
            case MAP -> {
                int count = possible(in.unpackMapHeader(), 2);
                var map = new HashMap<String, @Nullable Object>();
                for (int i = 0; i < count; i++) {
                    map.put(String.valueOf(value(depth + 1)), value(depth + 1));
                }
                yield map;
            }
        };
    }

    /// Unsigned numbers beyond a long's come out negative.
    private Long integer() throws IOException {
        try {
            return in.unpackLong();
        } catch (MessageIntegerOverflowException e) {
            return e.getBigInteger().longValue();
        }
    }

    /// A count that the rest of the message has bytes for.
    private int possible(int count, int itemBytes) {
        if (count < 0 || (long) count * itemBytes > length - in.getTotalReadBytes()) {
            throw malformed(
                    count
                            + " items announced, "
                            + (length - in.getTotalReadBytes())
                            + " bytes left");
        }
        return count;
    }
}
