// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.block.CachePool;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.TransferId;

import java.util.Optional;

/// The block pool as the connector sees it.
final class LeasePool implements BlockPool {
    private final Desk desk;
    private final Leases leases;
    private final CachePool pool;
    private final int groups;

    LeasePool(Desk desk, CachePool pool, int groups) {
        this.desk = desk;
        this.leases = desk.leases();
        this.pool = pool;
        this.groups = groups;
    }

    @Override
    public BlockPool.Lease lease(TransferId id, int group, int[] blocks, Deadline deadline) {
        if (group < 0 || group >= groups) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST, "lease " + id + ": no group " + group);
        }
        if (id.direction() != TransferId.Direction.SAVE) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST, "lease " + id + ": the id of a load");
        }
        return leases.take(id, blocks.clone(), deadline.nanoTime());
    }

    @Override
    public Optional<Deadline> renewHold(TransferId id, Deadline deadline) {
        return desk.renewHold(id, deadline);
    }

    @Override
    public int freeBlocks() {
        return pool.free();
    }

    @Override
    public int totalBlocks() {
        return pool.total();
    }
}
