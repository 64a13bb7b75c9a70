// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.config;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;

/// The options of one plugin, and the strict reading of a configuration against them.
///
/// Threading: immutable.
public final class OptionSchema {
    /// Of a plugin without options.
    public static final OptionSchema NONE = new OptionSchema(List.of());

    private final List<Option> options;
    private final Map<String, Option> byKey;

    private OptionSchema(List<Option> options) {
        this.options = List.copyOf(options);
        var keys = new LinkedHashMap<String, Option>();
        for (var option : options) {
            addKey(keys, option.name(), option);
            option.aliases().forEach(alias -> addKey(keys, alias, option));
            option.defaultText().ifPresent(text -> OptionParser.parseDefault(option, text));
        }
        this.byKey = Map.copyOf(keys);
    }

    private static void addKey(Map<String, Option> keys, String key, Option option) {
        if (keys.put(key, option) != null) {
            throw new IllegalArgumentException("option key declared twice: " + key);
        }
    }

    /// A schema with the given options.
    public static OptionSchema of(Option... options) {
        return new OptionSchema(List.of(options));
    }

    public List<Option> options() {
        return options;
    }

    /// Reads `raw` (JSON values: String, Boolean, Number, List, Map) strictly.
    ///
    /// @param where what the caller is configuring, for the message, e.g.
    ///   `kv_connector_extra_config of DiskConnector`
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] on an unknown key (with the nearest known
    ///   one), a value of another shape, a number out of range, a key given twice under two names,
    ///   or a missing required option
    public OptionValues read(String where, Map<String, ?> raw) {
        var values = new LinkedHashMap<String, Object>();
        raw.forEach((key, value) -> {
            var option = byKey.get(key);
            if (option == null) {
                throw new KvFerryException(ErrorCode.BAD_CONFIG, unknown(where, key));
            }
            if (values.put(option.name(), OptionParser.parse(where + ": " + key, option, value))
                    != null) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG,
                        where + ": " + option.name() + " is given twice, once under an alias");
            }
        });
        for (var option : options) {
            if (values.containsKey(option.name())) {
                continue;
            }
            if (option.required()) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG,
                        where
                                + ": "
                                + option.name()
                                + " is missing ("
                                + option.description()
                                + ")");
            }
            option.defaultText()
                    .ifPresent(text ->
                            values.put(option.name(), OptionParser.parseDefault(option, text)));
        }
        return new OptionValues(this, values);
    }

    private String unknown(String where, String key) {
        var known = new ArrayList<>(byKey.keySet());
        known.sort(null);
        return where
                + ": unknown key \""
                + key
                + "\""
                + nearest(key, known).map(n -> "; did you mean \"" + n + "\"?").orElse(".")
                + " Known keys: "
                + (known.isEmpty() ? "none" : String.join(", ", known));
    }

    Option require(String name) {
        var option = byKey.get(name);
        if (option == null || !option.name().equals(name)) {
            throw new IllegalArgumentException("no option named " + name + " in this schema");
        }
        return option;
    }

    /// The candidate within an edit distance that a typo explains (a third of the key's length), if
    /// there is one.
    public static Optional<String> nearest(String key, List<String> candidates) {
        String best = "";
        int bestDistance = Math.max(2, key.length() / 3) + 1;
        for (var candidate : candidates) {
            int distance =
                    editDistance(key.toLowerCase(Locale.ROOT), candidate.toLowerCase(Locale.ROOT));
            if (distance < bestDistance) {
                bestDistance = distance;
                best = candidate;
            }
        }
        return best.isEmpty() ? Optional.empty() : Optional.of(best);
    }

    private static int editDistance(String a, String b) {
        int[] previous = new int[b.length() + 1];
        for (int j = 0; j <= b.length(); j++) {
            previous[j] = j;
        }
        for (int i = 1; i <= a.length(); i++) {
            int[] current = new int[b.length() + 1];
            current[0] = i;
            for (int j = 1; j <= b.length(); j++) {
                int replace = previous[j - 1] + (a.charAt(i - 1) == b.charAt(j - 1) ? 0 : 1);
                current[j] = Math.min(replace, 1 + Math.min(previous[j], current[j - 1]));
            }
            previous = current;
        }
        return previous[b.length()];
    }
}
