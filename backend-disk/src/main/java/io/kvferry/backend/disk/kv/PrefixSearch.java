// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.store.BlockKey;
import io.kvferry.backend.disk.store.BlockSearch;
import io.kvferry.spi.memory.BlockHash;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;

/// Looks for the files of a prompt: for each run its file, and where that is not there the files of
/// its single blocks, up to the first block that is in neither.
///
/// Threading: made by the scheduler thread, run by one I/O thread; read again when that is done.
final class PrefixSearch implements BlockSearch {
    private final FileLayout layout;
    private final List<BlockHash> hashes;
    private final int first;
    private final BitSet runs = new BitSet();
    private final List<Used> used = new ArrayList<>();
    private boolean gap;

    /// The files of the block or run at `start`.
    private record Used(int start, List<BlockKey> keys) {}

    /// @param hashes of all blocks of the prompt from its first on
    /// @param first block that is asked for; those before it are only kept in use
    PrefixSearch(FileLayout layout, List<BlockHash> hashes, int first) {
        this.layout = layout;
        this.hashes = hashes;
        this.first = first;
    }

    int first() {
        return first;
    }

    int end() {
        return hashes.size();
    }

    /// Starting positions of the runs that were found as runs.
    BitSet runs() {
        return runs;
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
                if (!hasSingle(finder, at) && at >= first && !gap) {
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
        boolean there =
                all(finder, start, layout.run(hashes.get(start + layout.run() - 1), start), wanted);
        runs.set(start, there);
        return there;
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
