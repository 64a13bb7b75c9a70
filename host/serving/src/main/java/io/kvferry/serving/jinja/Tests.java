// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.List;
import java.util.Map;

/// Jinja's tests: what stands behind `is`.
final class Tests {
    private Tests() {}

    static boolean holds(String name, Object value, List<Object> others) {
        return switch (name) {
            case "defined" -> !(value instanceof Undefined);
            case "undefined" -> value instanceof Undefined;
            case "none" -> value == None.NONE;
            case "true" -> Boolean.TRUE.equals(value);
            case "false" -> Boolean.FALSE.equals(value);
            case "boolean" -> value instanceof Boolean;
            case "string" -> value instanceof String;
            case "number" -> Values.isNumber(value);
            case "integer" -> value instanceof Long;
            case "float" -> value instanceof Double;
            case "mapping" -> value instanceof Map<?, ?>;
            case "callable" -> value instanceof Callee;
            case "iterable" ->
                    isSequence(value)
                            || value instanceof Generated
                            || value instanceof Undefined
                            || value instanceof Loop;
            case "sequence" -> isSequence(value) || value instanceof Undefined;
            case "odd" -> Math.floorMod(Values.integer(value, "odd"), 2) == 1;
            case "even" -> Math.floorMod(Values.integer(value, "even"), 2) == 0;
            case "divisibleby" ->
                    Math.floorMod(
                                    Values.integer(value, name),
                                    Values.integer(other(name, others), name))
                            == 0;
            case "eq", "equalto", "==" -> Values.equal(value, other(name, others));
            case "ne", "!=" -> !Values.equal(value, other(name, others));
            case "lt", "lessthan", "<" -> Values.compare(value, other(name, others)) < 0;
            case "le", "<=" -> Values.compare(value, other(name, others)) <= 0;
            case "gt", "greaterthan", ">" -> Values.compare(value, other(name, others)) > 0;
            case "ge", ">=" -> Values.compare(value, other(name, others)) >= 0;
            case "in" -> Values.contains(other(name, others), value);
            default -> throw TemplateException.unsupported("the test " + name);
        };
    }

    private static boolean isSequence(Object value) {
        return value instanceof String || value instanceof List<?> || value instanceof Map<?, ?>;
    }

    private static Object other(String name, List<Object> others) {
        if (others.size() != 1) {
            throw new TemplateException("the test " + name + " takes one argument");
        }
        return others.getFirst();
    }
}
