// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/// `a.b`, `a[b]` and `a[b:c:d]`, as Jinja looks them up: `a.b` is a method before it is an entry,
/// `a[b]` an entry before it is a method.
final class Attributes {
    private Attributes() {}

    static Object attribute(Object base, String name) {
        return switch (base) {
            case Undefined undefined -> throw undefined.error();
            case Namespace namespace -> namespace.get(name);
            case Loop loop -> loop.get(name);
            default -> {
                var method = Methods.find(base, name);
                yield method != null ? method : entry(base, name);
            }
        };
    }

    private static Object entry(Object base, String name) {
        var value = base instanceof Map<?, ?> map ? map.get(name) : null;
        return value == null
                ? new Undefined("attribute " + name + " of a " + Values.type(base))
                : value;
    }

    static Object item(Object base, Object key) {
        if (base instanceof Undefined undefined) {
            throw undefined.error();
        }
        var value =
                switch (base) {
                    case Map<?, ?> map -> map.get(Values.key(key));
                    case List<?> list when isIndex(key) ->
                            at(new ArrayList<Object>(list), Values.integer(key, "an index"));
                    case String text when isIndex(key) ->
                            at(Strings.characters(text), Values.integer(key, "an index"));
                    default -> null;
                };
        if (value != null) {
            return value;
        }
        if (key instanceof String name) {
            return base instanceof Map<?, ?>
                    ? methodOrUndefined(base, name)
                    : attribute(base, name);
        }
        return new Undefined("element " + Values.type(key) + " of a " + Values.type(base));
    }

    private static Object methodOrUndefined(Object base, String name) {
        var method = Methods.find(base, name);
        return method != null
                ? method
                : new Undefined("element " + name + " of a " + Values.type(base));
    }

    private static boolean isIndex(Object key) {
        return key instanceof Long || key instanceof Boolean;
    }

    private static @Nullable Object at(List<Object> list, long index) {
        long from = index < 0 ? index + list.size() : index;
        return from >= 0 && from < list.size() ? list.get((int) from) : null;
    }

    /// Python's slice; null for an omitted bound.
    static Object slice(
            Object base, @Nullable Object from, @Nullable Object to, @Nullable Object by) {
        var elements =
                switch (base) {
                    case List<?> list -> new ArrayList<Object>(list);
                    case String text -> Strings.characters(text);
                    case Undefined undefined -> throw undefined.error();
                    default -> null;
                };
        if (elements == null) {
            return new Undefined("a slice of a " + Values.type(base));
        }
        long step = bound(by, 1);
        if (step == 0) {
            throw new TemplateException("slice step cannot be zero");
        }
        int n = elements.size();
        long least = step < 0 ? -1 : 0;
        long most = step < 0 ? n - 1 : n;
        long start = clamp(bound(from, step < 0 ? Long.MAX_VALUE : 0), n, least, most);
        long end =
                to == null || to == None.NONE
                        ? step < 0 ? -1 : n
                        : clamp(bound(to, 0), n, least, most);
        var taken = new ArrayList<Object>();
        for (long i = start; step < 0 ? i > end : i < end; i += step) {
            taken.add(elements.get((int) i));
        }
        if (base instanceof String) {
            return String.join("", taken.stream().map(String.class::cast).toList());
        }
        return taken;
    }

    private static long bound(@Nullable Object value, long absent) {
        return value == null || value == None.NONE ? absent : Values.integer(value, "a slice");
    }

    private static long clamp(long index, int n, long least, long most) {
        return Math.clamp(index < 0 ? index + n : index, least, most);
    }
}
