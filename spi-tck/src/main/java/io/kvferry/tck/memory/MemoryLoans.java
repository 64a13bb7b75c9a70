// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.TransferId;

import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/// The blocks that the engine keeps for the in-memory connector: leases for saves and for
/// consumers, and holds.
final class MemoryLoans {
    /// Blocks lent by the pool: for a save, or (with a key) for a consumer.
    private record Lent(BlockPool.Lease lease, String key, Deadline[] until) {}

    private final MemoryStore store;
    private final Duration time;
    private final Map<TransferId, Lent> lent = new HashMap<>();
    private final Map<TransferId, String> held = new HashMap<>();
    private Optional<BlockPool> pool = Optional.empty();

    /// @param time how long blocks stay for a save or a consumer
    MemoryLoans(MemoryStore store, Duration time) {
        this.store = store;
        this.time = time;
    }

    void usePool(BlockPool blockPool) {
        pool = Optional.of(blockPool);
    }

    /// The blocks of an ended request stay until its hand-off has been fetched.
    void hold(TransferId id, String key) {
        held.put(id, key);
    }

    void lend(TransferId id, MemoryPlan.Blocks blocks, String key) {
        var deadline = Deadline.in(time);
        for (int group = 0; group < blocks.ids().length; group++) {
            // One lease per group under one id: the save of all groups ends as one.
            var held =
                    Arrays.stream(blocks.ids()[group])
                            .filter(block -> block != BlockTable.NO_BLOCK)
                            .toArray();
            var lease = pool.orElseThrow().lease(id, group, held, deadline);
            lent.merge(id, new Lent(lease, key, new Deadline[] {deadline}), MemoryLoans::join);
        }
    }

    private static Lent join(Lent one, Lent other) {
        var both =
                new BlockPool.Lease() {
                    @Override
                    public Deadline deadline() {
                        return one.lease.deadline().earlier(other.lease.deadline());
                    }

                    @Override
                    public boolean renew(Deadline deadline) {
                        return one.lease.renew(deadline) & other.lease.renew(deadline);
                    }

                    @Override
                    public void close() {
                        one.lease.close();
                        other.lease.close();
                    }
                };
        return new Lent(both, one.key, one.until);
    }

    /// Renews the leases of blocks whose consumer still asks for them, although it is only queued.
    ///
    /// @return how many leases were renewed
    long renewWanted() {
        long renewed = 0;
        long half = time.toNanos() / 2;
        for (var entry : lent.values()) {
            if (!entry.key.isEmpty()
                    && entry.until[0].remainingNanos() < half
                    && store.sinceWanted(entry.key).filter(nanos -> nanos < half).isPresent()) {
                var later = Deadline.in(time);
                if (entry.lease.renew(later)) {
                    entry.until[0] = entry.lease.deadline();
                    renewed++;
                }
            }
        }
        return renewed;
    }

    /// The save or hand-off under this id has ended.
    void end(TransferId id) {
        var lease = lent.remove(id);
        if (lease != null) {
            lease.lease.close();
            if (!lease.key.isEmpty()) {
                store.withdraw(lease.key);
            }
        }
        Optional.ofNullable(held.remove(id)).ifPresent(store::withdraw);
    }

    /// The engine takes the blocks back: nobody may fetch them any more.
    void onRevoked(TransferId id) {
        Optional.ofNullable(held.get(id)).ifPresent(store::withdraw);
        Optional.ofNullable(lent.get(id))
                .filter(loan -> !loan.key.isEmpty())
                .ifPresent(loan -> store.withdraw(loan.key));
    }

    void close() {
        lent.values()
                .forEach(loan -> {
                    loan.lease.close();
                    if (!loan.key.isEmpty()) {
                        store.withdraw(loan.key);
                    }
                });
        lent.clear();
        held.values().forEach(store::withdraw);
        held.clear();
    }
}
