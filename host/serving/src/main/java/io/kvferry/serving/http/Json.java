// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import org.jspecify.annotations.Nullable;

import tools.jackson.core.JacksonException;
import tools.jackson.core.StreamReadFeature;
import tools.jackson.databind.DeserializationFeature;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/// The one JSON mapper of this module, strict on what comes in: one value, no duplicate keys, no
/// trailing bytes.
///
/// Threading: any thread.
public final class Json {
    private static final JsonMapper MAPPER =
            JsonMapper.builder()
                    .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
                    .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
                    .build();

    private Json() {}

    public static ObjectNode object() {
        return MAPPER.createObjectNode();
    }

    public static String text(JsonNode node) {
        return MAPPER.writeValueAsString(node);
    }

    public static String pretty(JsonNode node) {
        return MAPPER.writerWithDefaultPrettyPrinter().writeValueAsString(node);
    }

    /// Any Java value made of maps, lists, strings, numbers and booleans.
    public static JsonNode tree(Object value) {
        return MAPPER.valueToTree(value);
    }

    /// Reads a request body.
    ///
    /// @throws HttpProblem 400 when it is not one JSON object
    public static ObjectNode parseObject(byte[] body) {
        try {
            return readObject(body);
        } catch (IllegalArgumentException e) {
            throw HttpProblem.badRequest("", "the body is " + e.getMessage());
        }
    }

    /// Reads a file, a line of one, or the value of an option.
    ///
    /// @throws IllegalArgumentException when it is not one JSON object, with what it is: `not ...`
    public static ObjectNode readObject(byte[] text) {
        try {
            if (MAPPER.readTree(text) instanceof ObjectNode object) {
                return object;
            }
        } catch (JacksonException e) {
            throw new IllegalArgumentException(
                    "not valid JSON: " + firstLine(e.getOriginalMessage()), e);
        }
        throw new IllegalArgumentException("not a JSON object");
    }

    /// Plain Java values as [io.kvferry.spi.kv.TransferParams] wants them: String, Boolean, Long,
    /// Double, List, Map.
    public static Map<String, Object> toMap(ObjectNode object) {
        var map = new LinkedHashMap<String, Object>();
        object.properties()
                .forEach(entry -> {
                    var value = toJava(entry.getValue());
                    if (value != null) {
                        map.put(entry.getKey(), value);
                    }
                });
        return map;
    }

    private static @Nullable Object toJava(JsonNode node) {
        return switch (node.getNodeType()) {
            case OBJECT -> toMap((ObjectNode) node);
            case ARRAY -> toList(node);
            case STRING -> node.stringValue();
            case BOOLEAN -> node.booleanValue();
            case NUMBER -> {
                if (node.isIntegralNumber() && node.canConvertToLong()) {
                    yield node.longValue(); // an expression with ?: would make it a double
                }
                yield node.doubleValue();
            }
            case NULL, MISSING, BINARY, POJO -> null;
        };
    }

    private static List<Object> toList(JsonNode array) {
        var list = new ArrayList<>(array.size());
        for (var item : array) {
            var value = toJava(item);
            if (value != null) {
                list.add(value);
            }
        }
        return list;
    }

    private static String firstLine(String text) {
        int end = text.indexOf('\n');
        return end < 0 ? text : text.substring(0, end);
    }
}
