// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.List;
import java.util.Map;

/// Anything that a template can call: a function, a method of a value, a macro.
@FunctionalInterface
public interface Callee {
    Object call(List<Object> arguments, Map<String, Object> named);
}
