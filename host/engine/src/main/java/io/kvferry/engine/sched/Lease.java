// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.TransferId;

/// One lease; see [KvTransfers].
final class Lease implements BlockPool.Lease {
    private final Leases leases;
    private final TransferId id;
    final int[] blocks;
    long deadline;
    boolean revoked;
    boolean ended;

    Lease(Leases leases, TransferId id, int[] blocks, long deadline) {
        this.leases = leases;
        this.id = id;
        this.blocks = blocks;
        this.deadline = deadline;
    }

    @Override
    public TransferId id() {
        return id;
    }

    @Override
    public Deadline deadline() {
        return new Deadline(deadline);
    }

    @Override
    public boolean renew(Deadline later) {
        if (ended || revoked) {
            return false;
        }
        deadline = leases.granted(later.nanoTime());
        return true;
    }

    @Override
    public void close() {
        if (!ended && !revoked) {
            leases.end(this);
        }
    }
}
