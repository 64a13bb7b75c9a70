// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import org.jspecify.annotations.Nullable;

import java.util.HashMap;
import java.util.Map;

/// The variables of a template, one loop iteration or one macro call. Variables set in a scope end
/// with it.
final class Scope {
    private final @Nullable Scope outer;
    private final Map<String, Object> variables = new HashMap<>();

    Scope(Map<String, Object> variables) {
        outer = null;
        this.variables.putAll(variables);
    }

    Scope(Scope outer) {
        this.outer = outer;
    }

    Object get(String name) {
        for (Scope scope = this; scope != null; scope = scope.outer) {
            var value = scope.variables.get(name);
            if (value != null) {
                return value;
            }
        }
        return new Undefined(name);
    }

    void set(String name, Object value) {
        variables.put(name, value);
    }
}
