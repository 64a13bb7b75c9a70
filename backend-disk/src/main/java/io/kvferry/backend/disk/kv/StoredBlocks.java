// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.spi.memory.BlockHash;
import io.kvferry.toolkit.disk.space.KeyDigest;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;

/// Maps files saved by this rank to their block hashes, because an eviction names only the file. A
/// block may be in its own file and in that of a run; it is reported as removed when it is in
/// neither.
///
/// Threading: any thread.
final class StoredBlocks {
    /// When full, the oldest entries are dropped; their removal is then not announced.
    private static final int REMEMBERED = 1 << 20;

    private record Origin(int group, List<BlockHash> hashes) {}

    private record Held(int group, BlockHash hash) {}

    @FunctionalInterface
    interface RemovedBlocks {
        void accept(int group, List<BlockHash> hashes);
    }

    private final Map<KeyDigest, Origin> known = new LinkedHashMap<>();
    private final Map<Held, Integer> files = new HashMap<>();
    private final Map<Integer, List<BlockHash>> removed = new TreeMap<>();

    /// A file is about to be saved.
    synchronized void remember(KeyDigest file, int group, List<BlockHash> hashes) {
        if (known.put(file, new Origin(group, hashes)) != null) {
            return;
        }
        hashes.forEach(hash -> files.merge(new Held(group, hash), 1, Integer::sum));
        var oldest = known.keySet().iterator();
        while (files.size() > REMEMBERED) {
            forget(Objects.requireNonNull(known.get(oldest.next())));
            oldest.remove();
        }
    }

    /// Answers the blocks that are in no other file.
    private List<BlockHash> forget(Origin origin) {
        var gone = new ArrayList<BlockHash>();
        for (BlockHash hash : origin.hashes()) {
            var held = new Held(origin.group(), hash);
            if (files.computeIfPresent(held, (_, count) -> count == 1 ? null : count - 1) == null) {
                gone.add(hash);
            }
        }
        return gone;
    }

    synchronized void removed(KeyDigest file) {
        Origin origin = known.remove(file);
        if (origin != null) {
            removed.computeIfAbsent(origin.group(), _ -> new ArrayList<>()).addAll(forget(origin));
        }
    }

    synchronized void drainRemoved(RemovedBlocks sink) {
        removed.forEach((group, hashes) -> {
            if (!hashes.isEmpty()) {
                sink.accept(group, hashes);
            }
        });
        removed.clear();
    }
}
