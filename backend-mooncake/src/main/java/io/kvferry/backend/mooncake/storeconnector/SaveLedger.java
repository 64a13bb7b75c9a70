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
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
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
    private final Known known;
    private final Consumer<StorePlan.Move> plan;
    private final Map<TransferId, Job> jobs = new HashMap<>();
    private final Set<TransferId> disowned = new HashSet<>();
    private Optional<CompletableFuture<Void>> drained = Optional.empty();
    private long deferred;

    /// A job under way.
    private record Job(
            TrackedRequest request,
            List<BlockPool.Lease> leases,
            Optional<BlockHash> parent,
            StorePlan.Move move) {}

    /// Takes the blocks of a job that has ended, some of which may be stored now.
    @FunctionalInterface
    interface Ended {
        /// @param parent of the first block
        /// @param move the blocks, of each group those that have an id
        /// @param stored whether all ranks have stored these; if not, it is not known which are
        void accept(Optional<BlockHash> parent, StorePlan.Move move, boolean stored);
    }

    /// Whether a block is known to be stored, in every group in which the request has it.
    @FunctionalInterface
    interface Known {
        boolean isStored(TrackedRequest tracked, RequestView request, BlockTable table, int block);
    }

    /// @param known asked before a block is saved
    /// @param plan takes what the workers are to write
    SaveLedger(
            BlockPool pool,
            KvCacheSpec cache,
            Duration leaseTime,
            Known known,
            Consumer<StorePlan.Move> plan) {
        this.known = known;
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
        int full = Math.min(tokens / blockTokens, tracked.names.count(request));
        if (tracked.loading.isPresent()) {
            return; // blocks that depend on a load are saved once all ranks have loaded them
        }
        if (drained.isPresent()) {
            return; // the store is being emptied
        }
        if (!last && tracked.pause.filter(pause -> !pause.passed()).isPresent()) {
            return;
        }
        while (tracked.savedBlocks < full) {
            int from = tracked.savedBlocks;
            if (known.isStored(tracked, request, table, from)) {
                tracked.savedBlocks++;
                continue;
            }
            int to = from + 1;
            while (to < full && !known.isStored(tracked, request, table, to)) {
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

    private void start(
            TrackedRequest tracked, RequestView request, BlockTable table, int from, int to) {
        var id =
                new TransferId(
                        request.id(),
                        request.attempt(),
                        TransferId.Direction.SAVE,
                        ++tracked.jobs,
                        "");
        var move = StorePlan.Move.of(id, tracked.names, request, table, from, to);
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
                from == 0
                        ? Optional.<BlockHash>empty()
                        : Optional.of(tracked.names.hash(request, from - 1));
        jobs.put(id, new Job(tracked, leases, parent, move));
        plan.accept(move);
    }

    /// A job has ended on all ranks: the blocks go back to the engine. After a failure the request
    /// tries again from the first block that is missing.
    void end(Completion completion, Ended ended) {
        Job job = jobs.remove(completion.id());
        if (job == null) {
            return;
        }
        job.leases().forEach(BlockPool.Lease::close);
        boolean own = !disowned.remove(completion.id());
        var move = job.move();
        switch (completion.result()) {
            case Completion.Completed _ -> {
                if (own) {
                    ended.accept(job.parent(), move, true);
                }
            }
            case Completion.Failed(_, var blocks) -> {
                var rest = move.without(blocks);
                int missing = rest.isPresent() ? first(blocks) : move.first();
                job.request().savedBlocks = Math.min(job.request().savedBlocks, missing);
                job.request().pause = Optional.of(Deadline.in(PAUSE_AFTER_FAILURE));
                if (own) {
                    ended.accept(job.parent(), rest.orElse(move), rest.isPresent());
                }
            }
            case Completion.Revoked _ -> {}
        }
        if (disowned.isEmpty()) {
            drained.ifPresent(waiting -> waiting.complete(null));
        }
    }

    private static int first(List<Completion.FailedBlocks> blocks) {
        return blocks.stream()
                .flatMapToInt(group -> Arrays.stream(group.positions()))
                .min()
                .orElse(0);
    }

    /// Begins no save until [#resume], and says when those that are under way have ended: what they
    /// write must not outlive the emptying of the store. They are not announced.
    CompletableFuture<Void> drain() {
        if (drained.filter(waiting -> !waiting.isDone()).isPresent()) {
            return drained.get();
        }
        var waiting = new CompletableFuture<Void>();
        drained = Optional.of(waiting);
        disowned.addAll(jobs.keySet());
        if (disowned.isEmpty()) {
            waiting.complete(null);
        }
        return waiting;
    }

    void resume() {
        drained = Optional.empty();
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
        drained.ifPresent(waiting -> waiting.complete(null));
    }
}
