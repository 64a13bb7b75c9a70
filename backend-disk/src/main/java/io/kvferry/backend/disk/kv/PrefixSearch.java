// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.store.BlockSearch;
import io.kvferry.spi.memory.BlockHash;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/// Looks for the files of a prompt: for each run its file, and where that is not there the files of
/// its single blocks, or the run of another prompt that begins with the same blocks, up to the
/// first block that is in none.
///
/// Threading: made by the scheduler thread, run by it or by one I/O thread; read by the scheduler
/// thread when that is done.
final class PrefixSearch implements BlockSearch {
    private final FileLayout layout;
    private final List<BlockHash> hashes;
    private final int first;
    private final Map<Integer, DiskPlan.Run> shared = new HashMap<>();
    private final Map<Integer, DiskPlan.Run> runs = new TreeMap<>();
    private final List<Used> used = new ArrayList<>();
    private boolean gap;

    /// The files of the block or run that is used from block `start` on.
    private record Used(int start, List<BlockKey> keys) {}

    /// @param hashes of all blocks of the prompt from its first on
    /// @param first block that is asked for; those before it are only kept in use
    /// @param index of runs that other prompts left; asked here and now
    PrefixSearch(FileLayout layout, List<BlockHash> hashes, int first, RunIndex index) {
        this.layout = layout;
        this.hashes = hashes;
        this.first = first;
        for (int start = 0; layout.run() > 1 && start < hashes.size(); start += layout.run()) {
            index.partlyShared(hashes, start).ifPresent(run -> shared.put(run.start(), run));
        }
    }

    int first() {
        return first;
    }

    int end() {
        return hashes.size();
    }

    /// The files of several blocks that were found, by their first position.
    Map<Integer, DiskPlan.Run> runs() {
        return runs;
    }

    /// The blocks of the runs that were found whole.
    List<List<BlockHash>> wholeRuns() {
        return runs.values().stream()
                .filter(run -> run.blocks() == layout.run())
                .map(run -> hashes.subList(run.start(), run.start() + run.blocks()))
                .map(List::copyOf)
                .toList();
    }

    @Override
    public int search(Finder finder) {
        int end = hashes.size();
        for (int at = 0; at < hashes.size(); ) {
            int next = at + layout.run();
            if (layout.run() > 1 && next <= hashes.size() && hasRun(finder, at)) {
                at = next;
                continue;
            }
            for (int stop = Math.min(next, hashes.size()); at < stop; at++) {
                if (hasSingle(finder, at)) {
                    continue;
                }
                int blocks = shared(finder, at);
                if (blocks > 0) {
                    at += blocks - 1;
                } else if (at >= first && !gap) {
                    gap = true;
                    end = at;
                }
            }
        }
        for (int i = used.size() - 1; i >= 0; i--) {
            Used each = used.get(i);
            for (BlockKey key : each.keys()) {
                if (!finder.use(key)) {
                    end = Math.max(first, Math.min(end, each.start()));
                }
            }
        }
        return end - first;
    }

    private boolean hasRun(Finder finder, int start) {
        boolean wanted = start + layout.run() > first && !gap;
        BlockHash last = hashes.get(start + layout.run() - 1);
        boolean there = all(finder, start, layout.run(last, start), wanted);
        if (there) {
            runs.put(start, new DiskPlan.Run(start, layout.run(), last));
        }
        return there;
    }

    /// How many blocks from `at` on are in the run of another prompt that is there. Those before
    /// may be in files of their own as well, which a shorter prompt left.
    private int shared(Finder finder, int at) {
        int start = layout.start(at);
        DiskPlan.Run run = shared.get(start);
        if (run == null || at >= start + run.blocks()) {
            return 0;
        }
        shared.remove(start); // asked for once
        boolean wanted = start + run.blocks() > first && !gap;
        boolean there = all(finder, at, layout.run(run.last(), start), wanted);
        if (there) {
            runs.put(start, run);
        }
        return there ? start + run.blocks() - at : 0;
    }

    private boolean hasSingle(Finder finder, int at) {
        return all(finder, at, layout.single(hashes.get(at), at), at >= first && !gap);
    }

    private boolean all(Finder finder, int start, List<BlockKey> keys, boolean wanted) {
        boolean all = true;
        for (BlockKey key : keys) {
            // Each is asked for, so that all that is gone is noticed at once.
            all &= wanted ? finder.isThere(key) : finder.isStillThere(key);
        }
        if (all && !gap) {
            used.add(new Used(start, keys));
        }
        return all;
    }
}
