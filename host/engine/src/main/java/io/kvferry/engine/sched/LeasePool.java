// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.BlockLease;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.TransferId;

/// The block pool as the connector sees it.
final class LeasePool implements BlockPool {
    private final Desk desk;
    private final int groups;

    LeasePool(Desk desk, int groups) {
        this.desk = desk;
        this.groups = groups;
    }

    @Override
    public BlockLease lease(TransferId id, int group, int[] blocks, Deadline deadline) {
        if (group < 0 || group >= groups) {
            throw new KvFerryException(
                    ErrorCode.INVALID_REQUEST, "lease " + id + ": no group " + group);
        }
        for (int block : blocks) {
            if (block < 0 || block >= desk.totalBlocks() || desk.references(block) == 0) {
                throw new KvFerryException(
                        ErrorCode.INVALID_REQUEST,
                        "lease " + id + ": block " + block + " is not held by any request");
            }
        }
        return desk.lease(id, blocks.clone(), deadline.nanoTime());
    }

    @Override
    public int freeBlocks() {
        return desk.freeBlocks();
    }

    @Override
    public int totalBlocks() {
        return desk.totalBlocks();
    }
}
