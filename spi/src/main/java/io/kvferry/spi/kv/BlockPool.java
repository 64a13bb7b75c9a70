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
    /// Several leases, one per group, may share an id; its completion or revocation ends all of
    /// them. Lease full blocks only, because the engine still writes the partly filled tail of a
    /// running request. In [SchedulerConnector#finish] the tail may be leased too.
    ///
    /// @param id the save that the worker halves will report
    /// @param blocks ids of blocks of `group` that the request holds now
    Lease lease(TransferId id, int group, int[] blocks, Deadline deadline);

    /// Extends a [FinishDecision.Hold] whose consumer is still expected; never shortens it. Allowed
    /// after the `finish` call that returned the hold.
    ///
    /// @return when the hold ends now, which may be earlier than requested; empty when it has ended
    ///   or was revoked
    Optional<Deadline> renewHold(TransferId id, Deadline deadline);

    /// Number of free blocks, out of [io.kvferry.spi.memory.KvCacheSpec#blockCount]. A connector
    /// with many leases uses it to leave the engine enough room.
    int freeBlocks();

    /// The right to read some blocks. Scheduler thread only.
    interface Lease extends AutoCloseable {
        /// When the engine takes the blocks back: the requested deadline, or earlier if the engine
        /// limits leases.
        Deadline deadline();

        /// Requests a new deadline, which the engine may limit. Returns false when the lease has
        /// ended.
        boolean renew(Deadline deadline);

        /// Gives the blocks back. Idempotent; a no-op after expiry.
        @Override
        void close();
    }
}
