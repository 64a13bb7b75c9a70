// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.config.OptionValues;

import java.nio.file.Path;
import java.util.Objects;

/// What to open.
///
/// @param folder a Hugging Face model folder; the empty path for runners that need none
/// @param options the runner's options, read against its schema
public record ModelSource(Path folder, OptionValues options) {
    public ModelSource {
        Objects.requireNonNull(folder, "folder");
        Objects.requireNonNull(options, "options");
    }
}
