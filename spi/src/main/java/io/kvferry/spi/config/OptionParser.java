// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.config;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;

/// Turns one JSON value (or the text of a default) into the Java value of an option, or refuses it.
final class OptionParser {
    private static final Pattern QUANTITY =
            Pattern.compile("\\s*([0-9]+(?:\\.[0-9]+)?(?:[eE][0-9]+)?)\\s*([A-Za-z]*)\\s*");
    private static final Map<String, Double> BYTE_UNITS =
            Map.ofEntries(
                    Map.entry("", 1d),
                    Map.entry("b", 1d),
                    Map.entry("kb", 1e3),
                    Map.entry("mb", 1e6),
                    Map.entry("gb", 1e9),
                    Map.entry("tb", 1e12),
                    Map.entry("kib", 0x1p10),
                    Map.entry("mib", 0x1p20),
                    Map.entry("gib", 0x1p30),
                    Map.entry("tib", 0x1p40));
    private static final Map<String, Double> SECOND_UNITS =
            Map.of("", 1d, "us", 1e-6, "ms", 1e-3, "s", 1d, "m", 60d, "min", 60d, "h", 3600d);

    private OptionParser() {}

    /// Reads the text of a default, which has no JSON type of its own.
    static Object parseDefault(Option option, String text) {
        Object value =
                switch (option.type()) {
                    case BOOLEAN ->
                            text.equals("true")
                                    ? Boolean.TRUE
                                    : text.equals("false") ? Boolean.FALSE : text;
                    case INTEGER -> Long.valueOf(text);
                    case NUMBER -> Double.valueOf(text);
                    case STRING_LIST -> text.isEmpty() ? List.of() : List.of(text.split(","));
                    case STRING, BYTES, DURATION, PATH, CHOICE, JSON -> text;
                };
        return parse("default of " + option.name(), option, value);
    }

    static Object parse(String where, Option option, Object value) {
        try {
            return parseShown(where, option, value);
        } catch (KvFerryException e) {
            if (option.secret()) {
                throw new KvFerryException(
                        e.code(),
                        where + ": no " + option.type() + " as it should be (not shown: a secret)");
            }
            throw e;
        }
    }

    /// Names the value in what it throws.
    private static Object parseShown(String where, Option option, Object value) {
        return switch (option.type()) {
            case STRING -> string(where, value);
            case BOOLEAN -> bool(where, value);
            case INTEGER -> integer(where, option, value);
            case NUMBER -> number(where, option, value);
            case BYTES ->
                    (long)
                            Math.rint(
                                    inRange(
                                            where,
                                            option,
                                            quantity(
                                                    where,
                                                    value,
                                                    BYTE_UNITS,
                                                    "bytes, as a number or with one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB, e.g. \"4GiB\"")));
            case DURATION ->
                    Duration.ofNanos(
                            Math.round(
                                    inRange(
                                                    where,
                                                    option,
                                                    quantity(
                                                            where,
                                                            value,
                                                            SECOND_UNITS,
                                                            "a duration, as a number of seconds or with one of us, ms, s, m, min, h, e.g. \"250ms\""))
                                            * 1e9));
            case PATH -> path(where, value);
            case CHOICE -> choice(where, option, value);
            case STRING_LIST -> strings(where, value);
            case JSON -> value;
        };
    }

    private static String string(String where, Object value) {
        if (value instanceof String text) {
            return text;
        }
        throw bad(where, "a string", value);
    }

    private static Boolean bool(String where, Object value) {
        if (value instanceof Boolean flag) {
            return flag;
        }
        throw bad(where, "true or false (without quotes)", value);
    }

    private static Long integer(String where, Option option, Object value) {
        // The last part refuses what does not fit a long, which longValue() would wrap or cut.
        if (value instanceof Number n
                && n.doubleValue() == Math.rint(n.doubleValue())
                && (double) n.longValue() == n.doubleValue()) {
            inRange(where, option, (double) n.longValue());
            return n.longValue();
        }
        throw bad(where, "a whole number", value);
    }

    private static Double number(String where, Option option, Object value) {
        if (value instanceof Number n && Double.isFinite(n.doubleValue())) {
            return inRange(where, option, n.doubleValue());
        }
        throw bad(where, "a finite number", value);
    }

    private static double quantity(
            String where, Object value, Map<String, Double> units, String shape) {
        if (value instanceof Number n && n.doubleValue() >= 0 && n.doubleValue() < Long.MAX_VALUE) {
            return n.doubleValue();
        }
        if (value instanceof String text) {
            var match = QUANTITY.matcher(text);
            var unit = match.matches() ? units.get(match.group(2).toLowerCase(Locale.ROOT)) : null;
            if (unit != null && Double.parseDouble(match.group(1)) * unit < Long.MAX_VALUE) {
                return Double.parseDouble(match.group(1)) * unit;
            }
        }
        throw bad(where, shape, value);
    }

    private static Path path(String where, Object value) {
        try {
            return Path.of(string(where, value));
        } catch (InvalidPathException e) {
            throw new KvFerryException(ErrorCode.BAD_CONFIG, where + ": not a path: " + value, e);
        }
    }

    private static String choice(String where, Option option, Object value) {
        var text = string(where, value);
        if (!option.choices().contains(text)) {
            throw bad(where, "one of " + option.choices(), value);
        }
        return text;
    }

    private static List<String> strings(String where, Object value) {
        if (!(value instanceof List<?> list)) {
            throw bad(where, "a list of strings", value);
        }
        return list.stream().map(item -> string(where, item)).toList();
    }

    private static double inRange(String where, Option option, double value) {
        if (value < option.minimum() || value > option.maximum()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    where
                            + ": "
                            + plain(value)
                            + " is outside "
                            + plain(option.minimum())
                            + " to "
                            + plain(option.maximum()));
        }
        return value;
    }

    private static String plain(double value) {
        return value == Math.rint(value) && Math.abs(value) < 1e18
                ? Long.toString((long) value)
                : Double.toString(value);
    }

    private static KvFerryException bad(String where, String shape, Object value) {
        var shown = value instanceof String text ? '"' + text + '"' : String.valueOf(value);
        return new KvFerryException(
                ErrorCode.BAD_CONFIG, where + ": expected " + shape + ", got " + shown);
    }
}
