// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import io.kvferry.serving.jinja.Lexer.Kind;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BinaryOperator;

/// Parses Jinja's expressions, with the precedence of its own parser.
final class ExpressionParser {
    private final Tokens tokens;

    ExpressionParser(Tokens tokens) {
        this.tokens = tokens;
    }

    Expression expression() {
        var value = or();
        while (tokens.skipName("if")) {
            var condition = or();
            var then = value;
            Expression otherwise =
                    tokens.skipName("else")
                            ? expression()
                            : _ -> new Undefined("the else of an inline if");
            value =
                    scope ->
                            Values.isTrue(condition.evaluate(scope))
                                    ? then.evaluate(scope)
                                    : otherwise.evaluate(scope);
        }
        return value;
    }

    /// Without an inline if at its end.
    Expression or() {
        var left = and();
        while (tokens.skipName("or")) {
            var first = left;
            var second = and();
            left =
                    scope -> {
                        var value = first.evaluate(scope);
                        return Values.isTrue(value) ? value : second.evaluate(scope);
                    };
        }
        return left;
    }

    private Expression and() {
        var left = not();
        while (tokens.skipName("and")) {
            var first = left;
            var second = not();
            left =
                    scope -> {
                        var value = first.evaluate(scope);
                        return Values.isTrue(value) ? second.evaluate(scope) : value;
                    };
        }
        return left;
    }

    private Expression not() {
        if (tokens.skipName("not")) {
            var negated = not();
            return scope -> !Values.isTrue(negated.evaluate(scope));
        }
        return comparison();
    }

    private record Operand(BinaryOperator<Object> operator, Expression right) {}

    /// `a < b < c` means `a < b and b < c`.
    private Expression comparison() {
        var left = sum();
        var chain = new ArrayList<Operand>();
        for (var operator = comparator(); operator != null; operator = comparator()) {
            chain.add(new Operand(operator, sum()));
        }
        if (chain.isEmpty()) {
            return left;
        }
        return scope -> {
            var value = left.evaluate(scope);
            for (var operand : chain) {
                var right = operand.right().evaluate(scope);
                if (!Values.isTrue(operand.operator().apply(value, right))) {
                    return false;
                }
                value = right;
            }
            return true;
        };
    }

    private @Nullable BinaryOperator<Object> comparator() {
        var token = tokens.current();
        if (token.isName("not") && tokens.following().isName("in")) {
            tokens.take();
            tokens.take();
            return (a, b) -> !Values.contains(b, a);
        }
        if (tokens.skipName("in")) {
            return (a, b) -> Values.contains(b, a);
        }
        if (token.kind() != Kind.OPERATOR) {
            return null;
        }
        BinaryOperator<Object> operator =
                switch (token.text()) {
                    case "==" -> Values::equal;
                    case "!=" -> (a, b) -> !Values.equal(a, b);
                    case "<" -> (a, b) -> Values.compare(a, b) < 0;
                    case "<=" -> (a, b) -> Values.compare(a, b) <= 0;
                    case ">" -> (a, b) -> Values.compare(a, b) > 0;
                    case ">=" -> (a, b) -> Values.compare(a, b) >= 0;
                    default -> null;
                };
        if (operator != null) {
            tokens.take();
        }
        return operator;
    }

    private Expression sum() {
        var left = concatenation();
        while (tokens.current().is("+") || tokens.current().is("-")) {
            var operator = tokens.take().text();
            left = arithmetic(operator, left, concatenation());
        }
        return left;
    }

    private static Expression arithmetic(String operator, Expression left, Expression right) {
        return scope -> Arithmetic.apply(operator, left.evaluate(scope), right.evaluate(scope));
    }

    private Expression concatenation() {
        var left = product();
        while (tokens.skip("~")) {
            var first = left;
            var second = product();
            left =
                    scope ->
                            Values.text(first.evaluate(scope))
                                    + Values.text(second.evaluate(scope));
        }
        return left;
    }

    private Expression product() {
        var left = power();
        while (List.of("*", "/", "//", "%").contains(tokens.current().text())
                && tokens.current().kind() == Kind.OPERATOR) {
            var operator = tokens.take().text();
            left = arithmetic(operator, left, power());
        }
        return left;
    }

    private Expression power() {
        var left = unary(true);
        while (tokens.skip("**")) {
            left = arithmetic("**", left, unary(true));
        }
        return left;
    }

    private Expression unary(boolean filters) {
        Expression value;
        if (tokens.skip("-")) {
            var negated = unary(false);
            value = scope -> Arithmetic.negate(negated.evaluate(scope));
        } else if (tokens.skip("+")) {
            var same = unary(false);
            value = scope -> Arithmetic.number(same.evaluate(scope));
        } else {
            value = primary();
        }
        value = postfix(value);
        return filters ? filtered(value) : value;
    }

    private Expression primary() {
        var token = tokens.current();
        switch (token.kind()) {
            case NAME -> {
                tokens.take();
                return name(token.text());
            }
            case STRING -> {
                var text = new StringBuilder();
                while (tokens.current().kind() == Kind.STRING) {
                    text.append(tokens.take().text());
                }
                var constant = text.toString();
                return _ -> constant;
            }
            case INTEGER -> {
                long number = Long.parseLong(tokens.take().text().replace("_", ""));
                return _ -> number;
            }
            case FLOAT -> {
                double number = Double.parseDouble(tokens.take().text().replace("_", ""));
                return _ -> number;
            }
            default -> {
                if (tokens.skip("(")) {
                    return parenthesis();
                }
                if (tokens.skip("[")) {
                    return list(elements("]"));
                }
                if (tokens.skip("{")) {
                    return map();
                }
                throw tokens.unexpected("an expression");
            }
        }
    }

    private static Expression name(String name) {
        return switch (name) {
            case "true", "True" -> _ -> true;
            case "false", "False" -> _ -> false;
            case "none", "None" -> _ -> None.NONE;
            default -> scope -> scope.get(name);
        };
    }

    private Expression parenthesis() {
        if (tokens.skip(")")) {
            return _ -> List.of();
        }
        var first = expression();
        if (tokens.skip(")")) {
            return first;
        }
        tokens.expect(",");
        var all = elements(")");
        all.addFirst(first);
        return list(all);
    }

    /// Expressions up to the closing bracket, with commas between them.
    private List<Expression> elements(String close) {
        var list = new ArrayList<Expression>();
        while (!tokens.skip(close)) {
            list.add(expression());
            if (!tokens.current().is(close)) {
                tokens.expect(",");
            }
        }
        return list;
    }

    static Expression list(List<Expression> elements) {
        var all = List.copyOf(elements);
        return scope -> {
            var list = new ArrayList<Object>(all.size());
            all.forEach(element -> list.add(element.evaluate(scope)));
            return list;
        };
    }

    private Expression map() {
        var keys = new ArrayList<Expression>();
        var values = new ArrayList<Expression>();
        while (!tokens.skip("}")) {
            keys.add(expression());
            tokens.expect(":");
            values.add(expression());
            if (!tokens.current().is("}")) {
                tokens.expect(",");
            }
        }
        return scope -> {
            var map = new LinkedHashMap<Object, Object>();
            for (int i = 0; i < keys.size(); i++) {
                map.put(Values.key(keys.get(i).evaluate(scope)), values.get(i).evaluate(scope));
            }
            return map;
        };
    }

    private Expression postfix(Expression start) {
        var value = start;
        while (true) {
            var base = value;
            if (tokens.skip(".")) {
                var token = tokens.take();
                var name = token.text();
                value =
                        switch (token.kind()) {
                            case NAME -> scope -> Attributes.attribute(base.evaluate(scope), name);
                            case INTEGER ->
                                    scope ->
                                            Attributes.item(
                                                    base.evaluate(scope), Long.valueOf(name));
                            default -> throw tokens.unexpected("a name after '.'");
                        };
            } else if (tokens.skip("[")) {
                value = subscript(base);
            } else if (tokens.current().is("(")) {
                value = call(base);
            } else {
                return value;
            }
        }
    }

    private Expression subscript(Expression base) {
        var bounds = new ArrayList<@Nullable Expression>();
        boolean slice = false;
        bounds.add(tokens.current().is(":") ? null : expression());
        while (tokens.skip(":")) {
            slice = true;
            bounds.add(tokens.current().is(":") || tokens.current().is("]") ? null : expression());
        }
        tokens.expect("]");
        var first = bounds.getFirst();
        if (!slice && first != null) {
            return scope -> Attributes.item(base.evaluate(scope), first.evaluate(scope));
        }
        if (bounds.size() > 3) {
            throw tokens.unexpected("at most two ':' in a slice");
        }
        return scope -> {
            var values = new @Nullable Object[3];
            for (int i = 0; i < bounds.size(); i++) {
                var bound = bounds.get(i);
                values[i] = bound == null ? null : bound.evaluate(scope);
            }
            return Attributes.slice(base.evaluate(scope), values[0], values[1], values[2]);
        };
    }

    /// The arguments of a call.
    record Arguments(List<Expression> positional, Map<String, Expression> named) {
        List<Object> values(Scope scope) {
            var list = new ArrayList<Object>(positional.size());
            positional.forEach(each -> list.add(each.evaluate(scope)));
            return list;
        }

        Map<String, Object> namedValues(Scope scope) {
            var map = new LinkedHashMap<String, Object>();
            named.forEach((name, each) -> map.put(name, each.evaluate(scope)));
            return map;
        }
    }

    Arguments arguments() {
        tokens.expect("(");
        var positional = new ArrayList<Expression>();
        var named = new LinkedHashMap<String, Expression>();
        while (!tokens.skip(")")) {
            if (tokens.current().is("*") || tokens.current().is("**")) {
                throw TemplateException.unsupported("unpacking of arguments");
            }
            if (tokens.current().kind() == Kind.NAME && tokens.following().is("=")) {
                var name = tokens.take().text();
                tokens.take();
                named.put(name, expression());
            } else if (named.isEmpty()) {
                positional.add(expression());
            } else {
                throw tokens.unexpected("a named argument");
            }
            if (!tokens.current().is(")")) {
                tokens.expect(",");
            }
        }
        return new Arguments(positional, named);
    }

    private Expression call(Expression base) {
        var arguments = arguments();
        return scope ->
                Values.callee(base.evaluate(scope))
                        .call(arguments.values(scope), arguments.namedValues(scope));
    }

    /// Filters, tests and calls behind an operand.
    Expression filtered(Expression start) {
        var value = start;
        while (true) {
            if (tokens.skip("|")) {
                value = filter(value);
            } else if (tokens.skipName("is")) {
                value = test(value);
            } else if (tokens.current().is("(")) {
                value = call(value);
            } else {
                return value;
            }
        }
    }

    /// A filter's name and arguments.
    Expression filter(Expression value) {
        var name = tokens.expect(Kind.NAME).text();
        var arguments = tokens.current().is("(") ? arguments() : new Arguments(List.of(), Map.of());
        return scope ->
                Filters.apply(
                        name,
                        value.evaluate(scope),
                        new Parameters(
                                "filter " + name,
                                arguments.values(scope),
                                arguments.namedValues(scope)));
    }

    private Expression test(Expression value) {
        boolean negated = tokens.skipName("not");
        var name = tokens.expect(Kind.NAME).text();
        var arguments = new ArrayList<Expression>();
        var next = tokens.current();
        if (next.is("(")) {
            arguments.addAll(arguments().positional());
        } else if (beginsOperand(next)) {
            if (next.isName("is")) {
                throw tokens.unexpected("no second test");
            }
            arguments.add(postfix(primary()));
        }
        return scope -> {
            var tested = value.evaluate(scope);
            var others = new ArrayList<Object>();
            arguments.forEach(each -> others.add(each.evaluate(scope)));
            return Tests.holds(name, tested, others) != negated;
        };
    }

    private static boolean beginsOperand(Lexer.Token next) {
        return switch (next.kind()) {
            case STRING, INTEGER, FLOAT -> true;
            case NAME -> !next.isName("else") && !next.isName("or") && !next.isName("and");
            case OPERATOR -> next.is("[") || next.is("{");
            default -> false;
        };
    }
}
