// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.List;

/// A parsed part of a template: text, a printed expression, a tag with what it encloses.
@FunctionalInterface
interface Statement {
    /// How a loop continues.
    enum Flow {
        NEXT,
        BREAK,
        CONTINUE
    }

    Flow run(Scope scope, Output out);

    /// One after the other, up to a `break` or `continue`.
    static Statement all(List<Statement> statements) {
        var list = List.copyOf(statements);
        return (scope, out) -> {
            for (var statement : list) {
                var flow = statement.run(scope, out);
                if (flow != Flow.NEXT) {
                    return flow;
                }
            }
            return Flow.NEXT;
        };
    }
}
