// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.Deadline;

/// The engine's block pool, as far as connectors may use it. Scheduler thread only.
public interface BlockPool {
    /// Keeps blocks alive and unchanged for a save that outlives the step or the request.
    ///
    /// The connector closes the lease when all ranks have reported the save. At the deadline the
    /// engine revokes `id` and takes the blocks back as soon as every rank has answered.
    ///
    /// Several leases, one per group, may share an id: its completion or revocation ends them all.
    /// Full blocks only; the engine still writes the partial tail of a running request.
    ///
    /// @param id the save that the worker halves will report
    /// @param blocks ids of blocks of `group` that the request holds now
    BlockLease lease(TransferId id, int group, int[] blocks, Deadline deadline);

    /// Blocks that nobody holds: a connector that leases a lot leaves the engine room.
    int freeBlocks();

    int totalBlocks();
}
