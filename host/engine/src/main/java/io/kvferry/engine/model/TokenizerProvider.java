// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.KvFerryException;

import java.nio.file.Path;
import java.util.Optional;

/// Reads tokenizers of Hugging Face model folders beyond the built-in byte-level BPE. Found by
/// [java.util.ServiceLoader]. The first provider that accepts a folder reads it; the built-in
/// tokenizer is the fallback.
public interface TokenizerProvider {
    /// Reads the folder's tokenizer and its chat template.
    ///
    /// @return empty where this provider cannot work on this machine
    /// @throws KvFerryException when the folder's tokenizer is broken
    Optional<Loaded> load(Path modelFolder);

    /// A tokenizer, and its highest id plus one.
    record Loaded(Tokenizer tokenizer, int size) {}
}
