// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.store.BlockStore;
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
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.stream.IntStream;

/// The saves of the scheduler half: whole blocks that are not stored yet, under leases on the
/// engine's blocks until all ranks have written them.
final class DiskSaves {
    /// A new save waits for others to end while less than this part of the engine's blocks is free.
    private static final int SCARCE_DIVISOR = 10;

    private final BlockStore store;
    private final BlockPool pool;
    private final FileLayout layout;
    private final RunIndex index;
    private final int blockTokens;
    private final int poolBlocks;
    private final Duration leaseTime;
    private final Consumer<DiskPlan.Move> plan;
    private final Consumer<List<BlockKey>> touch;
    private final Map<TransferId, Saving> saving = new HashMap<>();
    private final List<Drain> drains = new ArrayList<>(0);
    private int deferred;

    /// A reset waiting for these saves to end before it deletes what they have stored.
    private record Drain(Set<TransferId> saves, CompletableFuture<Void> ended) {}

    /// A save under way: its leases, and what it stores.
    ///
    /// @param prefix files of the blocks before those that are saved
    /// @param files that are written, in the order of their blocks
    private record Saving(
            List<BlockPool.Lease> leases,
            Optional<BlockHash> parent,
            DiskPlan.Move move,
            List<BlockKey> prefix,
            List<Tracked.FileSpan> files) {}

    /// Takes consecutive blocks of one group that have been stored.
    @FunctionalInterface
    interface Stored {
        void accept(int group, Optional<BlockHash> parent, List<BlockHash> hashes);
    }

    /// @param plan takes what the workers are to write
    /// @param touch takes files that were used together, the first of a prompt first
    DiskSaves(
            BlockStore store,
            BlockPool pool,
            FileLayout layout,
            RunIndex index,
            KvCacheSpec cache,
            Duration leaseTime,
            Consumer<DiskPlan.Move> plan,
            Consumer<List<BlockKey>> touch) {
        this.store = store;
        this.pool = pool;
        this.layout = layout;
        this.index = index;
        this.blockTokens = cache.blockTokens();
        this.poolBlocks = cache.blockCount();
        this.leaseTime = leaseTime;
        this.plan = plan;
        this.touch = touch;
    }

    /// Saves the full blocks among the first `tokens` tokens that are not stored yet. Saves whole
    /// runs; saves single blocks only where no run can be completed soon: at the end of the prompt
    /// and at the end of the request.
    ///
    /// @param last whether this is the request's last chance to save, so nothing may be deferred
    void saveUpTo(
            Tracked tracked, RequestView request, BlockTable table, int tokens, boolean last) {
        int full = Math.min(tokens / blockTokens, request.blockHashCount());
        int limit = last ? full : Math.max(layout.start(full), promptEnd(request, tokens));
        if (tracked.loading.isPresent() || limit <= tracked.savedBlocks) {
            return; // blocks whose load is not known to be complete must not be stored
        }
        for (int at = tracked.savedBlocks; at < limit; ) {
            int from = at;
            var runs = new BitSet();
            int start = from; // of what is written, which may be earlier: the run that it completes
            boolean run = false; // whether the last block that was looked at can be in one
            for (; at < limit; at = next(at, full, runs)) {
                run = canBeRun(request, table, layout.start(at), full);
                if (run) {
                    if (isRunStored(tracked, request, layout.start(at))) {
                        break;
                    }
                    runs.set(layout.start(at));
                    start = Math.min(start, layout.start(at));
                } else if (isStored(tracked, request, table, at)) {
                    break;
                }
            }
            if (at == from) { // stored already
                at = run ? layout.start(at) + layout.run() : at + 1;
                tracked.savedBlocks = Math.min(at, full);
                continue;
            }
            boolean scarce = pool.freeBlocks() < poolBlocks / SCARCE_DIVISOR;
            if (scarce && !last && !saving.isEmpty()) {
                deferred++;
                return; // tried again in a later step, once leases have ended
            }
            start(tracked, request, table, start, Math.min(at, full), runs);
            tracked.savedBlocks = Math.min(at, full);
        }
    }

    /// Number of full prompt blocks once the whole prompt is computed, so they are saved without
    /// waiting for a long generation to end.
    private int promptEnd(RequestView request, int tokens) {
        return tokens < request.promptTokenCount() ? 0 : request.promptTokenCount() / blockTokens;
    }

    private int next(int at, int full, BitSet runs) {
        return runs.get(layout.start(at))
                ? Math.min(full, layout.start(at) + layout.run())
                : at + 1;
    }

    /// Whether all blocks of the run are computed and in memory, and no stored run of another
    /// prompt begins with the same blocks. Where two prompts diverge, each block gets a file of its
    /// own, so that any process can find the shared prefix.
    private boolean canBeRun(RequestView request, BlockTable table, int start, int full) {
        if (layout.run() == 1 || start + layout.run() > full) {
            return false;
        }
        var other = index.partlyShared(Tracked.hashes(request, start, start + layout.run()), 0);
        if (other.isPresent() && Tracked.all(store, layout.run(other.get().last(), start))) {
            return false;
        }
        for (int group = 0; group < layout.groups(); group++) {
            for (int id : table.copy(group, start, start + layout.run())) {
                if (id == BlockTable.NO_BLOCK) {
                    return false;
                }
            }
        }
        return true;
    }

    private boolean isRunStored(Tracked tracked, RequestView request, int start) {
        if (Tracked.all(store, tracked.run(request, start))) {
            return true;
        }
        for (int block = start; block < start + layout.run(); block++) {
            if (!Tracked.all(store, tracked.single(request, block))) {
                return false;
            }
        }
        return true;
    }

    /// Whether nothing of a block remains to be saved: it is stored, at least in all groups that
    /// have it in memory, or no group has it in memory.
    private boolean isStored(Tracked tracked, RequestView request, BlockTable table, int block) {
        if (tracked.isStored(request, block, store)) {
            return true;
        }
        var files = filesToSave(tracked, request, table, block);
        return files.size() < tracked.single(request, block).size() && Tracked.all(store, files);
    }

    /// The files to write when saving one block. Groups that do not have the block in memory, such
    /// as one whose sliding window has passed it, are left out.
    private List<BlockKey> filesToSave(
            Tracked tracked, RequestView request, BlockTable table, int block) {
        var files = tracked.single(request, block);
        for (int group = 0; group < layout.groups(); group++) {
            if (table.block(group, block) == BlockTable.NO_BLOCK) {
                return IntStream.range(0, files.size())
                        .filter(i -> table.block(layout.group(i), block) != BlockTable.NO_BLOCK)
                        .mapToObj(files::get)
                        .toList();
            }
        }
        return files;
    }

    private void start(
            Tracked tracked, RequestView request, BlockTable table, int from, int to, BitSet runs) {
        var id =
                new TransferId(
                        request.id(),
                        request.attempt(),
                        TransferId.Direction.SAVE,
                        ++tracked.jobs,
                        "");
        var own =
                runs.stream()
                        .mapToObj(at ->
                                new DiskPlan.Run(
                                        at, layout.run(), request.blockHash(at + layout.run() - 1)))
                        .toList();
        var move = DiskPlan.Move.of(id, false, request, table, layout, own, from, to);
        var leases = new ArrayList<BlockPool.Lease>();
        boolean planned = false;
        try {
            lease(move, leases);
            var parent =
                    from == 0
                            ? Optional.<BlockHash>empty()
                            : Optional.of(request.blockHash(from - 1));
            var files = new ArrayList<Tracked.FileSpan>();
            for (int at = from; at < to; ) {
                boolean run = runs.get(at);
                int next = at + (run ? layout.run() : 1);
                var keys =
                        run ? tracked.run(request, at) : filesToSave(tracked, request, table, at);
                files.add(new Tracked.FileSpan(at, next, keys));
                at = next;
            }
            var prefix = tracked.storedFiles(request, from, store);
            saving.put(id, new Saving(leases, parent, move, prefix, files));
            plan.accept(move);
            planned = true;
        } finally { // no completion will end it
            if (!planned) {
                saving.remove(id);
                leases.forEach(BlockPool.Lease::close);
            }
        }
    }

    private void lease(DiskPlan.Move move, List<BlockPool.Lease> leases) {
        for (int group = 0; group < layout.groups(); group++) {
            int[] held =
                    Arrays.stream(move.ids()[group])
                            .filter(block -> block != BlockTable.NO_BLOCK)
                            .toArray();
            if (held.length > 0) {
                leases.add(pool.lease(move.id(), group, held, Deadline.in(leaseTime)));
            }
        }
    }

    /// A save ended on all ranks. If it failed for some blocks, the others are stored. Results of a
    /// save that a reset waits for are ignored, because the reset deletes them.
    void end(Completion completion, Stored stored) {
        Saving ended = saving.remove(completion.id());
        if (ended == null) {
            return;
        }
        ended.leases().forEach(BlockPool.Lease::close);
        if (drains.stream().anyMatch(drain -> drain.saves.contains(completion.id()))) {
            drained(completion.id());
            return;
        }
        switch (completion.result()) {
            case Completion.Completed _ -> stored(ended, ended.files(), stored);
            case Completion.Failed(_, var blocks) -> {
                var whole = ended.files().stream().filter(files -> !files.failed(blocks)).toList();
                stored(ended, whole, stored);
            }
            case Completion.Revoked _ -> {}
        }
    }

    /// Records the files that a save has stored. The files of the prompt's prefix are touched as
    /// well, so that they are not evicted before their continuation.
    private void stored(Saving ended, List<Tracked.FileSpan> files, Stored stored) {
        if (files.isEmpty()) {
            return;
        }
        var keys = files.stream().flatMap(each -> each.keys().stream()).toList();
        keys.forEach(store::expect);
        var used = new ArrayList<>(ended.prefix());
        used.addAll(keys);
        touch.accept(used);
        var move = ended.move();
        var blocks = new BitSet();
        files.forEach(each -> blocks.set(each.start(), each.end()));
        for (var run : move.runs()) {
            if (blocks.get(run.start())) { // stored or not as a whole
                index.add(move.hashes(run.start(), run.start() + run.blocks()));
            }
        }
        for (int group = 0; group < layout.groups(); group++) {
            announce(ended, group, blocks, stored);
        }
    }

    /// Announces those of the blocks that the group had in memory, and so in the files.
    private static void announce(Saving ended, int group, BitSet blocks, Stored stored) {
        var move = ended.move();
        var own = new BitSet();
        blocks.stream()
                .filter(block -> move.ids()[group][block - move.first()] != BlockTable.NO_BLOCK)
                .forEach(own::set);
        for (int from = own.nextSetBit(0); from >= 0; ) {
            int to = own.nextClearBit(from);
            var parent =
                    from == move.first()
                            ? ended.parent()
                            : Optional.of(move.hashes(from - 1, from).getFirst());
            stored.accept(group, parent, move.hashes(from, to));
            from = own.nextSetBit(to);
        }
    }

    /// Completes when the saves that are under way now have ended, or when this is closed. The
    /// caller removes what they have stored.
    CompletableFuture<Void> drain() {
        var drain = new Drain(new HashSet<>(saving.keySet()), new CompletableFuture<>());
        if (saving.isEmpty()) {
            drain.ended.complete(null);
        } else {
            drains.add(drain);
        }
        return drain.ended;
    }

    private void drained(TransferId ended) {
        drains.removeIf(drain -> {
            drain.saves.remove(ended);
            return drain.saves.isEmpty() && drain.ended.complete(null);
        });
    }

    /// Saves that waited for leases to end, since the last call.
    int drainDeferred() {
        int drained = deferred;
        deferred = 0;
        return drained;
    }

    void close() {
        saving.values().forEach(one -> one.leases().forEach(BlockPool.Lease::close));
        saving.clear();
        drains.forEach(drain -> drain.ended.complete(null));
        drains.clear();
    }
}
