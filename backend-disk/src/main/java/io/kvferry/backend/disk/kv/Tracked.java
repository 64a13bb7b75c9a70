// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.block.BlockKey;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.spi.kv.Completion.FailedBlocks;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.memory.BlockHash;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;

/// What the scheduler half knows of a request until it is finished.
final class Tracked {
    private final FileLayout layout;
    private final List<@Nullable List<BlockKey>> singles = new ArrayList<>();
    private final List<@Nullable List<BlockKey>> runKeys = new ArrayList<>();
    Optional<PrefixProbe> probe = Optional.empty();
    Optional<LoadAssignment> loading = Optional.empty();

    /// When the engine took that load, as [System#nanoTime].
    long loadingSince;

    /// Whether a reset came while it loads: what it has loaded then is stored no more.
    boolean loadCleared;

    /// The files of several blocks that the last lookup found, by their first position.
    Map<Integer, DiskPlan.Run> runs = Map.of();

    /// The files of the load under way.
    List<FileSpan> loadingFiles = List.of();

    /// Files of the blocks before those.
    List<FileSpan> loadingPrefix = List.of();

    boolean refreshed;
    boolean loadFailed;
    int savedBlocks;
    int jobs;

    /// The files that hold blocks `start` to `end` (exclusive), of all groups and ranks.
    record FileSpan(int start, int end, List<BlockKey> keys) {
        private boolean holds(int position) {
            return start <= position && position < end;
        }

        /// Whether a transfer that failed with these blocks failed for one of this span. One that
        /// names no block failed for every block.
        boolean failed(List<FailedBlocks> blocks) {
            boolean named = blocks.stream().anyMatch(group -> group.positions().length > 0);
            return !named
                    || blocks.stream()
                            .flatMapToInt(group -> Arrays.stream(group.positions()))
                            .anyMatch(this::holds);
        }
    }

    Tracked(FileLayout layout) {
        this.layout = layout;
    }

    /// A lookup of the first `end` blocks that wants those from `first` on.
    PrefixSearch search(RequestView request, int first, int end, RunIndex index) {
        return new PrefixSearch(layout, hashes(request, 0, end), first, index);
    }

    /// The hashes of blocks `first` to `end` (exclusive).
    static List<BlockHash> hashes(RequestView request, int first, int end) {
        var hashes = new ArrayList<BlockHash>(end - first);
        for (int block = first; block < end; block++) {
            hashes.add(request.blockHash(block));
        }
        return hashes;
    }

    /// The files of one block; named once.
    List<BlockKey> single(RequestView request, int block) {
        while (singles.size() <= block) {
            singles.add(null);
        }
        List<BlockKey> known = singles.get(block);
        if (known == null) {
            known = layout.single(request.blockHash(block), block);
            singles.set(block, known);
        }
        return known;
    }

    /// The files of the run that begins at `start`, all of whose blocks have a hash; named once.
    List<BlockKey> run(RequestView request, int start) {
        int number = start / layout.run();
        while (runKeys.size() <= number) {
            runKeys.add(null);
        }
        List<BlockKey> known = runKeys.get(number);
        if (known == null) {
            known = layout.run(request.blockHash(start + layout.run() - 1), start);
            runKeys.set(number, known);
        }
        return known;
    }

    /// Whether the run that begins at `start` has a name yet.
    boolean hasRun(RequestView request, int start) {
        return layout.run() > 1 && start + layout.run() <= request.blockHashCount();
    }

    /// The files from which blocks `first` to `end` (exclusive) are loaded, after a lookup.
    List<FileSpan> filesToLoad(RequestView request, int first, int end) {
        var files = new ArrayList<FileSpan>();
        for (int at = first; at < end; ) {
            DiskPlan.Run run = runs.get(layout.start(at));
            if (run != null && at < run.start() + run.blocks()) {
                int next = run.start() + run.blocks();
                files.add(new FileSpan(at, next, layout.run(run.last(), run.start())));
                at = next;
            } else {
                files.add(new FileSpan(at, at + 1, single(request, at)));
                at++;
            }
        }
        return files;
    }

    /// All that the load under way uses, the first of the prompt first.
    List<BlockKey> filesInUse() {
        return Stream.concat(loadingPrefix.stream(), loadingFiles.stream())
                .flatMap(file -> file.keys().stream())
                .toList();
    }

    /// Those of the load under way that failed with these blocks.
    List<BlockKey> failedFiles(List<FailedBlocks> blocks) {
        return loadingFiles.stream()
                .filter(files -> files.failed(blocks))
                .flatMap(files -> files.keys().stream())
                .toList();
    }

    /// How many of the first `end` blocks come before the first run that is shared in part. The
    /// blocks from there on may be in the run of another prompt only, whose file has a name that
    /// other processes cannot derive from this prompt.
    int storedUnderOwnNames(int end) {
        return runs.values().stream()
                .filter(run -> run.blocks() < layout.run())
                .mapToInt(DiskPlan.Run::start)
                .reduce(end, Math::min);
    }

    /// The files that hold the first `end` blocks, as far as the store knows of them, in order.
    List<BlockKey> storedFiles(RequestView request, int end, BlockStore store) {
        var files = new ArrayList<BlockKey>();
        for (int at = 0; at < end; ) {
            if (at % layout.run() == 0 && hasRun(request, at) && all(store, run(request, at))) {
                files.addAll(run(request, at));
                at += layout.run();
                continue;
            }
            if (all(store, single(request, at))) {
                files.addAll(single(request, at));
            }
            at++;
        }
        return files;
    }

    /// Whether the store holds a block, in a file of its own or in that of its run.
    boolean isStored(RequestView request, int block, BlockStore store) {
        int start = layout.start(block);
        return (hasRun(request, start) && all(store, run(request, start)))
                || all(store, single(request, block));
    }

    static boolean all(BlockStore store, List<BlockKey> keys) {
        for (BlockKey key : keys) {
            if (!store.mayContain(key)) {
                return false;
            }
        }
        return true;
    }
}
