// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.config;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.math.BigDecimal;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;

/// Typed access to one JSON object of a configuration; a value of another shape is refused with its
/// place. JSON null counts as absent, as in vLLM. Numbers may be quoted: vLLM takes them, and its
/// own recipes write `"kv_port": "21001"`.
final class ConfigFields {
    private final String where;
    private final Map<String, ?> raw;

    ConfigFields(String where, Map<String, ?> raw) {
        this.where = where;
        this.raw = raw;
    }

    boolean has(String key) {
        return raw.get(key) != null;
    }

    Optional<String> string(String key) {
        var value = raw.get(key);
        if (value == null) {
            return Optional.empty();
        }
        if (value instanceof String text && !text.isBlank()) {
            return Optional.of(text);
        }
        throw bad(key, "a non-empty string", value);
    }

    boolean flag(String key) {
        var value = raw.get(key);
        if (value == null) {
            return false;
        }
        if (value instanceof Boolean flag) {
            return flag;
        }
        throw bad(key, "true or false (without quotes)", value);
    }

    long number(String key, long absent, long least, long most) {
        var value = raw.get(key);
        if (value == null) {
            return absent;
        }
        var shape = "a whole number from " + least + " to " + most;
        if (!(value instanceof Number || value instanceof String)) {
            throw bad(key, shape, value);
        }
        long number;
        try {
            number = new BigDecimal(value.toString().strip()).longValueExact();
        } catch (ArithmeticException | NumberFormatException e) {
            throw bad(key, shape, value);
        }
        if (number < least || number > most) {
            throw bad(key, shape, value);
        }
        return number;
    }

    /// A nested object without its null values; empty when absent.
    Map<String, Object> object(String key) {
        var value = raw.get(key);
        if (value == null) {
            return Map.of();
        }
        if (!(value instanceof Map<?, ?> map)) {
            throw bad(key, "a JSON object", value);
        }
        var kept = new LinkedHashMap<String, Object>();
        map.forEach((name, entry) -> {
            if (entry != null) {
                kept.put(String.valueOf(name), entry);
            }
        });
        return kept;
    }

    KvFerryException bad(String key, String shape, Object value) {
        var shown = value instanceof String text ? '"' + text + '"' : String.valueOf(value);
        return error(key + ": expected " + shape + ", got " + shown);
    }

    KvFerryException error(String what) {
        return new KvFerryException(ErrorCode.BAD_CONFIG, where + ": " + what);
    }
}
