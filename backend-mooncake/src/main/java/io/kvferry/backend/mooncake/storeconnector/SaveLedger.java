// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.KvCacheSpec;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;

/// The save jobs of the scheduler half: whole blocks that are not stored yet, under leases on the
/// engine's blocks until all ranks have reported the job.
///
/// Threading: the scheduler thread.
final class SaveLedger {
    /// Share of the engine's blocks that must stay free of leases.
    private static final int KEEP_FREE_FRACTION = 10;

    private static final Duration PAUSE_AFTER_FAILURE = Duration.ofMillis(100);

    private final BlockPool pool;
    private final int blockTokens;
    private final int poolBlocks;
    private final Duration leaseTime;
    private final Consumer<StorePlan.Move> plan;
    private final Map<TransferId, Job> jobs = new HashMap<>();
    private long deferred;

    /// A job under way.
    private record Job(
            TrackedRequest request,
            List<BlockPool.Lease> leases,
            Optional<BlockHash> parent,
            StorePlan.Move move) {}

    /// Takes consecutive blocks that are stored from now on.
    @FunctionalInterface
    interface Stored {
        void accept(Optional<BlockHash> parent, List<BlockHash> hashes);
    }

    /// @param plan takes what the workers are to write
    SaveLedger(
            BlockPool pool, KvCacheSpec cache, Duration leaseTime, Consumer<StorePlan.Move> plan) {
        this.pool = pool;
        this.blockTokens = cache.blockTokens();
        this.poolBlocks = cache.blockCount();
        this.leaseTime = leaseTime;
        this.plan = plan;
    }

    /// Saves what of the first `tokens` tokens is in whole blocks and not stored yet.
    ///
    /// @param last whether the request has no later step, so that nothing can be put off
    void saveUpTo(
            TrackedRequest tracked,
            RequestView request,
            BlockTable table,
            int tokens,
            boolean last) {
        int full = Math.min(tokens / blockTokens, request.blockHashCount());
        if (tracked.loading.isPresent()) {
            return; // what rests on a load is saved when that is complete on all ranks
        }
        if (!last && tracked.pause.filter(pause -> !pause.passed()).isPresent()) {
            return;
        }
        while (tracked.savedBlocks < full) {
            int from = tracked.savedBlocks;
            if (isStored(tracked, request, from)) {
                tracked.savedBlocks++;
                continue;
            }
            int to = from + 1;
            while (to < full && !isStored(tracked, request, to)) {
                to++;
            }
            boolean scarce = pool.freeBlocks() < poolBlocks / KEEP_FREE_FRACTION;
            if (scarce && !last && !jobs.isEmpty()) {
                deferred++;
                return; // tried again in a later step, once leases have ended
            }
            start(tracked, request, table, from, to);
            tracked.savedBlocks = to;
        }
    }

    private static boolean isStored(TrackedRequest tracked, RequestView request, int block) {
        return tracked.presence.isThere(block, request.blockHash(block), false);
    }

    private void start(
            TrackedRequest tracked, RequestView request, BlockTable table, int from, int to) {
        var id =
                new TransferId(
                        request.id(),
                        request.attempt(),
                        TransferId.Direction.SAVE,
                        ++tracked.jobs,
                        "");
        var move = StorePlan.Move.of(id, request, table, from, to);
        var leases = new ArrayList<BlockPool.Lease>();
        for (int group = 0; group < move.ids().length; group++) {
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
        jobs.put(id, new Job(tracked, leases, parent, move));
        plan.accept(move);
    }

    /// A job has ended on all ranks: the blocks go back to the engine, and what is stored is
    /// announced. After a failure the request tries again from the first block that is missing.
    void end(Completion completion, Stored stored) {
        Job job = jobs.remove(completion.id());
        if (job == null) {
            return;
        }
        job.leases().forEach(BlockPool.Lease::close);
        if (completion.result() instanceof Completion.Completed) {
            stored.accept(job.parent(), job.move().hashes());
        } else if (completion.result() instanceof Completion.Failed) {
            announceWhatIsThere(job, stored);
            job.request().savedBlocks = Math.min(job.request().savedBlocks, job.move().first());
            job.request().pause = Optional.of(Deadline.in(PAUSE_AFTER_FAILURE));
        }
    }

    private static void announceWhatIsThere(Job job, Stored stored) {
        var hashes = job.move().hashes();
        for (int from = 0; from < hashes.size(); ) {
            int to = from;
            while (to < hashes.size()
                    && job.request()
                            .presence
                            .isThere(job.move().first() + to, hashes.get(to), false)) {
                to++;
            }
            if (to > from) {
                var parent = from == 0 ? job.parent() : Optional.of(hashes.get(from - 1));
                stored.accept(parent, hashes.subList(from, to));
            }
            from = to + 1;
        }
    }

    /// Saves that waited for leases to end, since the last call.
    long drainDeferred() {
        long drained = deferred;
        deferred = 0;
        return drained;
    }

    void close() {
        jobs.values().forEach(job -> job.leases().forEach(BlockPool.Lease::close));
        jobs.clear();
    }
}
