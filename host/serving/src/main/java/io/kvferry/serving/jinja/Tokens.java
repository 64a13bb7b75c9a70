// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import io.kvferry.serving.jinja.Lexer.Kind;
import io.kvferry.serving.jinja.Lexer.Token;

import java.util.List;

/// The tokens of a template, read one after the other.
final class Tokens {
    private final List<Token> list;
    private int next;

    Tokens(List<Token> list) {
        this.list = List.copyOf(list);
    }

    Token current() {
        return list.get(next);
    }

    /// The token after the current one.
    Token following() {
        return list.get(Math.min(next + 1, list.size() - 1));
    }

    Token take() {
        var token = list.get(next);
        if (token.kind() != Kind.END) {
            next++;
        }
        return token;
    }

    boolean skip(String operator) {
        boolean there = current().is(operator);
        if (there) {
            take();
        }
        return there;
    }

    boolean skipName(String name) {
        boolean there = current().isName(name);
        if (there) {
            take();
        }
        return there;
    }

    void expect(String operator) {
        if (!skip(operator)) {
            throw unexpected("'" + operator + "'");
        }
    }

    void expectName(String name) {
        if (!skipName(name)) {
            throw unexpected("'" + name + "'");
        }
    }

    Token expect(Kind kind) {
        if (current().kind() != kind) {
            throw unexpected(kind.toString());
        }
        return take();
    }

    TemplateException unexpected(String wanted) {
        var got = current();
        return new TemplateException(
                "line "
                        + got.line()
                        + ": expected "
                        + wanted
                        + ", got "
                        + (got.text().isEmpty() ? got.kind() : got.text()));
    }
}
