// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.config;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import tools.jackson.core.JacksonException;
import tools.jackson.core.StreamReadFeature;
import tools.jackson.core.type.TypeReference;
import tools.jackson.databind.DeserializationFeature;
import tools.jackson.databind.json.JsonMapper;

import java.util.Map;

/// Parses one JSON object into plain Java values: String, Boolean, Long, BigInteger, Double, List,
/// Map. Duplicate keys and text after the object are refused.
final class Json {
    private static final TypeReference<Map<String, Object>> OBJECT = new TypeReference<>() {};
    private static final JsonMapper MAPPER =
            JsonMapper.builder()
                    .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
                    .enable(DeserializationFeature.USE_LONG_FOR_INTS)
                    .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
                    .build();

    private Json() {}

    static Map<String, Object> object(String where, String text) {
        try {
            Map<String, Object> parsed = MAPPER.readValue(text, OBJECT);
            if (parsed == null) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG, where + ": expected a JSON object, got null");
            }
            return parsed;
        } catch (JacksonException e) {
            var at = e.getLocation();
            var place =
                    at == null || at.getLineNr() < 0
                            ? ""
                            : " at line " + at.getLineNr() + ", column " + at.getColumnNr();
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    where
                            + ": not a JSON object"
                            + place
                            + ": "
                            + e.getOriginalMessage()
                            + ". On a command line, put the whole object in single quotes.",
                    e);
        }
    }
}
