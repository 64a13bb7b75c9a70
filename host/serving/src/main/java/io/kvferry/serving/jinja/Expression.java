// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

/// A parsed expression. Values are [String], [Long], [Double], [Boolean], [None], [Undefined],
/// lists, maps with keys of any of these, [Callee], [Namespace], [Loop] and [Generated].
@FunctionalInterface
interface Expression {
    Object evaluate(Scope scope);
}
