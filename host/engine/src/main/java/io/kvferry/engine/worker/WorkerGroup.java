// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import java.util.List;

/// All ranks of an engine, wherever they run.
///
/// Threading: scheduler thread only.
public interface WorkerGroup extends AutoCloseable {
    /// The handshakes of the worker halves, by rank.
    List<Handshakes> handshakes();

    /// Runs a step on every rank and waits for all of them.
    ///
    /// @return by rank; valid until the next call
    /// @throws io.kvferry.spi.KvFerryException PEER_LOST or TIMEOUT when a rank is dead; the group
    ///   must then be closed
    List<RankResult> execute(StepPlan plan);

    /// Closes worker halves, then runners, then frees the cache memory. Idempotent.
    @Override
    void close();
}
