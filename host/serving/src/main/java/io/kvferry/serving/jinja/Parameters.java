// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/// Arguments of a filter or a method, by place or by name.
///
/// @param of who gets them, for errors
record Parameters(String of, List<Object> positional, Map<String, Object> named) {
    /// Refuses arguments without a parameter.
    ///
    /// @param names of the parameters, in their order
    Parameters only(String... names) {
        if (positional.size() > names.length || !Set.of(names).containsAll(named.keySet())) {
            throw TemplateException.unsupported(
                    of + " with the arguments " + positional + " " + named);
        }
        return this;
    }

    /// The argument at a place, or of a name.
    Optional<Object> get(int place, String name) {
        return Optional.ofNullable(
                place < positional.size() ? positional.get(place) : named.get(name));
    }

    Object required(int place, String name) {
        return get(place, name)
                .orElseThrow(() -> new TemplateException(of + " needs an argument " + name));
    }

    String string(int place, String name) {
        return Values.string(required(place, name), of);
    }

    String string(int place, String name, String absent) {
        return get(place, name).map(value -> Values.string(value, of)).orElse(absent);
    }

    long integer(int place, String name, long absent) {
        return get(place, name).map(value -> Values.integer(value, of)).orElse(absent);
    }

    boolean flag(int place, String name) {
        return get(place, name).map(Values::isTrue).orElse(false);
    }
}
