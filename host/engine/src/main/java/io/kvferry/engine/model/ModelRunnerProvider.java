// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.model;

import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.Plugin;

/// Found by [java.util.ServiceLoader]; opens models. Stateless, public constructor without
/// arguments.
public interface ModelRunnerProvider extends Plugin {
    /// Reads what describes the model. Weights may be read later, by [Model#openRunner]: with
    /// workers in child processes, the scheduler's process opens the model but no runner.
    ///
    /// @throws KvFerryException BAD_CONFIG or INCOMPATIBLE when the folder is not a model this
    ///   runner understands
    Model open(ModelSource source);
}
