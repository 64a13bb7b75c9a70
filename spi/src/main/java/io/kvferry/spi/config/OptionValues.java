// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.config;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// The validated options of one plugin instance. Getters take the option's own name (not an alias)
/// and throw [IllegalArgumentException] for a name the schema does not have: that is a defect of
/// the plugin, not of the user.
///
/// Threading: immutable.
public final class OptionValues {
    private final OptionSchema schema;
    private final Map<String, Object> values;

    OptionValues(OptionSchema schema, Map<String, Object> values) {
        this.schema = schema;
        this.values = Map.copyOf(values);
    }

    /// Whether the user or a default gave a value.
    public boolean has(String name) {
        schema.require(name);
        return values.containsKey(name);
    }

    public String string(String name) {
        return get(name, String.class);
    }

    public boolean bool(String name) {
        return get(name, Boolean.class);
    }

    public long integer(String name) {
        return get(name, Long.class);
    }

    public double number(String name) {
        return get(name, Double.class);
    }

    /// A count of bytes.
    public long bytes(String name) {
        return get(name, Long.class);
    }

    public Duration duration(String name) {
        return get(name, Duration.class);
    }

    public Path path(String name) {
        return get(name, Path.class);
    }

    @SuppressWarnings("unchecked") // the parser made the list of strings
    public List<String> strings(String name) {
        return get(name, List.class);
    }

    /// The JSON value as parsed: maps, lists, strings, numbers, booleans.
    public Object json(String name) {
        return get(name, Object.class);
    }

    public Optional<String> optionalString(String name) {
        return has(name) ? Optional.of(string(name)) : Optional.empty();
    }

    private <T> T get(String name, Class<T> type) {
        schema.require(name);
        var value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException(
                    "option " + name + " has no value; ask has() first or give it a default");
        }
        return type.cast(value);
    }
}
