// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.ArrayList;
import java.util.List;

/// Python's arithmetic on numbers, strings and lists.
final class Arithmetic {
    private static final int MOST_CHARACTERS = 1 << 20;

    private Arithmetic() {}

    static Object apply(String operator, Object a, Object b) {
        if (operator.equals("+")) {
            if (a instanceof String x && b instanceof String y) {
                return x + y;
            }
            if (a instanceof List<?> x && b instanceof List<?> y) {
                var both = new ArrayList<Object>(x);
                both.addAll(y);
                return both;
            }
        }
        if (operator.equals("*") && a instanceof String text && b instanceof Long times) {
            if (times * text.length() > MOST_CHARACTERS) {
                throw TemplateException.unsupported("a string of more than 2^20 characters");
            }
            return text.repeat((int) Math.max(0, times));
        }
        if (!Values.isNumber(a) || !Values.isNumber(b)) {
            throw Values.mismatch("apply " + operator + " to", a, b);
        }
        var x = number(a);
        var y = number(b);
        try {
            return x instanceof Long i && y instanceof Long j
                    ? integers(operator, i, j)
                    : floats(operator, ((Number) x).doubleValue(), ((Number) y).doubleValue());
        } catch (ArithmeticException e) {
            throw new TemplateException(a + " " + operator + " " + b + ": " + e.getMessage());
        }
    }

    private static Object integers(String operator, long a, long b) {
        return switch (operator) {
            case "+" -> Math.addExact(a, b);
            case "-" -> Math.subtractExact(a, b);
            case "*" -> Math.multiplyExact(a, b);
            case "//" -> Math.floorDiv(a, b);
            case "%" -> Math.floorMod(a, b);
            case "**" -> power(a, b);
            case "/" -> {
                if (b == 0) {
                    throw new ArithmeticException("division by zero");
                }
                yield (double) a / b;
            }
            default -> throw TemplateException.unsupported("the operator " + operator);
        };
    }

    private static long power(long base, long exponent) {
        if (exponent < 0) {
            throw TemplateException.unsupported("a negative exponent");
        }
        long result = 1;
        for (long i = 0; i < exponent && (result != 0 && base != 1 || i == 0); i++) {
            result = Math.multiplyExact(result, base);
        }
        return result;
    }

    private static Object floats(String operator, double a, double b) {
        return switch (operator) {
            case "+" -> a + b;
            case "-" -> a - b;
            case "*" -> a * b;
            case "/" -> {
                if (b == 0) {
                    throw new ArithmeticException("division by zero");
                }
                yield a / b;
            }
            default -> throw TemplateException.unsupported("the operator " + operator);
        };
    }

    static Object negate(Object value) {
        return switch (number(value)) {
            case Long number -> Math.negateExact(number);
            case Double number -> -number;
            default -> throw new IllegalStateException();
        };
    }

    /// A [Long] or [Double]; truth values count as 0 and 1.
    static Object number(Object value) {
        return switch (value) {
            case Long number -> number;
            case Double number -> number;
            case Boolean flag -> flag ? 1L : 0L;
            case Undefined undefined -> throw undefined.error();
            default -> throw new TemplateException("a " + Values.type(value) + " is no number");
        };
    }
}
