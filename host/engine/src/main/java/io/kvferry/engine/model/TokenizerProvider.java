// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.KvFerryException;

import java.nio.file.Path;
import java.util.Optional;

/// Reads the tokenizer of a Hugging Face model folder with more than the built-in byte-level BPE
/// can do. Found by [java.util.ServiceLoader]; the first one that takes a folder reads it, and the
/// built-in tokenizer the rest.
public interface TokenizerProvider {
    /// Reads the folder's tokenizer and its chat template.
    ///
    /// @return empty where this provider cannot work on this machine
    /// @throws KvFerryException when the folder's tokenizer is broken
    Optional<Loaded> load(Path modelFolder);

    /// A tokenizer, and its highest id plus one.
    record Loaded(Tokenizer tokenizer, int size) {}
}
