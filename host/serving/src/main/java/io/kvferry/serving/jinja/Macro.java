// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.List;
import java.util.Map;

/// A macro: renders its body in a scope of its own, inside the one that defines it.
///
/// @param bounds of what the template may render
record Macro(String name, List<Parameter> parameters, Statement body, Scope defining, Output bounds)
        implements Callee {
    /// @param absent what it is where a call leaves it out
    record Parameter(String name, Expression absent) {}

    Macro {
        parameters = List.copyOf(parameters);
    }

    @Override
    public Object call(List<Object> arguments, Map<String, Object> named) {
        var given =
                new Parameters("the macro " + name, arguments, named)
                        .only(parameters.stream().map(Parameter::name).toArray(String[]::new));
        var scope = new Scope(defining);
        for (int i = 0; i < parameters.size(); i++) {
            var parameter = parameters.get(i);
            scope.set(
                    parameter.name(),
                    given.get(i, parameter.name())
                            .orElseGet(() -> parameter.absent().evaluate(scope)));
        }
        var out = bounds.part();
        body.run(scope, out);
        return out.text();
    }
}
