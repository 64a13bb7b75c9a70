// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import io.kvferry.spi.kv.TransferParams;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/// What becomes of params on their way over HTTP as JSON text.
public final class JsonShape {
    /// Largest whole number that every JSON reader keeps exactly.
    private static final long EXACT = 1L << 53;

    private JsonShape() {}

    /// The params as the other side reads them; fails for a value that JSON cannot carry.
    public static TransferParams copy(TransferParams params) {
        var copy = new LinkedHashMap<String, Object>();
        params.values().forEach((key, value) -> copy.put(text(key), value("param " + key, value)));
        return new TransferParams(copy);
    }

    private static Object value(String where, Object value) {
        return switch (value) {
            case String text -> text(text);
            case Boolean flag -> flag;
            case Double number -> {
                if (!Double.isFinite(number)) {
                    throw new AssertionError(where + ": JSON has no " + number);
                }
                yield number;
            }
            case Long number -> {
                if (Math.abs(number) > EXACT) {
                    throw new AssertionError(
                            where
                                    + ": "
                                    + number
                                    + " loses digits in most JSON readers; make it a string");
                }
                yield number;
            }
            case Integer number -> number.longValue();
            case List<?> list -> {
                var copy = new ArrayList<Object>();
                list.forEach(item -> copy.add(value(where + "[]", item)));
                yield copy;
            }
            case Map<?, ?> map -> {
                var copy = new LinkedHashMap<String, Object>();
                map.forEach((key, item) ->
                        copy.put(text(key.toString()), value(where + "." + key, item)));
                yield copy;
            }
            default ->
                    throw new AssertionError(
                            where + ": " + value.getClass().getName() + " is not a JSON value");
        };
    }

    private static String text(String text) {
        for (int i = 0; i < text.length(); i++) {
            boolean paired =
                    Character.isHighSurrogate(text.charAt(i))
                            ? i + 1 < text.length() && Character.isLowSurrogate(text.charAt(i + 1))
                            : !Character.isLowSurrogate(text.charAt(i))
                                    || i > 0 && Character.isHighSurrogate(text.charAt(i - 1));
            if (!paired) {
                throw new AssertionError("not valid Unicode: " + text);
            }
        }
        return text;
    }
}
