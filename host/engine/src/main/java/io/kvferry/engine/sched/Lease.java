// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.BlockLease;
import io.kvferry.spi.kv.TransferId;

/// One lease; see [Desk].
final class Lease implements BlockLease {
    private final Desk desk;
    private final TransferId id;
    final int[] blocks;
    long deadline;
    boolean revoked;
    boolean ended;

    Lease(Desk desk, TransferId id, int[] blocks, long deadline) {
        this.desk = desk;
        this.id = id;
        this.blocks = blocks;
        this.deadline = deadline;
    }

    @Override
    public TransferId id() {
        return id;
    }

    @Override
    public boolean renew(Deadline later) {
        if (ended || revoked) {
            return false;
        }
        deadline = desk.capped(later.nanoTime());
        desk.watch(deadline);
        return true;
    }

    @Override
    public void close() {
        if (!ended && !revoked) {
            desk.endLease(this);
        }
    }
}
