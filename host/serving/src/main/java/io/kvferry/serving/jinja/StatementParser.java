// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import io.kvferry.serving.jinja.Lexer.Kind;
import io.kvferry.serving.jinja.Statement.Flow;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.function.BiConsumer;

/// Parses text and tags. Hugging Face adds `break`, `continue` and `generation` to Jinja's own
/// tags.
final class StatementParser {
    private final Tokens tokens;
    private final ExpressionParser expressions;

    private StatementParser(Tokens tokens) {
        this.tokens = tokens;
        expressions = new ExpressionParser(tokens);
    }

    static Statement parse(String source) {
        var parser = new StatementParser(new Tokens(Lexer.tokens(source)));
        var body = parser.body(Set.of());
        parser.tokens.expect(Kind.END);
        return body;
    }

    /// Up to a tag of one of these names, which is the current token then, or to the end.
    private Statement body(Set<String> ends) {
        var list = new ArrayList<Statement>();
        while (true) {
            switch (tokens.current().kind()) {
                case TEXT -> list.add(text(tokens.take().text()));
                case BEGIN_PRINT -> list.add(print());
                case BEGIN_BLOCK -> {
                    tokens.take();
                    if (ends.contains(tokens.current().text())) {
                        return Statement.all(list);
                    }
                    list.add(tag());
                }
                default -> {
                    if (!ends.isEmpty()) {
                        throw tokens.unexpected("one of the tags " + ends);
                    }
                    return Statement.all(list);
                }
            }
        }
    }

    /// The body of a tag, with its end.
    private Statement bodyTo(String end) {
        var body = body(Set.of(end));
        tokens.take();
        tokens.expect(Kind.END_BLOCK);
        return body;
    }

    private static Statement text(String text) {
        return (_, out) -> {
            out.append(text);
            return Flow.NEXT;
        };
    }

    private Statement print() {
        tokens.take();
        var value = tuple();
        tokens.expect(Kind.END_PRINT);
        return (scope, out) -> {
            out.append(Values.text(value.evaluate(scope)));
            return Flow.NEXT;
        };
    }

    /// An expression, or several with commas between them.
    private Expression tuple() {
        var first = expressions.expression();
        if (!tokens.current().is(",")) {
            return first;
        }
        var all = new ArrayList<Expression>();
        all.add(first);
        while (tokens.skip(",")) {
            all.add(expressions.expression());
        }
        return ExpressionParser.list(all);
    }

    private Statement tag() {
        var token = tokens.expect(Kind.NAME);
        return switch (token.text()) {
            case "if" -> conditional();
            case "for" -> loop();
            case "set" -> assignment();
            case "macro" -> macro();
            case "filter" -> filtered();
            case "generation" -> generation();
            case "break" -> flow(Flow.BREAK);
            case "continue" -> flow(Flow.CONTINUE);
            default ->
                    throw TemplateException.unsupported(
                            "line " + token.line() + ": the tag " + token.text());
        };
    }

    private Statement flow(Flow flow) {
        tokens.expect(Kind.END_BLOCK);
        return (_, _) -> flow;
    }

    private record Branch(Expression condition, Statement body) {}

    private Statement conditional() {
        var branches = new ArrayList<Branch>();
        Statement otherwise = Statement.all(List.of());
        while (true) {
            var condition = expressions.expression();
            tokens.expect(Kind.END_BLOCK);
            branches.add(new Branch(condition, body(Set.of("elif", "else", "endif"))));
            var next = tokens.take();
            if (next.text().equals("elif")) {
                continue;
            }
            tokens.expect(Kind.END_BLOCK);
            if (next.text().equals("else")) {
                otherwise = bodyTo("endif");
            }
            break;
        }
        var rest = otherwise;
        return (scope, out) -> {
            for (var branch : branches) {
                if (Values.isTrue(branch.condition().evaluate(scope))) {
                    return branch.body().run(scope, out);
                }
            }
            return rest.run(scope, out);
        };
    }

    private Statement loop() {
        var target = target("in");
        tokens.expectName("in");
        var elements = expressions.or();
        Expression wanted = tokens.skipName("if") ? expressions.expression() : _ -> true;
        if (tokens.current().isName("recursive")) {
            throw TemplateException.unsupported("a recursive loop");
        }
        tokens.expect(Kind.END_BLOCK);
        var body = body(Set.of("else", "endfor"));
        boolean hasElse = tokens.take().text().equals("else");
        tokens.expect(Kind.END_BLOCK);
        var otherwise = hasElse ? bodyTo("endfor") : Statement.all(List.of());
        return (scope, out) -> {
            var chosen = new ArrayList<Object>();
            for (var element : Values.elements(elements.evaluate(scope))) {
                var round = new Scope(scope);
                target.accept(round, element);
                if (Values.isTrue(wanted.evaluate(round))) {
                    chosen.add(element);
                }
            }
            if (chosen.isEmpty()) {
                return otherwise.run(new Scope(scope), out);
            }
            var loop = new Loop(chosen);
            for (int i = 0; i < chosen.size(); i++) {
                loop.moveTo(i);
                var round = new Scope(scope);
                round.set("loop", loop);
                target.accept(round, chosen.get(i));
                if (body.run(round, out) == Flow.BREAK) {
                    break;
                }
            }
            return Flow.NEXT;
        };
    }

    /// The target of an assignment: a name, several, or an attribute of a namespace.
    private BiConsumer<Scope, Object> target(String end) {
        boolean parenthesis = tokens.skip("(");
        var names = new ArrayList<String>();
        names.add(tokens.expect(Kind.NAME).text());
        if (tokens.skip(".")) {
            var attribute = tokens.expect(Kind.NAME).text();
            return (scope, value) -> attribute(scope, names.getFirst(), attribute, value);
        }
        boolean several = false;
        while (tokens.skip(",")) {
            several = true;
            if (tokens.current().kind() != Kind.NAME || tokens.current().isName(end)) {
                break;
            }
            names.add(tokens.expect(Kind.NAME).text());
        }
        if (parenthesis) {
            tokens.expect(")");
        }
        if (!several) {
            return (scope, value) -> scope.set(names.getFirst(), value);
        }
        return (scope, value) -> {
            var values = Values.elements(value);
            if (values.size() != names.size()) {
                throw new TemplateException(
                        "expected " + names.size() + " values, got " + values.size());
            }
            for (int i = 0; i < names.size(); i++) {
                scope.set(names.get(i), values.get(i));
            }
        };
    }

    private static void attribute(Scope scope, String name, String attribute, Object value) {
        if (!(scope.get(name) instanceof Namespace namespace)) {
            throw new TemplateException(name + " is no namespace");
        }
        namespace.set(attribute, value);
    }

    private Statement assignment() {
        var target = target("=");
        if (tokens.skip("=")) {
            var value = tuple();
            tokens.expect(Kind.END_BLOCK);
            return (scope, _) -> {
                target.accept(scope, value.evaluate(scope));
                return Flow.NEXT;
            };
        }
        var text = new Rendered();
        var value = expressions.filtered(text);
        tokens.expect(Kind.END_BLOCK);
        var body = bodyTo("endset");
        return (scope, out) -> {
            target.accept(scope, value.evaluate(text.of(body, scope, out)));
            return Flow.NEXT;
        };
    }

    private Statement filtered() {
        var text = new Rendered();
        var value = expressions.filtered(expressions.filter(text));
        tokens.expect(Kind.END_BLOCK);
        var body = bodyTo("endfilter");
        return (scope, out) -> {
            out.append(Values.text(value.evaluate(text.of(body, scope, out))));
            return Flow.NEXT;
        };
    }

    /// The rendered body of a tag, as an expression that filters are applied to.
    private static final class Rendered implements Expression {
        private static final String NAME = " body"; // no name of a template's

        Scope of(Statement body, Scope scope, Output out) {
            var part = out.part();
            body.run(new Scope(scope), part);
            var inner = new Scope(scope);
            inner.set(NAME, part.text());
            return inner;
        }

        @Override
        public Object evaluate(Scope scope) {
            return scope.get(NAME);
        }
    }

    /// A `generation` block, with which Hugging Face marks the assistant's text; rendered as it is.
    private Statement generation() {
        tokens.expect(Kind.END_BLOCK);
        var body = bodyTo("endgeneration");
        return (scope, out) -> {
            body.run(new Scope(scope), out);
            return Flow.NEXT;
        };
    }

    private Statement macro() {
        var name = tokens.expect(Kind.NAME).text();
        var parameters = new ArrayList<Macro.Parameter>();
        tokens.expect("(");
        while (!tokens.skip(")")) {
            var parameter = tokens.expect(Kind.NAME).text();
            Expression absent =
                    tokens.skip("=")
                            ? expressions.expression()
                            : _ -> new Undefined("the parameter " + parameter);
            parameters.add(new Macro.Parameter(parameter, absent));
            if (!tokens.current().is(")")) {
                tokens.expect(",");
            }
        }
        tokens.expect(Kind.END_BLOCK);
        var body = bodyTo("endmacro");
        return (scope, out) -> {
            scope.set(name, new Macro(name, parameters, body, scope, out));
            return Flow.NEXT;
        };
    }
}
