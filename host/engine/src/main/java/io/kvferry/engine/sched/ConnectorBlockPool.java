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
final class ConnectorBlockPool implements BlockPool {
    private final KvTransfers kvTransfers;
    private final Leases leases;
    private final CachePool pool;
    private final int groups;

    ConnectorBlockPool(KvTransfers kvTransfers, CachePool pool, int groups) {
        this.kvTransfers = kvTransfers;
        this.leases = kvTransfers.leases();
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
        return kvTransfers.renewHold(id, deadline);
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
