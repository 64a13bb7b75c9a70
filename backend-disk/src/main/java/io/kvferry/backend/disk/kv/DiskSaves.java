// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.store.BlockKey;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.BlockLease;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.BlockHash;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;

/// The saves of the scheduler half: whole blocks that are not stored yet, under leases on the
/// engine's blocks until all ranks have written them.
final class DiskSaves {
    /// Share of the engine's blocks that must stay free of leases.
    private static final int KEEP_FREE_FRACTION = 10;

    private final BlockStore store;
    private final BlockPool pool;
    private final Tracked.Files files;
    private final int blockTokens;
    private final Duration leaseTime;
    private final Consumer<DiskPlan.Move> plan;
    private final Map<TransferId, Saving> saving = new HashMap<>();
    private int deferred;

    /// A save under way: what it borrowed and what it will have stored.
    private record Saving(
            List<BlockLease> leases,
            int first,
            Optional<BlockHash> parent,
            List<BlockHash> hashes) {}

    /// Takes what has been stored.
    @FunctionalInterface
    interface Stored {
        void accept(Optional<BlockHash> parent, List<BlockHash> hashes);
    }

    /// @param plan takes what the workers are to write
    DiskSaves(
            BlockStore store,
            BlockPool pool,
            Tracked.Files files,
            int blockTokens,
            Duration leaseTime,
            Consumer<DiskPlan.Move> plan) {
        this.store = store;
        this.pool = pool;
        this.files = files;
        this.blockTokens = blockTokens;
        this.leaseTime = leaseTime;
        this.plan = plan;
    }

    /// Saves what of the first `tokens` tokens is in whole blocks and not stored yet.
    ///
    /// @param last whether the request has no later step, so that nothing can be put off
    void saveUpTo(
            Tracked tracked, RequestView request, BlockTable table, int tokens, boolean last) {
        int full = Math.min(tokens / blockTokens, request.blockHashCount());
        if (tracked.loading.isPresent() || full <= tracked.savedBlocks) {
            return; // blocks whose load is not known to be complete must not be stored
        }
        tracked.name(request, full);
        for (int from = tracked.savedBlocks; from < full; ) {
            if (isStored(tracked, from)) {
                from++;
                continue;
            }
            int to = from + 1;
            while (to < full && !isStored(tracked, to)) {
                to++;
            }
            boolean scarce = pool.freeBlocks() < pool.totalBlocks() / KEEP_FREE_FRACTION;
            if (scarce && !last && !saving.isEmpty()) {
                deferred++;
                return; // tried again in a later step, once leases have ended
            }
            start(tracked, request, table, from, to);
            from = to;
            tracked.savedBlocks = to;
        }
        tracked.savedBlocks = full;
    }

    private boolean isStored(Tracked tracked, int block) {
        for (BlockKey key : tracked.keys(block, block + 1)) {
            if (!store.mayContain(key)) {
                return false;
            }
        }
        return true;
    }

    private void start(Tracked tracked, RequestView request, BlockTable table, int from, int to) {
        var id = TransferId.save(request.id(), request.attempt(), ++tracked.jobs);
        var move = DiskPlan.Move.of(id, false, request, table, files.groups(), from, to);
        var leases = new ArrayList<BlockLease>();
        for (int group = 0; group < files.groups(); group++) {
            int[] held =
                    Arrays.stream(move.ids()[group])
                            .filter(block -> block != BlockTable.NO_BLOCK)
                            .toArray();
            if (held.length > 0) {
                leases.add(pool.lease(id, group, held, Deadline.in(leaseTime)));
            }
        }
        var parent =
                from == 0 ? Optional.<BlockHash>empty() : Optional.of(request.blockHash(from - 1));
        saving.put(id, new Saving(leases, from, parent, move.hashes()));
        plan.accept(move);
    }

    /// A save has ended on all ranks.
    void end(Completion completion, Stored whole) {
        Saving ended = saving.remove(completion.id());
        if (ended == null) {
            return;
        }
        ended.leases().forEach(BlockLease::close);
        if (completion.result() instanceof Completion.Completed) {
            var keys = new ArrayList<BlockKey>();
            for (int i = 0; i < ended.hashes().size(); i++) {
                files.addTo(keys, ended.hashes().get(i), ended.first() + i);
            }
            keys.forEach(store::expect);
            whole.accept(ended.parent(), ended.hashes());
        }
    }

    /// Saves that waited for leases to end, since the last call.
    int drainDeferred() {
        int drained = deferred;
        deferred = 0;
        return drained;
    }

    void close() {
        saving.values().forEach(one -> one.leases().forEach(BlockLease::close));
        saving.clear();
    }
}
