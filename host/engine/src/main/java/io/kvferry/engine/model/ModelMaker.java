// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.KvFerryException;

import java.nio.file.Path;

/// Found by [java.util.ServiceLoader]; writes a small model folder, so that everything runs without
/// a download (`kvferry make-model`, and `kvferry demo` where no model is given). Stateless, public
/// constructor without arguments.
public interface ModelMaker {
    /// The name to choose it by.
    String name();

    /// One line for people.
    String description();

    /// Writes `folder` whole or not at all; the same seed gives the same bytes.
    ///
    /// @throws KvFerryException INVALID_REQUEST when `folder` exists, STORAGE_IO when it cannot be
    ///   written
    void make(Path folder, long seed);
}
