// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.config;

/// The shapes an option's value can have in JSON. Anything else than the shape is refused, never
/// coerced (`"false"` is not a boolean).
public enum OptionType {
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
    /// A JSON object or list that the plugin reads itself (children of a composite, for instance).
    JSON
}
