// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.spi.Failure;

/// The end of a transfer.
public sealed interface EngineOutcome {
    /// Every range was copied.
    ///
    /// @param path that carried it: `tcp`, `shm` (shared memory), `cma` (cross memory attach, on
    ///   the same host too), `local` (own segment), or the native engine's transport
    record Completed(long bytes, Guarantee guarantee, String path) implements EngineOutcome {}

    /// At least one range was not copied; others may have been.
    ///
    /// @param failure why
    /// @param range index of the first range known to have failed; -1 when it cannot be told
    record Failed(Failure failure, int range) implements EngineOutcome {}
}
