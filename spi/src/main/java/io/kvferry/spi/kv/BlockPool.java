// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.Deadline;

import java.util.Optional;

/// The engine's block pool, as far as connectors may use it. Scheduler thread only.
public interface BlockPool {
    /// Keeps blocks alive and unchanged for a save that outlives the step or the request.
    ///
    /// The connector closes the lease when all ranks have reported the save. At the deadline the
    /// engine revokes `id` and takes the blocks back as soon as every rank has answered.
    ///
    /// Several leases, one per group, may share an id: its completion or revocation ends them all.
    /// Full blocks; the engine still writes the partly filled tail of a running request. In
    /// [SchedulerConnector#finish] the tail can be leased too, since nobody writes it any more.
    ///
    /// @param id the save that the worker halves will report
    /// @param blocks ids of blocks of `group` that the request holds now
    Lease lease(TransferId id, int group, int[] blocks, Deadline deadline);

    /// Prolongs a [FinishDecision.Hold] whose consumer is known to come; never shortens it. From
    /// the call after the `finish` that answered it.
    ///
    /// @return when the hold ends now, which may be earlier than asked; empty when it has ended or
    ///   was revoked
    Optional<Deadline> renewHold(TransferId id, Deadline deadline);

    /// Blocks that nobody holds, of [io.kvferry.spi.memory.KvCacheSpec#blockCount]: a connector
    /// that leases a lot leaves the engine room.
    int freeBlocks();

    /// The right to read some blocks. Scheduler thread only.
    interface Lease extends AutoCloseable {
        /// When the engine takes the blocks back: what was asked for, or earlier where the engine
        /// bounds leases.
        Deadline deadline();

        /// Moves the deadline, as far as the engine grants it; false when the lease has ended
        /// already.
        boolean renew(Deadline deadline);

        /// Gives the blocks back. Idempotent; a no-op after expiry.
        @Override
        void close();
    }
}
