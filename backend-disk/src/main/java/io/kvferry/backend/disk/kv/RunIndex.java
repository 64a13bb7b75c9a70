// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.spi.memory.BlockHash;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// Remembers the blocks of the runs this engine found or saved, by first block. The file of a run
/// is named by its last block, so a prompt that diverges earlier could not find the shared part.
///
/// Threading: the scheduler's thread.
final class RunIndex {
    /// About 20 MiB; the runs used longest ago are forgotten first.
    private static final int MOST_BLOCKS = 1 << 18;

    private final Map<BlockHash, List<BlockHash>> runs = new LinkedHashMap<>(16, 0.75f, true);
    private int blocks;

    /// Notes the blocks of a run, in order.
    void add(List<BlockHash> hashes) {
        var before = runs.put(hashes.getFirst(), hashes);
        blocks += hashes.size() - (before == null ? 0 : before.size());
        var oldest = runs.values().iterator();
        while (blocks > MOST_BLOCKS) {
            blocks -= oldest.next().size();
            oldest.remove();
        }
    }

    /// The known run that begins with block `start` of a prompt, cut to the blocks that the prompt
    /// shares with it; empty when none is known, or when the prompt shares all of it.
    ///
    /// @param hashes of the whole blocks of the prompt
    Optional<DiskPlan.Run> partlyShared(List<BlockHash> hashes, int start) {
        List<BlockHash> run = runs.get(hashes.get(start));
        if (run == null) {
            return Optional.empty();
        }
        int most = Math.min(run.size(), hashes.size() - start);
        int shared = 1;
        while (shared < most && run.get(shared).equals(hashes.get(start + shared))) {
            shared++;
        }
        return shared == run.size()
                ? Optional.empty()
                : Optional.of(new DiskPlan.Run(start, shared, run.getLast()));
    }
}
