// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.config;

import java.nio.file.Path;

/// The JSON text of a configuration and where an operator gave it.
///
/// @param where how messages call the place
/// @param typed whether it stood on a command line, where a shell may have changed it
/// @param json the text
public record ConfigText(String where, boolean typed, String json) {
    /// The value of an option itself.
    public static ConfigText typed(String option, String json) {
        return new ConfigText(option, true, json);
    }

    /// The content of a file that an option names.
    public static ConfigText file(String option, Path file, String json) {
        return new ConfigText(option + " @" + file, false, json);
    }

    /// The value of the option that vLLM has for this family.
    public static ConfigText of(Family family, String json) {
        return typed(family.optionName(), json);
    }
}
