// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.spi.memory.BlockHash;
import io.kvferry.toolkit.disk.KeyDigest;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/// Which block hash stands behind a file, for the blocks that this rank saved: an eviction names
/// the file only.
///
/// Threading: any thread.
final class StoredBlocks {
    /// Oldest are forgotten first; their removal is then not announced.
    private static final int REMEMBERED = 1 << 20;

    private record Origin(BlockHash hash, int group) {}

    @FunctionalInterface
    interface RemovedBlocks {
        void accept(int group, List<BlockHash> hashes);
    }

    private final Map<KeyDigest, Origin> known = new LinkedHashMap<>();
    private final Map<Integer, List<BlockHash>> removed = new TreeMap<>();

    synchronized void remember(DiskJob job) {
        int groups = job.move().ids().length;
        for (int i = 0; i < job.keys().length; i++) {
            known.put(
                    job.keys()[i].digest(),
                    new Origin(job.move().hashes().get(i / groups), i % groups));
        }
        var oldest = known.keySet().iterator();
        for (int excess = known.size() - REMEMBERED; excess > 0; excess--) {
            oldest.next();
            oldest.remove();
        }
    }

    synchronized void removed(KeyDigest digest) {
        Origin origin = known.remove(digest);
        if (origin != null) {
            removed.computeIfAbsent(origin.group(), _ -> new ArrayList<>()).add(origin.hash());
        }
    }

    synchronized void drainRemoved(RemovedBlocks sink) {
        removed.forEach(sink::accept);
        removed.clear();
    }
}
