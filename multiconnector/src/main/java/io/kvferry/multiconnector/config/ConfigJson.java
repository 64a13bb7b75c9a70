// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.config;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import tools.jackson.core.JacksonException;
import tools.jackson.core.StreamReadFeature;
import tools.jackson.core.exc.UnexpectedEndOfInputException;
import tools.jackson.core.type.TypeReference;
import tools.jackson.databind.DeserializationFeature;
import tools.jackson.databind.json.JsonMapper;

import java.util.Map;

/// Parses one JSON object into plain Java values: String, Boolean, Long, BigInteger, Double, List,
/// Map. Duplicate keys and text after the object are refused.
final class ConfigJson {
    private static final TypeReference<Map<String, Object>> OBJECT = new TypeReference<>() {};
    private static final JsonMapper MAPPER =
            JsonMapper.builder()
                    .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
                    .enable(DeserializationFeature.USE_LONG_FOR_INTS)
                    .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
                    .build();

    private ConfigJson() {}

    static Map<String, Object> object(ConfigText config) {
        try {
            var tree = MAPPER.readTree(config.json());
            if (!tree.isObject()) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG,
                        config.where()
                                + ": expected a JSON object, got "
                                + (tree.isMissingNode() ? "nothing" : tree.toString()));
            }
            return MAPPER.readValue(config.json(), OBJECT);
        } catch (JacksonException e) {
            var at = e.getLocation();
            var place =
                    at == null || at.getLineNr() < 0
                            ? ""
                            : " at line " + at.getLineNr() + ", column " + at.getColumnNr();
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    config.where()
                            + ": not a JSON object"
                            + place
                            + ": "
                            + reason(e)
                            + (config.typed()
                                    ? ". On a command line, put the whole object in single quotes."
                                    : ""),
                    e);
        }
    }

    /// The parser's message without the source of the text, which is always this text.
    private static String reason(JacksonException e) {
        if (e instanceof UnexpectedEndOfInputException) {
            return "the text ends before the object does";
        }
        return e.getOriginalMessage().replaceFirst("\\s*\\([^(]*\\[Source:.*", "");
    }
}
