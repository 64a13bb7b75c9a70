// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.Deadline;

import java.util.concurrent.CompletionStage;

/// A scheduler half whose store can be emptied ([ConnectorCapabilities.Feature#RESET]).
public interface ResettableCache {
    /// Forgets everything stored in this namespace: lookups miss from the moment the stage
    /// completes. Called on the scheduler thread, so it only starts the work; what is not done by
    /// `limit` counts as not removed.
    ///
    /// @return completes normally; false when something could not be removed
    CompletionStage<Boolean> resetCache(Deadline limit);
}
