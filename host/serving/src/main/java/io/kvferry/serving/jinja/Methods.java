// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.regex.Pattern;

/// Methods of Python's strings, lists and dictionaries.
final class Methods {
    private static final Pattern FIELD = Pattern.compile("\\{\\{|}}|\\{([^{}]*)}|[{}]");

    private static final Map<String, BiFunction<String, Parameters, Object>> OF_STRINGS =
            Map.ofEntries(
                    Map.entry("strip", Methods::strip),
                    Map.entry("lstrip", Methods::lstrip),
                    Map.entry("rstrip", Methods::rstrip),
                    Map.entry("split", Methods::split),
                    Map.entry("rsplit", Methods::rsplit),
                    Map.entry(
                            "startswith",
                            (text, p) -> affix(p).stream().anyMatch(text::startsWith)),
                    Map.entry("endswith", (text, p) -> affix(p).stream().anyMatch(text::endsWith)),
                    Map.entry("replace", Methods::replace),
                    Map.entry("upper", (text, p) -> none(p, text.toUpperCase(Locale.ROOT))),
                    Map.entry("lower", (text, p) -> none(p, text.toLowerCase(Locale.ROOT))),
                    Map.entry("capitalize", (text, p) -> none(p, Strings.capitalize(text))),
                    Map.entry("title", (text, p) -> none(p, Strings.title(text))),
                    Map.entry("isspace", (text, p) -> none(p, Strings.isSpace(text))),
                    Map.entry("isdigit", (text, p) -> none(p, text.matches("[0-9]+"))),
                    Map.entry("find", (text, p) -> find(text, p)),
                    Map.entry("count", Methods::count),
                    Map.entry("join", Methods::join),
                    Map.entry("format", Methods::format),
                    Map.entry("removeprefix", Methods::withoutPrefix),
                    Map.entry("removesuffix", Methods::withoutSuffix));

    private static final Map<String, BiFunction<Map<?, ?>, Parameters, Object>> OF_MAPS =
            Map.of(
                    "items", (map, p) -> none(p, items(map)),
                    "keys", (map, p) -> none(p, new ArrayList<Object>(map.keySet())),
                    "values", (map, p) -> none(p, new ArrayList<Object>(map.values())),
                    "get", Methods::get);

    /// Other methods of Python's types; an attribute of such a name is never an entry.
    private static final Set<String> OTHERS_OF_STRINGS =
            Set.of(
                    "casefold",
                    "center",
                    "encode",
                    "expandtabs",
                    "format_map",
                    "index",
                    "isalnum",
                    "isalpha",
                    "isascii",
                    "isdecimal",
                    "isidentifier",
                    "islower",
                    "isnumeric",
                    "isprintable",
                    "istitle",
                    "isupper",
                    "ljust",
                    "maketrans",
                    "partition",
                    "rfind",
                    "rindex",
                    "rjust",
                    "rpartition",
                    "splitlines",
                    "swapcase",
                    "translate",
                    "zfill");

    private static final Set<String> OTHERS_OF_MAPS =
            Set.of("clear", "copy", "fromkeys", "pop", "popitem", "setdefault", "update");
    private static final Set<String> OF_LISTS =
            Set.of(
                    "append", "clear", "copy", "count", "extend", "index", "insert", "pop",
                    "remove", "reverse", "sort");

    private Methods() {}

    /// The method of a value; null when its type has none of that name.
    static @Nullable Callee find(Object base, String name) {
        if (name.startsWith("__")) {
            throw TemplateException.unsupported("the attribute " + name);
        }
        return switch (base) {
            case String text -> bound(text, name, OF_STRINGS.get(name), OTHERS_OF_STRINGS);
            case Map<?, ?> map -> bound(map, name, OF_MAPS.get(name), OTHERS_OF_MAPS);
            case List<?> list -> bound(list, name, null, OF_LISTS);
            default -> null;
        };
    }

    private static <T> @Nullable Callee bound(
            T base,
            String name,
            @Nullable BiFunction<T, Parameters, Object> method,
            Set<String> others) {
        if (method == null) {
            if (others.contains(name)) {
                throw TemplateException.unsupported(
                        "the method " + name + " of a " + Values.type(base));
            }
            return null;
        }
        return (arguments, named) -> method.apply(base, new Parameters(name, arguments, named));
    }

    private static Object none(Parameters parameters, Object value) {
        parameters.only();
        return value;
    }

    static List<Object> items(Map<?, ?> map) {
        var items = new ArrayList<Object>(map.size());
        map.forEach((key, value) -> items.add(List.of(key, value)));
        return items;
    }

    private static Object get(Map<?, ?> map, Parameters p) {
        p.only("key", "default");
        var value = map.get(Values.key(p.required(0, "key")));
        return value == null ? p.get(1, "default").orElse(None.NONE) : value;
    }

    /// The characters to strip; empty for white space.
    private static Optional<String> characters(Parameters p) {
        p.only("chars");
        return p.get(0, "chars")
                .filter(value -> value != None.NONE)
                .map(value -> Values.string(value, p.of()));
    }

    private static Object strip(String text, Parameters p) {
        return characters(p)
                .map(chars -> Strings.lstrip(Strings.rstrip(text, chars), chars))
                .orElseGet(() -> Strings.strip(text));
    }

    private static Object lstrip(String text, Parameters p) {
        return characters(p)
                .map(chars -> Strings.lstrip(text, chars))
                .orElseGet(() -> Strings.lstrip(text));
    }

    private static Object rstrip(String text, Parameters p) {
        return characters(p)
                .map(chars -> Strings.rstrip(text, chars))
                .orElseGet(() -> Strings.rstrip(text));
    }

    private static Optional<String> separator(Parameters p) {
        p.only("sep", "maxsplit");
        var separator =
                p.get(0, "sep")
                        .filter(value -> value != None.NONE)
                        .map(value -> Values.string(value, p.of()));
        if (separator.filter(String::isEmpty).isPresent()) {
            throw new TemplateException("empty separator");
        }
        return separator;
    }

    private static Object split(String text, Parameters p) {
        long most = p.integer(1, "maxsplit", -1);
        return separator(p)
                .map(by -> Strings.split(text, by, most))
                .orElseGet(() -> Strings.split(text, most));
    }

    private static Object rsplit(String text, Parameters p) {
        long most = p.integer(1, "maxsplit", -1);
        return separator(p)
                .map(by -> Strings.rsplit(text, by, most))
                .orElseGet(() -> {
                    if (most >= 0) {
                        throw TemplateException.unsupported("rsplit at white space with a limit");
                    }
                    return Strings.split(text, most);
                });
    }

    /// One string, or a tuple of several.
    private static List<String> affix(Parameters p) {
        p.only("affix");
        var affix = p.required(0, "affix");
        return affix instanceof List<?> several
                ? several.stream().map(each -> Values.string(each, p.of())).toList()
                : List.of(Values.string(affix, p.of()));
    }

    private static Object replace(String text, Parameters p) {
        p.only("old", "new", "count");
        return Strings.replace(
                text, p.string(0, "old"), p.string(1, "new"), p.integer(2, "count", -1));
    }

    private static Object find(String text, Parameters p) {
        p.only("sub");
        int at = text.indexOf(p.string(0, "sub"));
        return at < 0 ? -1L : (long) text.codePointCount(0, at);
    }

    private static Object count(String text, Parameters p) {
        p.only("sub");
        var part = p.string(0, "sub");
        return part.isEmpty()
                ? Strings.length(text) + 1L
                : Strings.split(text, part, -1).size() - 1L;
    }

    private static Object join(String text, Parameters p) {
        p.only("iterable");
        return String.join(
                text,
                Values.elements(p.required(0, "iterable")).stream()
                        .map(each -> Values.string(each, "join"))
                        .toList());
    }

    private static Object withoutPrefix(String text, Parameters p) {
        p.only("prefix");
        var prefix = p.string(0, "prefix");
        return text.startsWith(prefix) ? text.substring(prefix.length()) : text;
    }

    private static Object withoutSuffix(String text, Parameters p) {
        p.only("suffix");
        var suffix = p.string(0, "suffix");
        return text.endsWith(suffix) ? text.substring(0, text.length() - suffix.length()) : text;
    }

    /// Fields without a format: `{}`, `{0}` and `{name}`.
    private static Object format(String text, Parameters p) {
        var out = new StringBuilder();
        var matcher = FIELD.matcher(text);
        int from = 0;
        int next = 0;
        while (matcher.find()) {
            out.append(text, from, matcher.start());
            from = matcher.end();
            var field = matcher.group(1);
            if (field == null) {
                if (matcher.group().length() == 1) {
                    throw new TemplateException("a single brace in a format");
                }
                out.append(matcher.group().charAt(0));
                continue;
            }
            int place =
                    field.isEmpty()
                            ? next++
                            : field.matches("[0-9]{1,4}") ? Integer.parseInt(field) : -1;
            if (place < 0 && !field.matches("\\w+")) {
                throw TemplateException.unsupported("the format field {" + field + "}");
            }
            out.append(Values.text(p.required(place < 0 ? Integer.MAX_VALUE : place, field)));
        }
        return out.append(text.substring(from)).toString();
    }
}
