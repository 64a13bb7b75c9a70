// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.function.Predicate;

/// Jinja's filters: what stands behind `|`.
final class Filters {
    private Filters() {}

    static Object apply(String name, Object value, Parameters p) {
        return switch (name) {
            case "length", "count" -> Values.length(alone(p, value));
            case "trim" -> trim(value, p);
            case "string", "safe" -> Values.text(alone(p, value));
            case "upper" -> Values.text(alone(p, value)).toUpperCase(Locale.ROOT);
            case "lower" -> Values.text(alone(p, value)).toLowerCase(Locale.ROOT);
            case "capitalize" -> Strings.capitalize(Values.text(alone(p, value)));
            case "default", "d" -> orDefault(value, p);
            case "join" -> join(value, p);
            case "replace" -> replace(value, p);
            case "indent" -> indent(value, p);
            case "list" -> new ArrayList<>(Values.elements(alone(p, value)));
            case "first" -> end(Values.elements(alone(p, value)), true);
            case "last" -> end(sequence(alone(p, value)), false);
            case "reverse" -> reverse(alone(p, value));
            case "items" -> items(alone(p, value));
            case "dictsort" -> sortedItems(alone(p, value));
            case "sort" -> sorted(value, p);
            case "unique" -> unique(alone(p, value));
            case "min" -> extreme(Values.elements(alone(p, value)), Values::compare);
            case "max" -> extreme(Values.elements(alone(p, value)), (a, b) -> Values.compare(b, a));
            case "map" -> map(value, p);
            case "select" -> selected(value, p, true, false);
            case "reject" -> selected(value, p, false, false);
            case "selectattr" -> selected(value, p, true, true);
            case "rejectattr" -> selected(value, p, false, true);
            case "int" -> integer(alone(p, value));
            case "abs" -> Values.compare(value, 0L) < 0 ? Arithmetic.negate(value) : value;
            case "tojson" -> PythonJson.write(value, p);
            default -> throw TemplateException.unsupported("the filter " + name);
        };
    }

    private static Object alone(Parameters p, Object value) {
        p.only();
        return value;
    }

    private static Object trim(Object value, Parameters p) {
        p.only("chars");
        var text = Values.text(value);
        return p.get(0, "chars")
                .filter(chars -> chars != None.NONE)
                .map(chars -> Values.string(chars, p.of()))
                .map(chars -> Strings.lstrip(Strings.rstrip(text, chars), chars))
                .orElseGet(() -> Strings.strip(text));
    }

    private static Object orDefault(Object value, Parameters p) {
        p.only("default_value", "boolean");
        boolean missing =
                value instanceof Undefined || p.flag(1, "boolean") && !Values.isTrue(value);
        return missing ? p.get(0, "default_value").orElse("") : value;
    }

    private static Object join(Object value, Parameters p) {
        p.only("d", "attribute");
        var attribute = p.get(1, "attribute");
        return String.join(
                Values.text(p.get(0, "d").orElse("")),
                Values.elements(value).stream()
                        .map(each ->
                                attribute.map(name -> Attributes.item(each, name)).orElse(each))
                        .map(Values::text)
                        .toList());
    }

    private static Object replace(Object value, Parameters p) {
        p.only("old", "new", "count");
        return Strings.replace(
                Values.text(value),
                Values.text(p.required(0, "old")),
                Values.text(p.required(1, "new")),
                p.integer(2, "count", -1));
    }

    /// All lines but the first, unless it is wanted too; blank lines only on demand.
    private static Object indent(Object value, Parameters p) {
        p.only("width", "first", "blank");
        var width = p.get(0, "width").orElse(4L);
        var by =
                width instanceof String text
                        ? text
                        : " ".repeat((int) Values.integer(width, p.of()));
        boolean blank = p.flag(2, "blank");
        var lines = Values.text(value).split("\n", -1);
        var out = new StringBuilder(p.flag(1, "first") ? by : "").append(lines[0]);
        for (int i = 1; i < lines.length; i++) {
            boolean skip = lines[i].isEmpty() && !blank;
            out.append('\n').append(skip ? "" : by).append(lines[i]);
        }
        return out.toString();
    }

    private static List<Object> sequence(Object value) {
        if (value instanceof Generated) {
            throw new TemplateException("a generator has no last element");
        }
        return Values.elements(value);
    }

    private static Object end(List<Object> elements, boolean first) {
        if (elements.isEmpty()) {
            return new Undefined("the " + (first ? "first" : "last") + " element of nothing");
        }
        return first ? elements.getFirst() : elements.getLast();
    }

    private static Object reverse(Object value) {
        var reversed = sequence(value).reversed();
        return value instanceof String
                ? String.join("", reversed.stream().map(String.class::cast).toList())
                : new Generated(reversed);
    }

    private static Object items(Object value) {
        return switch (value) {
            case Map<?, ?> map -> new Generated(Methods.items(map));
            case Undefined _ -> new Generated(List.of());
            default -> throw new TemplateException("items of a " + Values.type(value));
        };
    }

    /// By key, without regard to case.
    private static Object sortedItems(Object value) {
        if (!(value instanceof Map<?, ?> map)) {
            throw new TemplateException("dictsort of a " + Values.type(value));
        }
        var items = Methods.items(map);
        items.sort(
                (a, b) -> compareWithoutCase(((List<?>) a).getFirst(), ((List<?>) b).getFirst()));
        return items;
    }

    private static int compareWithoutCase(Object a, Object b) {
        return Values.compare(folded(a), folded(b));
    }

    private static Object folded(Object value) {
        return value instanceof String text ? text.toLowerCase(Locale.ROOT) : value;
    }

    private static Object sorted(Object value, Parameters p) {
        p.only("reverse", "case_sensitive", "attribute");
        var attribute = p.get(2, "attribute");
        boolean cased = p.flag(1, "case_sensitive");
        Comparator<Object> order =
                Comparator.comparing(
                        each -> attribute.map(name -> Attributes.item(each, name)).orElse(each),
                        (a, b) -> cased ? Values.compare(a, b) : compareWithoutCase(a, b));
        var list = new ArrayList<>(Values.elements(value));
        list.sort(p.flag(0, "reverse") ? order.reversed() : order);
        return list;
    }

    private static Object unique(Object value) {
        var seen = new LinkedHashSet<Object>();
        var list = new ArrayList<Object>();
        for (var each : Values.elements(value)) {
            if (seen.add(Values.key(folded(each)))) {
                list.add(each);
            }
        }
        return new Generated(list);
    }

    private static Object extreme(List<Object> elements, Comparator<Object> order) {
        return elements.stream().min(order).orElseGet(() -> new Undefined("an extreme of nothing"));
    }

    private static Object map(Object value, Parameters p) {
        var list = new ArrayList<Object>();
        if (!Values.isTrue(value)) {
            return new Generated(list); // None too
        }
        var attribute = p.named().get("attribute");
        if (attribute != null) {
            new Parameters(p.of(), List.of(), p.named()).only("attribute", "default");
            var missing = Optional.ofNullable(p.named().get("default"));
            for (var each : Values.elements(value)) {
                var got = path(each, attribute);
                list.add(got instanceof Undefined ? missing.orElse(got) : got);
            }
            return new Generated(list);
        }
        var filter = p.string(0, "filter");
        var rest =
                new Parameters(
                        "filter " + filter,
                        p.positional().subList(1, p.positional().size()),
                        p.named());
        for (var each : Values.elements(value)) {
            list.add(apply(filter, each, rest));
        }
        return new Generated(list);
    }

    private static Object path(Object base, Object attribute) {
        if (!(attribute instanceof String path)) {
            return Attributes.item(base, attribute);
        }
        var value = base;
        for (var part : path.split("\\.", -1)) {
            value = Attributes.item(value, part.matches("[0-9]{1,9}") ? Long.valueOf(part) : part);
        }
        return value;
    }

    /// @param byAttribute of the elements, the first argument
    private static Object selected(
            Object value, Parameters p, boolean wanted, boolean byAttribute) {
        if (!Values.isTrue(value)) {
            return new Generated(List.of()); // None too
        }
        int skip = byAttribute ? 1 : 0;
        var rest =
                p.positional()
                        .subList(Math.min(skip, p.positional().size()), p.positional().size());
        if (!p.named().isEmpty()) {
            throw TemplateException.unsupported(p.of() + " with named arguments");
        }
        Predicate<Object> test =
                rest.isEmpty()
                        ? Values::isTrue
                        : tested ->
                                Tests.holds(
                                        Values.string(rest.getFirst(), p.of()),
                                        tested,
                                        rest.subList(1, rest.size()));
        var list = new ArrayList<Object>();
        for (var each : Values.elements(value)) {
            var tested = byAttribute ? path(each, p.required(0, "attribute")) : each;
            if (test.test(tested) == wanted) {
                list.add(each);
            }
        }
        return new Generated(list);
    }

    /// The value as an integer; 0 if it is not a number, as in Jinja.
    private static Object integer(Object value) {
        return switch (value) {
            case Long number -> number;
            case Boolean flag -> flag ? 1L : 0L;
            case Double number -> number.longValue();
            case String text -> {
                var digits = Strings.strip(text);
                if (digits.matches("[+-]?[0-9]{1,18}")) {
                    yield Long.parseLong(digits);
                }
                if (digits.matches("[+-]?[0-9._eE+-]+")) {
                    throw TemplateException.unsupported("int of " + text);
                }
                yield 0L;
            }
            case Undefined undefined -> throw undefined.error();
            default -> 0L;
        };
    }
}
