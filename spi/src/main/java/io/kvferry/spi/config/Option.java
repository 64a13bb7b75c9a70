// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.config;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/// One option of a plugin: what `kvferry plugins` prints and what the host validates before the
/// plugin is opened.
///
/// @param name the key in `kv_connector_extra_config`
/// @param defaultText the value used when the key is absent, as it would stand in JSON without
///   quotes; empty for none
/// @param minimum smallest allowed number (bytes, seconds or plain); [Double#NEGATIVE_INFINITY] for
///   none
/// @param maximum largest allowed number; [Double#POSITIVE_INFINITY] for none
/// @param choices allowed values of a [Type#CHOICE]
/// @param aliases other keys that mean the same
/// @param secret never printed nor logged
public record Option(
        String name,
        Type type,
        Optional<String> defaultText,
        boolean required,
        double minimum,
        double maximum,
        List<String> choices,
        List<String> aliases,
        boolean secret,
        String description) {
    public Option {
        Objects.requireNonNull(name, "name");
        choices = List.copyOf(choices);
        aliases = List.copyOf(aliases);
        if (type == Type.CHOICE && choices.isEmpty()) {
            throw new IllegalArgumentException("option " + name + ": a CHOICE needs choices");
        }
        if (required && defaultText.isPresent()) {
            throw new IllegalArgumentException(
                    "option " + name + ": required and a default exclude each other");
        }
    }

    /// An optional option without a default; refine it with the methods below.
    public static Option of(String name, Type type, String description) {
        return new Option(
                name,
                type,
                Optional.empty(),
                false,
                Double.NEGATIVE_INFINITY,
                Double.POSITIVE_INFINITY,
                List.of(),
                List.of(),
                false,
                description);
    }

    /// An option with a fixed set of values, the first of which is the default.
    public static Option choice(String name, String description, String first, String... others) {
        var choices = new ArrayList<String>();
        choices.add(first);
        choices.addAll(List.of(others));
        return new Option(
                name,
                Type.CHOICE,
                Optional.of(first),
                false,
                Double.NEGATIVE_INFINITY,
                Double.POSITIVE_INFINITY,
                choices,
                List.of(),
                false,
                description);
    }

    public Option withDefault(String text) {
        return new Option(
                name,
                type,
                Optional.of(text),
                false,
                minimum,
                maximum,
                choices,
                aliases,
                secret,
                description);
    }

    public Option asRequired() {
        return new Option(
                name,
                type,
                Optional.empty(),
                true,
                minimum,
                maximum,
                choices,
                aliases,
                secret,
                description);
    }

    public Option inRange(double least, double most) {
        return new Option(
                name,
                type,
                defaultText,
                required,
                least,
                most,
                choices,
                aliases,
                secret,
                description);
    }

    public Option withAliases(String... others) {
        return new Option(
                name,
                type,
                defaultText,
                required,
                minimum,
                maximum,
                choices,
                List.of(others),
                secret,
                description);
    }

    public Option asSecret() {
        return new Option(
                name,
                type,
                defaultText,
                required,
                minimum,
                maximum,
                choices,
                aliases,
                true,
                description);
    }

    /// The shapes an option's value can have in JSON. Anything else than the shape is refused,
    /// never coerced (`"false"` is not a boolean).
    public enum Type {
        STRING,
        BOOLEAN,
        /// A whole number that fits a long.
        INTEGER,
        /// Any finite number.
        NUMBER,
        /// A whole number of bytes, or a string such as `"512MiB"`, `"4 GiB"`, `"1e9"` (decimal and
        /// binary units).
        BYTES,
        /// A number of seconds, or a string such as `"250ms"`, `"30s"`, `"5m"`.
        DURATION,
        /// A file system path.
        PATH,
        /// One of [Option#choices()].
        CHOICE,
        /// A list of strings.
        STRING_LIST,
        /// A JSON object or list that the plugin reads itself (children of a composite, for
        /// instance).
        JSON
    }
}
