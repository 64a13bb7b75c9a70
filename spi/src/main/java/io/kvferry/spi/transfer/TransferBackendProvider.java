// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.Plugin;
import io.kvferry.spi.config.OptionValues;

/// Found by [java.util.ServiceLoader]; opens transfer backends. Needs a public constructor without
/// arguments.
public interface TransferBackendProvider extends Plugin {
    /// Capabilities of a backend with these options, without opening one. An open backend claims no
    /// more than this.
    BackendCapabilities capabilities(OptionValues options);

    /// Opens a backend.
    ///
    /// Called by the agent, once per agent, on the thread that will own the backend if it is
    /// CONFINED.
    ///
    /// @throws KvFerryException [io.kvferry.spi.ErrorCode#UNAVAILABLE] when the platform lacks
    ///   something, [io.kvferry.spi.ErrorCode#BAD_CONFIG] when options contradict each other
    TransferBackend open(BackendContext context);
}
