// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te.internal;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import tools.jackson.core.JacksonException;
import tools.jackson.core.StreamReadFeature;
import tools.jackson.databind.DeserializationFeature;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;

/// Strict JSON: exact types both ways, because a wrong one kills a native peer's process and must
/// not get past us.
public final class WireJson {
    private static final BigInteger U64_LIMIT = BigInteger.ONE.shiftLeft(64);

    private static final JsonMapper MAPPER =
            JsonMapper.builder()
                    .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
                    .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
                    .build();

    private WireJson() {}

    public static ObjectNode object() {
        return MAPPER.createObjectNode();
    }

    /// @throws KvFerryException [ErrorCode#PROTOCOL]
    public static JsonNode parse(String text, String what) {
        try {
            return MAPPER.readTree(text);
        } catch (JacksonException e) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, what + " is no JSON: " + e.getOriginalMessage(), e);
        }
    }

    /// As native nodes write it: compact, UTF-8, a newline at the end.
    public static byte[] bytes(JsonNode node) {
        return (MAPPER.writeValueAsString(node) + "\n").getBytes(StandardCharsets.UTF_8);
    }

    public static JsonNode objectOf(JsonNode node, String what) {
        if (!node.isObject()) {
            throw wrong(what, "an object", node);
        }
        return node;
    }

    public static String text(JsonNode object, String field, String what) {
        JsonNode node = object.path(field);
        if (!node.isString()) {
            throw wrong(what + "." + field, "a string", node);
        }
        return node.stringValue();
    }

    public static long u64(JsonNode object, String field, String what) {
        JsonNode node = object.path(field);
        if (!node.isIntegralNumber()
                || node.bigIntegerValue().signum() < 0
                || node.bigIntegerValue().compareTo(U64_LIMIT) >= 0) {
            throw wrong(what + "." + field, "an unsigned 64-bit integer", node);
        }
        return node.bigIntegerValue().longValue();
    }

    public static int smallInt(JsonNode object, String field, int least, int most, String what) {
        JsonNode node = object.path(field);
        if (!node.isIntegralNumber()
                || !node.canConvertToInt()
                || node.intValue() < least
                || node.intValue() > most) {
            throw wrong(what + "." + field, "an integer from " + least + " to " + most, node);
        }
        return node.intValue();
    }

    private static KvFerryException wrong(String where, String wanted, JsonNode found) {
        String shown = found.toString();
        return new KvFerryException(
                ErrorCode.PROTOCOL,
                where
                        + " is not "
                        + wanted
                        + ": "
                        + shown.substring(0, Math.min(80, shown.length())));
    }
}
