// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.TransferId;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/// A pool that grants everything and remembers what is leased.
final class TestPool implements BlockPool {
    final List<TransferId> renewed = new ArrayList<>();
    private final List<TransferId> leased = new ArrayList<>();

    List<TransferId> leased() {
        return List.copyOf(leased);
    }

    @Override
    public BlockPool.Lease lease(TransferId id, int group, int[] blocks, Deadline deadline) {
        leased.add(id);
        return new BlockPool.Lease() {
            @Override
            public Deadline deadline() {
                return deadline;
            }

            @Override
            public boolean renew(Deadline later) {
                return leased.contains(id);
            }

            @Override
            public void close() {
                leased.remove(id);
            }
        };
    }

    @Override
    public Optional<Deadline> renewHold(TransferId id, Deadline deadline) {
        renewed.add(id);
        return Optional.of(deadline);
    }

    @Override
    public int freeBlocks() {
        return 100;
    }
}
