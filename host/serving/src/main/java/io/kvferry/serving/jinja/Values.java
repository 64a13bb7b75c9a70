// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/// Python's operations on values of any type: truth, text, comparison, iteration.
final class Values {
    private Values() {}

    /// A value of the host's, as templates see it: no nulls, whole numbers as [Long].
    static Object of(@Nullable Object value) {
        return switch (value) {
            case null -> None.NONE;
            case Integer number -> number.longValue();
            case Map<?, ?> map -> {
                var copy = new LinkedHashMap<Object, Object>();
                map.forEach((key, each) -> copy.put(Objects.requireNonNull(key), of(each)));
                yield copy;
            }
            case List<?> list -> {
                var copy = new ArrayList<Object>(list.size());
                list.forEach(each -> copy.add(of(each)));
                yield copy;
            }
            default -> value;
        };
    }

    static boolean isTrue(Object value) {
        return switch (value) {
            case Boolean flag -> flag;
            case None _ -> false;
            case Undefined _ -> false;
            case String text -> !text.isEmpty();
            case Long number -> number != 0;
            case Double number -> number != 0;
            case List<?> list -> !list.isEmpty();
            case Map<?, ?> map -> !map.isEmpty();
            default -> true;
        };
    }

    /// Python's `str`.
    static String text(Object value) {
        return switch (value) {
            case String text -> text;
            case Boolean flag -> flag ? "True" : "False";
            case Long number -> number.toString();
            case Double number -> decimal(number);
            case None none -> none.toString();
            case Undefined undefined -> undefined.toString();
            case List<?> _ -> throw TemplateException.unsupported("printing a list");
            case Map<?, ?> _ -> throw TemplateException.unsupported("printing a mapping");
            default -> throw TemplateException.unsupported("printing a " + type(value));
        };
    }

    static String decimal(double number) {
        double size = Math.abs(number);
        if (size != 0 && !(size >= 1e-3 && size < 1e7)) {
            throw TemplateException.unsupported("printing the number " + number);
        }
        return Double.toString(number);
    }

    static String type(Object value) {
        return switch (value) {
            case String _ -> "string";
            case Boolean _ -> "boolean";
            case Long _ -> "whole number";
            case Double _ -> "number";
            case None _ -> "None";
            case List<?> _ -> "list";
            case Map<?, ?> _ -> "mapping";
            case Generated _ -> "generator";
            default -> "object";
        };
    }

    static boolean equal(Object a, Object b) {
        if (isNumber(a) && isNumber(b)) {
            return compare(a, b) == 0;
        }
        return switch (a) {
            case Undefined _ -> b instanceof Undefined;
            case List<?> list ->
                    b instanceof List<?> other
                            && list.size() == other.size()
                            && equalElements(list, other);
            case Map<?, ?> map -> b instanceof Map<?, ?> other && equalEntries(map, other);
            default -> a.equals(b);
        };
    }

    private static boolean equalElements(List<?> a, List<?> b) {
        for (int i = 0; i < a.size(); i++) {
            if (!equal(Objects.requireNonNull(a.get(i)), Objects.requireNonNull(b.get(i)))) {
                return false;
            }
        }
        return true;
    }

    private static boolean equalEntries(Map<?, ?> a, Map<?, ?> b) {
        if (!a.keySet().equals(b.keySet())) {
            return false;
        }
        for (var entry : a.entrySet()) {
            if (!equal(
                    Objects.requireNonNull(entry.getValue()),
                    Objects.requireNonNull(b.get(entry.getKey())))) {
                return false;
            }
        }
        return true;
    }

    /// Numbers, truth values among them, as in Python.
    static boolean isNumber(Object value) {
        return value instanceof Long || value instanceof Double || value instanceof Boolean;
    }

    /// Numbers with numbers, strings with strings, in order of code points.
    static int compare(Object a, Object b) {
        if (isNumber(a) && isNumber(b)) {
            var first = Arithmetic.number(a);
            var second = Arithmetic.number(b);
            return first instanceof Long x && second instanceof Long y
                    ? Long.compare(x, y)
                    : Double.compare(
                            ((Number) first).doubleValue() + 0.0,
                            ((Number) second).doubleValue() + 0.0);
        }
        if (a instanceof String x && b instanceof String y) {
            return Arrays.compare(x.codePoints().toArray(), y.codePoints().toArray());
        }
        throw mismatch("compare", a, b);
    }

    static TemplateException mismatch(String operation, Object a, Object b) {
        for (var value : List.of(a, b)) {
            if (value instanceof Undefined undefined) {
                return undefined.error();
            }
        }
        return new TemplateException("cannot " + operation + " " + type(a) + " and " + type(b));
    }

    /// Python's `in`.
    static boolean contains(Object container, Object element) {
        return switch (container) {
            case String text when element instanceof String part -> text.contains(part);
            case Map<?, ?> map -> map.containsKey(key(element));
            case String _ -> throw mismatch("search", element, container);
            default -> elements(container).stream().anyMatch(each -> equal(each, element));
        };
    }

    /// The elements of a value that is iterated over.
    static List<Object> elements(Object value) {
        return switch (value) {
            case List<?> list -> List.<Object>copyOf(list);
            case Map<?, ?> map -> List.<Object>copyOf(map.keySet());
            case String text -> Strings.characters(text);
            case Generated generated -> generated.take();
            case Undefined _ -> List.of();
            default -> throw new TemplateException("a " + type(value) + " is not iterable");
        };
    }

    static long length(Object value) {
        return switch (value) {
            case List<?> list -> list.size();
            case Map<?, ?> map -> map.size();
            case String text -> Strings.length(text);
            case Undefined _ -> 0;
            default -> throw new TemplateException("a " + type(value) + " has no length");
        };
    }

    /// A key of a mapping. Numbers that are equal are one key, as in Python.
    static Object key(Object value) {
        return switch (value) {
            case Boolean flag -> flag ? 1L : 0L;
            case Double number when number == Math.rint(number) -> number.longValue();
            case List<?> _ -> throw TemplateException.unsupported("a list as a key");
            case Map<?, ?> _ -> throw new TemplateException("a mapping cannot be a key");
            case Undefined undefined -> throw undefined.error();
            default -> value;
        };
    }

    static Callee callee(Object value) {
        return switch (value) {
            case Callee callee -> callee;
            case Undefined undefined -> throw undefined.error();
            default -> throw new TemplateException("a " + type(value) + " cannot be called");
        };
    }

    /// @param where it is needed, for the error
    static String string(Object value, String where) {
        return switch (value) {
            case String text -> text;
            case Undefined undefined -> throw undefined.error();
            default -> throw new TemplateException(where + ": not a string: a " + type(value));
        };
    }

    /// @param where it is needed, for the error
    static long integer(Object value, String where) {
        return switch (value) {
            case Long number -> number;
            case Boolean flag -> flag ? 1 : 0;
            case Undefined undefined -> throw undefined.error();
            default ->
                    throw new TemplateException(where + ": not a whole number: a " + type(value));
        };
    }
}
