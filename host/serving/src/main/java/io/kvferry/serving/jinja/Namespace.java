// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.HashMap;
import java.util.Map;

/// Jinja's `namespace(...)`: attributes that outlive the scope that sets them.
final class Namespace {
    private final Map<String, Object> attributes;

    Namespace(Map<String, Object> attributes) {
        this.attributes = new HashMap<>(attributes);
    }

    Object get(String name) {
        var value = attributes.get(name);
        return value == null ? new Undefined("attribute " + name + " of a namespace") : value;
    }

    void set(String name, Object value) {
        attributes.put(name, value);
    }
}
