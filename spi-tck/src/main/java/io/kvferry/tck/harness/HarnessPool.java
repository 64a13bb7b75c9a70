// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.TransferId;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.function.Predicate;

/// The block pool of a harness: reference counts, leases, and poison in whatever nobody holds.
///
/// Threading: the test's thread.
final class HarnessPool implements BlockPool {
    private final HarnessMemory memory;
    private final int[] references;
    private final ArrayDeque<Integer> free = new ArrayDeque<>();
    private final Map<TransferId, List<Lease>> leases = new LinkedHashMap<>();
    private final Set<TransferId> known = new HashSet<>();
    private int leasesTaken;
    private Predicate<TransferId> isHeld = _ -> false;

    HarnessPool(HarnessShape shape, HarnessMemory memory, long seed) {
        this.memory = memory;
        this.references = new int[shape.blocks()];
        var order = new ArrayList<Integer>();
        for (int i = 0; i < shape.blocks(); i++) {
            order.add(i);
        }
        Collections.shuffle(order, new Random(seed)); // block ids never come in order
        free.addAll(order);
    }

    /// Blocks with one reference each.
    int[] take(int count) {
        if (count > free.size()) {
            throw new IllegalStateException(
                    "the harness has " + free.size() + " free blocks, not " + count);
        }
        var taken = new int[count];
        for (int i = 0; i < count; i++) {
            taken[i] = free.removeFirst();
            references[taken[i]] = 1;
        }
        return taken;
    }

    /// One reference less on each; positions without a block are passed over.
    void release(int[] blocks) {
        for (int block : blocks) {
            if (block == BlockTable.NO_BLOCK) {
                continue;
            }
            if (--references[block] < 0) {
                throw new AssertionError(
                        "block " + block + " was released more often than it was taken");
            }
            if (references[block] == 0) {
                memory.poison(block);
                free.addLast(block);
            }
        }
    }

    boolean[] freeFlags() {
        var flags = new boolean[references.length];
        free.forEach(block -> flags[block] = true);
        return flags;
    }

    @Override
    public BlockPool.Lease lease(TransferId id, int group, int[] blocks, Deadline deadline) {
        for (int block : blocks) {
            if (block == BlockTable.NO_BLOCK || references[block] == 0) {
                throw new AssertionError(
                        "lease " + id + " asks for block " + block + ", which nobody holds");
            }
        }
        if (deadline.passed()) {
            throw new AssertionError("lease " + id + " asks for a deadline that has passed");
        }
        for (int block : blocks) {
            references[block]++;
        }
        leasesTaken++;
        known.add(id);
        var lease = new Lease(id, blocks.clone(), deadline);
        leases.computeIfAbsent(id, _ -> new ArrayList<>()).add(lease);
        return lease;
    }

    boolean wasLeased(TransferId id) {
        return known.contains(id);
    }

    int leasesTaken() {
        return leasesTaken;
    }

    /// Ids of leases that are open and not yet revoked.
    List<TransferId> openLeases() {
        return List.copyOf(leases.keySet());
    }

    List<TransferId> expired() {
        return leases.entrySet().stream()
                .filter(entry ->
                        entry.getValue().stream().anyMatch(lease -> lease.deadline.passed()))
                .map(Map.Entry::getKey)
                .toList();
    }

    /// All ranks answered a revocation: the leases under it end.
    void end(TransferId id) {
        List.copyOf(leases.getOrDefault(id, List.of())).forEach(Lease::close);
    }

    /// Holds of a harness end when the test says so; one that is open is granted what was asked.
    @Override
    public Optional<Deadline> renewHold(TransferId id, Deadline deadline) {
        return isHeld.test(id) ? Optional.of(deadline) : Optional.empty();
    }

    /// Sets who knows which holds are open.
    void holdsAre(Predicate<TransferId> open) {
        isHeld = open;
    }

    @Override
    public int freeBlocks() {
        return free.size();
    }

    private final class Lease implements BlockPool.Lease {
        private final TransferId id;
        private final int[] blocks;
        private Deadline deadline;
        private boolean open = true;

        Lease(TransferId id, int[] blocks, Deadline deadline) {
            this.id = id;
            this.blocks = blocks;
            this.deadline = deadline;
        }

        @Override
        public Deadline deadline() {
            return deadline;
        }

        @Override
        public boolean renew(Deadline later) {
            if (open && !deadline.passed()) {
                deadline = later;
                return true;
            }
            return false;
        }

        @Override
        public void close() {
            if (!open) {
                return;
            }
            open = false;
            var siblings = leases.get(id);
            if (siblings != null) {
                siblings.remove(this);
                if (siblings.isEmpty()) {
                    leases.remove(id);
                }
            }
            release(blocks);
        }
    }
}
